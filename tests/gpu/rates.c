/* rates.c - how fast regions pause, resume and change hands on a GPU; JSON on stdout. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each number beside what the same machine does without Tandem, in the same run. */
#include "colocate/device/cuda/driver.h"
#include "colocate/memory/region.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 5 };

static size_t region_bytes = (size_t)1 << 30;

static void must(tdm_status status)
{
    if (status != TDM_OK) {
        (void)fprintf(stderr, "%s\n", tdm_error_detail());
        exit(1);
    }
}

static double now(void)
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

static void tell(const char *name, double value, const char *unit)
{
    static const char *separator = "{";

    (void)printf("%s\"%s_%s\":%.3f", separator, name, unit, value);
    separator = ",\n  ";
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

    must(device->ops->host_alloc(device, region_bytes, &host));
    for (int i = -1; i < REPEATS; i++) {
        double begun = now();
        double between;

        must(device->ops->copy(device, host, tdm_region_address(region), region_bytes));
        must(device->ops->copy_flush(device));
        between = now();
        must(device->ops->copy(device, tdm_region_address(region), host, region_bytes));
        must(device->ops->copy_flush(device));
        if (i >= 0) {
            down[i] = between - begun;
            up[i] = now() - between;
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
        double begun = now();
        double between;

        must(tdm_region_pause(region));
        between = now();
        must(tdm_region_resume(region, 0));
        if (i >= 0) {
            pause[i] = between - begun;
            resume[i] = now() - between;
        }
    }
    tell("pause", gib_per_s(median(pause)), "gib_per_s");
    tell("resume", gib_per_s(median(resume)), "gib_per_s");
}

static void measure_swap(tdm_region *a, tdm_region *b)
{
    double swap[REPEATS];

    for (int i = 0; i < REPEATS; i++) {
        double begun = now();

        must(tdm__region_swap(a, b));
        swap[i] = now() - begun;
    }
    tell("flip", median(swap) * 1e3 / ((double)region_bytes / (double)(1 << 30)), "ms_per_gib");
}

/* Copy mode on one device, beside which a flip stands. */
static void measure_inside(struct tdm__device *device, tdm_region *a, tdm_region *b)
{
    double copy[REPEATS];

    for (int i = -1; i < REPEATS; i++) {
        double begun = now();

        must(device->ops->copy(device, tdm_region_address(a), tdm_region_address(b),
                               region_bytes));
        must(device->ops->copy_flush(device));
        if (i >= 0) {
            copy[i] = now() - begun;
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

    must(importer->ops->reserve(importer, region_bytes, &there));
    for (int i = 0; i < REPEATS; i++) {
        struct tdm__block *block;
        double begun = now();

        must(importer->ops->import(importer, &tdm__region_block(region)->key, &block));
        must(importer->ops->map(importer, there, block, TDM__READ_WRITE));
        import[i] = now() - begun;
        must(importer->ops->unmap(importer, there, region_bytes));
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

    must(tdm__region_create_shared(regions, &options, &region));
    return region;
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
    must(tdm__arena_create(device, SIZE_MAX, &arena));
    must(tdm__regions_create(device, arena, &regions));
    a = make(regions, TDM_REGION_KEEP);
    b = make(regions, TDM_REGION_DROP);
    tell("region", (double)region_bytes / (double)(1 << 20), "mib");
    measure_plain(device, a);
    measure_pause(a);
    measure_swap(a, b);
    measure_inside(device, a, b);
    measure_import(gpu, a);
    free_bytes = cuda_gpu_free_bytes(gpu);
    must(tdm__regions_pause(regions, NULL));
    tell("freed_by_pause", (double)(cuda_gpu_free_bytes(gpu) - free_bytes) / (double)(1 << 20),
         "mib");
    (void)printf("}\n");
    tdm__regions_destroy(regions);
    tdm__arena_destroy(arena);
    cuda_gpu_close(gpu);
    return 0;
}
