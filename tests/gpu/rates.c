/* rates.c - how fast regions pause, resume and change hands on a GPU; JSON on stdout. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each number beside what the same machine does without Tandem, in the same run. */
#include "colocate/device/cuda/driver.h"
#include "colocate/memory/region.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 5, PARTS = 256 };

static size_t region_bytes = (size_t)1 << 30;

static void require(tdm_status status)
{
    if (status != TDM_OK) {
        (void)fprintf(stderr, "%s\n", tdm_error_detail());
        exit(1);
    }
}

static double seconds_now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

static double median(double *values)
{
    qsort(values, REPEATS, sizeof(values[0]), compare);
    return values[REPEATS / 2];
}

/* What is divided by it is told beside it: by name, as long as the program runs. */
static struct {
    const char *name;
    double value;
} told[64];

static double failure_was_printed(const char *name)
{
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        if (told[i].name != NULL && strcmp(told[i].name, name) == 0) {
            return told[i].value;
        }
    }
    return 0;
}

static void tell(const char *name, double value, const char *unit)
{
    static size_t count;

    static const char *separator = "{";

    (void)printf("%s\"%s_%s\":%.3f", separator, name, unit, value);
    separator = ",\n  ";
    if (count < sizeof(told) / sizeof(told[0])) {
        told[count].name = name;
        told[count++].value = value;
    }
}

static void tell_ratio(const char *name, const char *of, const char *to)
{
    tell(name, failure_was_printed(to) > 0 ? failure_was_printed(of) / failure_was_printed(to) : 0,
         "ratio");
}

static double gib_per_s(double seconds)
{
    return (double)region_bytes / (double)(1 << 30) / seconds;
}

/* The driver's own copies between the same region and pinned memory, nothing else. */
static void measure_plain(struct tdm__device *device, tdm_region *region)
{
    double down[REPEATS];
    double up[REPEATS];
    void *host;

    require(device->ops->host_alloc(device, region_bytes, &host));
    for (int i = -1; i < REPEATS; i++) {
        double begun = seconds_now();
        double between;

        require(device->ops->copy(device, host, tdm_region_address(region), region_bytes));
        require(device->ops->copy_flush(device));
        between = seconds_now();
        require(device->ops->copy(device, tdm_region_address(region), host, region_bytes));
        require(device->ops->copy_flush(device));
        if (i >= 0) {
            down[i] = between - begun;
            up[i] = seconds_now() - between;
        }
    }
    device->ops->host_free(device, host, region_bytes);
    tell("plain_copy_to_host", gib_per_s(median(down)), "gib_per_s");
    tell("plain_copy_to_device", gib_per_s(median(up)), "gib_per_s");
}

static void measure_pause(tdm_region *region)
{
    double pause[REPEATS];
    double resume[REPEATS];

    for (int i = -1; i < REPEATS; i++) {
        double begun = seconds_now();
        double between;

        require(tdm_region_pause(region));
        between = seconds_now();
        require(tdm_region_resume(region, 0));
        if (i >= 0) {
            pause[i] = between - begun;
            resume[i] = seconds_now() - between;
        }
    }
    tell("pause", gib_per_s(median(pause)), "gib_per_s");
    tell("resume", gib_per_s(median(resume)), "gib_per_s");
    tell_ratio("pause_to_plain_copy", "pause", "plain_copy_to_host");
    tell_ratio("resume_to_plain_copy", "resume", "plain_copy_to_device");
}

static void measure_swap(tdm_region *a, tdm_region *b)
{
    double swap[REPEATS];

    for (int i = 0; i < REPEATS; i++) {
        double begun = seconds_now();

        require(tdm__region_swap(a, b));
        swap[i] = seconds_now() - begun;
    }
    tell("flip", median(swap) * 1e3 / ((double)region_bytes / (double)(1 << 30)), "ms_per_gib");
}

