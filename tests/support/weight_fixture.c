/* weight_fixture.c - two trainer ranks and an engine rank that share one GPU and a small model.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/weight_fixture.h"

#include "colocate/comm/collective.h"
#include "colocate/comm/host/host.h"
#include "colocate/comm/host/segment.h"
#include "tests/support/cuda_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TIMEOUT_MS = 20000, BUCKET_BYTES = 8192 };

static bool on_cuda;

/* ---- bytes ------------------------------------------------------------------------------ */

static void copy_bytes(const struct weight_fixture *world, int index, void *to, const void *from,
                       size_t size_bytes)
{
    struct tdm__device *device = world->gpu->devices[index];

    TRY(device->ops->copy(device, to, from, size_bytes));
    TRY(device->ops->copy_flush(device));
}

void weight_fixture_put(const struct weight_fixture *world, int device, void *address,
                        const void *bytes, size_t size_bytes)
{
    copy_bytes(world, device, address, bytes, size_bytes);
}

void weight_fixture_get(const struct weight_fixture *world, int device, void *bytes,
                        const void *address, size_t size_bytes)
{
    copy_bytes(world, device, bytes, address, size_bytes);
}

/* ---- the engine ------------------------------------------------------------------------- */

static tdm_status engine_load(void *state, void *weights, const struct tdm_tensor_view *tensors,
                              uint32_t tensors_count)
{
    struct world_engine *engine = state;
    const struct weight_fixture *world = engine->world;

    engine->loads++;
    if (engine->load_fails != TDM_OK) {
        return tdm_fail(engine->load_fails, "on purpose");
    }
    for (uint32_t i = 0; i < tensors_count; i++) {
        uint32_t tensor = 0;

        while (strcmp(tensors[i].info.name, world->infos[tensor].name) != 0) {
            tensor++;
        }
        weight_fixture_put(engine->world, 1, (char *)weights + world->offsets[tensor],
                           tensors[i].data, tdm_tensor_bytes(&tensors[i].info));
    }
    return TDM_OK;
}

static tdm_status engine_complete(void *state)
{
    struct world_engine *engine = state;

    engine->completes++;
    return TDM_OK;
}

static void engine_begin(void *state)
{
    struct world_engine *engine = state;

    engine->begins++;
}

static const struct tdm_engine_ops engine_ops = {.size_bytes = sizeof(struct tdm_engine_ops),
                                                 .load = engine_load,
                                                 .complete = engine_complete,
                                                 .begin = engine_begin};

/* ---- the model -------------------------------------------------------------------------- */

/* One tensor is larger than a bucket, one is a scalar. */
static void invent_model(struct weight_fixture *world)
{
    static const char *const names[WORLD_TENSORS] = {"embed", "norm",  "gate",
                                                     "large", "scale", "head"};
    static const enum tdm_dtype dtypes[WORLD_TENSORS] = {TDM_F32, TDM_BF16, TDM_U8,
                                                         TDM_I64, TDM_F32,  TDM_F8_E4M3};
    uint64_t end = 0;

    for (uint32_t i = 0; i < WORLD_TENSORS; i++) {
        struct tdm_tensor_info *info = &world->infos[i];

        *info = (struct tdm_tensor_info){
            .name = names[i], .dtype = dtypes[i], .dims_count = i == 4 ? 0 : 2, .shape = {0}};
        for (uint32_t dim = 0; dim < info->dims_count; dim++) {
            info->shape[dim] = (i == 3 ? 33 : 2) + test_random_below(&world->chance, 30);
        }
        world->offsets[i] = end;
        end += tdm_tensor_bytes(info);
    }
    assert_true(end <= WORLD_MODEL_BYTES_MAX);
    TRY(tdm__manifest_create(world->infos, WORLD_TENSORS, &world->manifest));
}

/* Rank 0 has the first elements of each tensor, rank 1 the rest, the scalar too. */
static void cut_slices(struct weight_fixture *world)
{
    char *ends[WORLD_RANKS];

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        const struct tdm_region_options options = {
            .tag = "params", .size_bytes = 2 * MIB, .policy = TDM_REGION_KEEP};

        TRY(tdm__region_create(world->regions[0], &options, &world->params[rank]));
        ends[rank] = tdm_region_address(world->params[rank]);
    }
    for (uint32_t i = 0; i < WORLD_TENSORS; i++) {
        uint64_t elements = tdm_tensor_elements(&world->infos[i]);
        uint64_t middle =
            elements == 1 ? 0 : 1 + test_random_below(&world->chance, (uint32_t)elements - 1);
        const uint64_t borders[WORLD_RANKS + 1] = {0, middle, elements};

        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            struct tdm__layout *layout = &world->layouts[rank];
            uint64_t count = borders[rank + 1] - borders[rank];

            if (count > 0) {
                world->slices[rank][layout->slices_count++] =
                    (struct tdm_slice){.tensor = i,
                                       .flat = 1,
                                       .offset = {borders[rank]},
                                       .extent = {count},
                                       .address = ends[rank]};
                ends[rank] += count * tdm_dtype_bytes(world->infos[i].dtype);
            }
            layout->slices = world->slices[rank];
        }
    }
}