/* Copy mode on one device, beside which a flip stands. */
static void measure_inside(struct tdm__device *device, tdm_region *a, tdm_region *b)
{
    double copy[REPEATS];

    for (int i = -1; i < REPEATS; i++) {
        double begun = seconds_now();

        require(
            device->ops->copy(device, tdm_region_address(a), tdm_region_address(b), region_bytes));
        require(device->ops->copy_flush(device));
        if (i >= 0) {
            copy[i] = seconds_now() - begun;
        }
    }
    tell("copy_inside_device", gib_per_s(median(copy)), "gib_per_s");
}

/* A second tenant opens the block, maps it, and gives it back. */
static void measure_import(const struct cuda_gpu *gpu, tdm_region *region)
{
    struct tdm__device *importer = gpu->devices[1];
    double import[REPEATS];
    void *there;

    require(importer->ops->reserve(importer, region_bytes, &there));
    for (int i = 0; i < REPEATS; i++) {
        struct tdm__block *block;
        double begun = seconds_now();

        require(importer->ops->import(importer, &tdm__region_block(region)->key, &block));
        require(importer->ops->map(importer, there, block, TDM__READ_WRITE));
        import[i] = seconds_now() - begun;
        require(importer->ops->unmap(importer, there, region_bytes));
        importer->ops->release(importer, &block, 1);
    }
    importer->ops->unreserve(importer, there, region_bytes);
    tell("import_and_map", median(import) * 1e3, "ms");
}

static tdm_region *make(struct tdm__regions *regions, enum tdm_region_policy policy)
{
    const struct tdm_region_options options = {
        .tag = "weights", .size_bytes = region_bytes, .policy = policy};
    tdm_region *region;

    require(tdm__region_create_shared(regions, &options, &region));
    return region;
}

/* The region in parts, as a route has them, from `from` (NULL: zeros) to `to` (NULL: sums). */
static void make_parts(struct tdm__copy_op *parts, char *from, char *to)
{
    const struct tdm__strided_rows rows = {.count = 16,
                                           .size_bytes = region_bytes / PARTS / 16,
                                           .from_pitch = region_bytes / PARTS / 16,
                                           .to_pitch = region_bytes / PARTS / 16};

    for (size_t i = 0; i < PARTS; i++) {
        size_t at = i * (region_bytes / PARTS);

        parts[i] = tdm__copy_op_of_rows(&rows, from == NULL ? NULL : from + at,
                                        to == NULL ? NULL : to + at);
    }
}

static void measure_move(const char *name, struct tdm__device *device, void *from, void *to)
{
    static struct tdm__copy_op parts[PARTS];
    static uint64_t sums[PARTS];
    double move[REPEATS];

    make_parts(parts, from, to);
    for (int i = -1; i < REPEATS; i++) {
        double begun = seconds_now();

        require(device->ops->move(device, parts, PARTS, sums));
        if (i >= 0) {
            move[i] = seconds_now() - begun;
        }
    }
    tell(name, gib_per_s(median(move)), "gib_per_s");
}

/* Float32 that become bfloat16, or FP8 in blocks: read, the region's bytes a second. */
static void measure_convert(const char *name, struct tdm__device *device, void *from, void *to,
                            enum tdm__conversion conversion)
{
    const struct tdm__copy_op part = {.from = from,
                                      .to = to,
                                      .rows = region_bytes / sizeof(float) / 4096,
                                      .columns = 4096,
                                      .from_pitch = 4096,
                                      .to_pitch = 4096,
                                      .conversion = (uint8_t)conversion,
                                      .from_dtype = TDM_F32,
                                      .to_dtype =
                                          conversion == TDM__CONVERT_BF16 ? TDM_BF16 : TDM_F8_E4M3};
    double seconds[REPEATS];
    uint64_t sum;

    for (int i = -1; i < REPEATS; i++) {
        double begun = seconds_now();

        require(device->ops->move(device, &part, 1, &sum));
        if (i >= 0) {
            seconds[i] = seconds_now() - begun;
        }
    }
    tell(name, gib_per_s(median(seconds)), "gib_per_s");
}