void weight_fixture_learn(struct weight_fixture *world)
{
    for (size_t i = 0; i < sizeof(world->truth); i++) {
        world->truth[i] = (unsigned char)test_random_next(&world->chance);
    }
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        for (uint32_t i = 0; i < world->layouts[rank].slices_count; i++) {
            const struct tdm_slice *slice = &world->slices[rank][i];
            size_t element = tdm_dtype_bytes(world->infos[slice->tensor].dtype);

            weight_fixture_put(world, 0, (void *)(uintptr_t)slice->address,
                               world->truth + world->offsets[slice->tensor] +
                                   slice->offset[0] * element,
                               slice->extent[0] * element);
        }
    }
}

/* ---- both sides ------------------------------------------------------------------------- */

static void open_writers(struct weight_fixture *world)
{
    const struct tdm__comm_segment_options segment = {WORLD_RANKS, 4096};
    int fd;

    TRY(tdm__comm_segment_create(&segment, &fd));
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TRY(tdm__whole_tensors_create(world->manifest, BUCKET_BYTES, WORLD_RANKS,
                                      &world->whole_tensors[rank]));
    }
    TRY(tdm__whole_tensors_compile_plan(world->whole_tensors[0], world->layouts, WORLD_RANKS, NULL,
                                        NULL, 0, &world->plan));
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        struct tdm__weight_writer_options options = {.transfer_plan = world->plan,
                                                     .rank = rank,
                                                     .regions = world->regions[0],
                                                     .node = world->location.node,
                                                     .has_one_half = true};
        struct tdm__comm *comm;

        TRY(tdm__comm_host_open(fd, rank, TIMEOUT_MS, &comm));
        TRY(tdm__collective_wrap(comm, &world->groups[rank]));
        options.group = world->groups[rank];
        TRY(tdm__weight_writer_create(&options, &world->writers[rank]));
    }
    (void)close(fd);
}

static void open_receiver(struct weight_fixture *world, enum tdm__verify verify)
{
    const struct tdm_region_options weights = {
        .tag = "weights", .size_bytes = 2 * MIB, .policy = TDM_REGION_KEEP};
    struct tdm__receiver_options options = {.manifest = world->manifest,
                                            .ops = &engine_ops,
                                            .state = &world->engine,
                                            .regions = world->regions[1],
                                            .location = world->location,
                                            .verify = verify};
    void *zeros;

    world->engine.world = world;
    TRY(tdm__region_create(world->regions[1], &weights, &world->weights));
    zeros = calloc(1, 2 * MIB);
    assert_non_null(zeros);
    weight_fixture_put(world, 1, tdm_region_address(world->weights), zeros, 2 * MIB);
    free(zeros);
    options.weights = world->weights;
    TRY(tdm__receiver_create(&options, &world->receiver));
}

void weight_fixture_overwrite(struct weight_fixture *world)
{
    struct tdm__receiver_options options = {.manifest = world->manifest,
                                            .ops = &engine_ops,
                                            .state = &world->engine,
                                            .regions = world->regions[1],
                                            .weights = world->weights,
                                            .location = world->location,
                                            .verify = TDM__VERIFY_FULL,
                                            .overwrites = true};

    tdm__receiver_destroy(world->receiver);
    TRY(tdm__receiver_create(&options, &world->receiver));
}

int weight_fixture_everywhere(int (*run)(const char *device))
{
    int failed = run("host");

    cuda_gpu_choose(4096 * MIB);
    on_cuda = true;
    cuda_gpu_fake.defer(false);
    failed += run("cuda");
    cuda_gpu_fake.defer(true);
    failed += run("cuda, late");
    on_cuda = false;
    cuda_gpu_forget();
    return failed;
}

bool weight_fixture_is_cuda(void)
{
    return on_cuda;
}

struct weight_fixture *weight_fixture_open(const char *test, enum tdm__verify verify)
{
    struct weight_fixture *world = calloc(1, sizeof(*world));
    struct tdm__id node;

    assert_non_null(world);
    world->chance = test_random_init(test, 1);
    world->gpu = host_gpu_open(64 * MIB, false);
    if (on_cuda) {
        host_gpu_use_cuda(world->gpu);
    }
    for (int i = 0; i < 2; i++) {
        struct tdm__device *device = world->gpu->devices[i];

        TRY(tdm__arena_create(device, 64 * MIB, &world->arenas[i]));
        TRY(tdm__regions_create(device, world->arenas[i], &world->regions[i]));
    }
    TRY(tdm__id_generate(&node));
    world->location = tdm__location_of_device(&node, world->gpu->devices[0]);
    invent_model(world);
    cut_slices(world);
    weight_fixture_learn(world);
    open_writers(world);
    open_receiver(world, verify);
    return world;
}

void weight_fixture_close(struct weight_fixture *world)
{
    tdm__receiver_destroy(world->receiver);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        tdm__weight_writer_destroy(world->writers[rank]);
        tdm_collective_leave(world->groups[rank]);
    }
    tdm__transfer_plan_destroy(world->plan);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        tdm__whole_tensors_destroy(world->whole_tensors[rank]);
    }
    for (int i = 0; i < 2; i++) {
        tdm__regions_destroy(world->regions[i]);
        tdm__arena_destroy(world->arenas[i]);
    }
    assert_int_equal(host_gpu_used_bytes(world->gpu), 0);
    host_gpu_close(world->gpu);
    tdm__manifest_destroy(world->manifest);
    free(world);
}

/* ---- an update -------------------------------------------------------------------------- */

uint32_t weight_fixture_buckets_count(const struct weight_fixture *world)
{
    return tdm__whole_tensors_buckets(world->whole_tensors[0])->buckets_count;
}

/* Says where the buckets of both ranks are. */
static void find_targets(const struct weight_fixture *world,
                         struct tdm__transfer_target targets[WORLD_RANKS])
{
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        struct tdm__transfer_target *target = &targets[rank];
        struct tdm__block *const *blocks = tdm__region_blocks(
            tdm__weight_writer_bucket(world->writers[rank]), &target->blocks_count);

        target->gpu = world->location.gpu;
        for (uint32_t i = 0; i < target->blocks_count; i++) {
            target->keys[i] = blocks[i]->key;
        }
    }
}

/* Writes what one rank holds of a bucket into the buckets of both. */
static tdm_status write_bucket(struct tdm__weight_writer *writer, uint32_t bucket,
                               const struct tdm__transfer_target targets[WORLD_RANKS])
{
    tdm_status status = tdm__weight_writer_map_targets(writer, targets);

    if (status == TDM_OK) {
        status = tdm__weight_writer_write_chunk(writer, bucket);
    }
    tdm__weight_writer_unmap_targets(writer);
    return status;
}

tdm_status weight_fixture_fill(struct weight_fixture *world, uint32_t bucket)
{
    struct tdm__transfer_target targets[WORLD_RANKS] = {{.absent = false}};
    tdm_status status = TDM_OK;

    find_targets(world, targets);
    for (uint32_t rank = 0; rank < WORLD_RANKS && status == TDM_OK; rank++) {
        status = write_bucket(world->writers[rank], bucket, targets);
    }
    return status;
}

void weight_fixture_begin(struct weight_fixture *world)
{
    TRY(tdm__id_generate(&world->update));
    world->epoch++;
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TRY(tdm__weight_writer_resume_bucket(world->writers[rank], 0));
    }
    TRY(tdm__receiver_resume_shadow(world->receiver, 0));
}

tdm_status weight_fixture_try_describe(struct weight_fixture *world, uint32_t rank, uint32_t bucket,
                                       struct tdm_bytes *bytes_out)
{
    const struct tdm__written_bucket written = {.device = tdm__regions_device(world->regions[0]),
                                                .region =
                                                    tdm__weight_writer_bucket(world->writers[rank]),
                                                .location = &world->location,
                                                .update = &world->update,
                                                .epoch = world->epoch,
                                                .index = bucket};

    return tdm__whole_tensors_describe(world->whole_tensors[rank], &written, bytes_out);
}

struct tdm_bytes weight_fixture_describe(struct weight_fixture *world, uint32_t rank,
                                         uint32_t bucket)
{
    struct tdm_bytes bytes;

    TRY(weight_fixture_try_describe(world, rank, bucket, &bytes));
    return bytes;
}

tdm_status weight_fixture_send(struct weight_fixture *world, uint32_t bucket)
{
    TRY(weight_fixture_fill(world, bucket));
    return tdm__receiver_stage_bucket(world->receiver, weight_fixture_describe(world, 0, bucket));
}

void weight_fixture_send_all(struct weight_fixture *world)
{
    for (uint32_t i = 0; i < weight_fixture_buckets_count(world); i++) {
        TRY(weight_fixture_send(world, i));
    }
}

void weight_fixture_commit(struct weight_fixture *world)
{
    struct tdm__hash hash;

    weight_fixture_begin(world);
    weight_fixture_send_all(world);
    TRY(tdm__receiver_prepare(world->receiver, &world->update, &hash));
    TRY(tdm__receiver_flip_shadow(world->receiver, &world->update));
    weight_fixture_pause_buckets(world);
}

void weight_fixture_pause_buckets(struct weight_fixture *world)
{
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TRY(tdm__weight_writer_pause_bucket(world->writers[rank]));
    }
}

bool weight_fixture_serves_truth(const struct weight_fixture *world)
{
    size_t size_bytes = world->manifest->size_bytes;
    unsigned char *served = malloc(size_bytes);
    bool same;

    assert_non_null(served);
    weight_fixture_get(world, 1, served, tdm_region_address(world->weights), size_bytes);
    same = memcmp(served, world->truth, size_bytes) == 0;
    free(served);
    return same;
}