/* Donated: the trainer maps the engine's shadow, writes it, lets go, and the engine flips. */
static void measure_update(const struct cuda_gpu *gpu, void *from, tdm_region *weights,
                           tdm_region *shadow)
{
    static struct tdm__copy_op parts[PARTS];
    static uint64_t sums[PARTS];
    struct tdm__device *trainer = gpu->devices[1];
    double update[REPEATS];
    void *there;

    require(trainer->ops->reserve(trainer, region_bytes, &there));
    for (int i = -1; i < REPEATS; i++) {
        struct tdm__block *block;
        double begun = seconds_now();

        require(trainer->ops->import(trainer, &tdm__region_block(shadow)->key, &block));
        require(trainer->ops->map(trainer, there, block, TDM__READ_WRITE));
        make_parts(parts, from, there);
        require(trainer->ops->move(trainer, parts, PARTS, sums));
        require(trainer->ops->unmap(trainer, there, region_bytes));
        trainer->ops->release(trainer, &block, 1);
        require(tdm__region_swap(weights, shadow));
        if (i >= 0) {
            update[i] = seconds_now() - begun;
        }
    }
    trainer->ops->unreserve(trainer, there, region_bytes);
    tell("update_donated", gib_per_s(median(update)), "gib_per_s");
}

/* What routes ask of a GPU; skipped where there are no kernels. */
static void measure_routes(const struct cuda_gpu *gpu, struct tdm__regions *regions, tdm_region *a,
                           tdm_region *b)
{
    struct tdm__device *device = gpu->devices[0];
    const struct tdm__copy_op nothing = {.rows = 0};
    void *source = tdm_region_address(a);
    tdm_region *trainers;
    uint64_t sum;
    void *host;

    if (device->ops->move(device, &nothing, 1, &sum) != TDM_OK) {
        (void)fprintf(stderr, "routes are not measured: %s\n", tdm_error_detail());
        return;
    }
    measure_move("write_alone", device, NULL, tdm_region_address(b));
    measure_move("sum_alone", device, source, NULL);
    measure_move("copy_with_sums", device, source, tdm_region_address(b));
    measure_convert("cast_to_bf16", device, source, tdm_region_address(b), TDM__CONVERT_BF16);
    measure_convert("quantize_to_fp8", device, source, tdm_region_address(b), TDM__CONVERT_FP8);
    require(device->ops->host_alloc(device, region_bytes, &host));
    memset(host, 1, region_bytes);
    measure_move("copy_from_pinned_with_sums", device, host, tdm_region_address(b));
    device->ops->host_free(device, host, region_bytes);
    trainers = make(regions, TDM_REGION_DROP);
    measure_update(gpu, tdm_region_address(trainers), a, b);
    tdm_region_destroy(trainers);
    tell_ratio("update_to_copy_inside", "update_donated", "copy_inside_device");
    tell_ratio("update_to_write_alone", "update_donated", "write_alone");
    tell_ratio("copy_from_pinned", "copy_from_pinned_with_sums", "plain_copy_to_device");
}

int main(int argc, char **argv)
{
    struct cuda_gpu *gpu;
    struct tdm__regions *regions;
    struct tdm__arena *arena;
    struct tdm__device *device;
    size_t free_bytes;
    tdm_region *a;
    tdm_region *b;

    region_bytes = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) << 20 : region_bytes;
    gpu = cuda_gpu_open(4 * region_bytes, false);
    device = gpu->devices[0];
    require(tdm__arena_create(device, SIZE_MAX, &arena));
    require(tdm__regions_create(device, arena, &regions));
    a = make(regions, TDM_REGION_KEEP);
    b = make(regions, TDM_REGION_DROP);
    tell("region", (double)region_bytes / (double)(1 << 20), "mib");
    measure_plain(device, a);
    measure_pause(a);
    measure_swap(a, b);
    measure_inside(device, a, b);
    measure_import(gpu, a);
    measure_routes(gpu, regions, a, b);
    free_bytes = cuda_gpu_free_bytes(gpu);
    require(tdm__regions_pause(regions, NULL));
    tell("freed_by_pause", (double)(cuda_gpu_free_bytes(gpu) - free_bytes) / (double)(1 << 20),
         "mib");
    (void)printf("}\n");
    tdm__regions_destroy(regions);
    tdm__arena_destroy(arena);
    cuda_gpu_close(gpu);
    return 0;
}
