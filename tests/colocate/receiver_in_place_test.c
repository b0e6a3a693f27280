/* receiver_in_place_test.c - a receiver without regions: whole tensors that are in host memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/model_buckets.h"
#include "colocate/weights/receiver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TENSORS = 3, ROOM = 4096 };

static const struct tdm_tensor_info infos[TENSORS] = {
    {.name = "a", .dtype = TDM_F32, .dims_count = 2, .shape = {4, 8}},
    {.name = "b", .dtype = TDM_U8, .dims_count = 1, .shape = {3}},
    {.name = "c", .dtype = TDM_F64, .dims_count = 0},
};

/* A sender's bucket with all tensors, and a receiver that has got its bytes. */
struct world {
    struct tdm__model_buckets model_buckets;
    _Alignas(8) unsigned char image[ROOM];
    unsigned char description[ROOM];
    struct tdm_bytes described;
    struct tdm__id update;
    uint64_t epoch;
    struct tdm__receiver *receiver;
    /* Where load() has found each tensor; NULL before. */
    const void *loaded[TENSORS];
    uint32_t begins;
};

static tdm_status note_places(void *state, void *weights, const struct tdm_tensor_view *tensors,
                              uint32_t tensors_count)
{
    struct world *world = state;

    assert_null(weights);
    for (uint32_t i = 0; i < tensors_count; i++) {
        for (uint32_t k = 0; k < TENSORS; k++) {
            if (strcmp(tensors[i].info.name, infos[k].name) == 0) {
                world->loaded[k] = tensors[i].data;
            }
        }
    }
    return TDM_OK;
}

static tdm_status complete(void *state)
{
    (void)state;
    return TDM_OK;
}

static void begin(void *state)
{
    ((struct world *)state)->begins++;
}

static const struct tdm_engine_ops ops = {.size_bytes = sizeof(struct tdm_engine_ops),
                                          .load = note_places,
                                          .complete = complete,
                                          .begin = begin};

/* Describes the bucket as it is, for the next update. */
static void describe(struct world *world)
{
    const struct tdm__bucket *about = &world->model_buckets.plan->buckets[0];
    uint64_t sums[TENSORS];
    struct tdm__tensor_record records[TENSORS];
    struct tdm__bucket_contents contents = {.manifest = world->model_buckets.manifest,
                                            .epoch = ++world->epoch,
                                            .node = {{1}},
                                            .storage = {.gpu = {{2}},
                                                        .key = {{3}},
                                                        .size_bytes = about->size_bytes,
                                                        .allocation_bytes = about->size_bytes},
                                            .sums = sums,
                                            .records = records};

    world->update.bytes[0] = (unsigned char)(world->epoch + 1);
    contents.update = world->update;
    for (uint32_t i = 0; i < TENSORS; i++) {
        sums[i] = tdm__checksum_tensor(world->image + world->model_buckets.plan->tensor_offsets[i],
                                       tdm_tensor_bytes(&infos[i]));
    }
    TRY(tdm__bucket_describe(world->model_buckets.plan, 0, &contents, world->description,
                             &world->described));
    assert_true(world->described.size_bytes <=
                tdm__bucket_description_bytes_max(world->model_buckets.plan));
}

static struct world *world_open(void)
{
    struct world *world = calloc(1, sizeof(*world));
    struct tdm__receiver_options options = {
        .ops = &ops, .state = world, .verify = TDM__VERIFY_FULL};
    struct tdm__manifest *manifest;

    assert_non_null(world);
    TRY(tdm__manifest_create(infos, TENSORS, &manifest));
    TRY(tdm__model_buckets_create(manifest, ROOM, &world->model_buckets));
    assert_int_equal(world->model_buckets.plan->buckets_count, 1);
    options.manifest = world->model_buckets.manifest;
    TRY(tdm__receiver_create(&options, &world->receiver));
    for (uint32_t i = 0; i < ROOM; i++) {
        world->image[i] = (unsigned char)(i * 7);
    }
    return world;
}

static void world_close(struct world *world)
{
    tdm__receiver_destroy(world->receiver);
    tdm__model_buckets_fini(&world->model_buckets);
    free(world);
}

static tdm_status stage(struct world *world)
{
    return tdm__receiver_stage_bucket_from(world->receiver, world->described,
                                           (const char *)world->image,
                                           world->model_buckets.plan->buckets[0].size_bytes);
}

static void tensors_are_loaded_where_they_are(void **state)
{
    struct world *world = world_open();
    struct tdm__hash hash;

    (void)state;
    assert_int_equal(tdm__receiver_shadow_bytes(world->receiver), 0);
    for (uint32_t round = 1; round <= 3; round++) {
        world->image[0]++;
        describe(world);
        TRY(stage(world));
        for (uint32_t i = 0; i < TENSORS; i++) {
            assert_ptr_equal(world->loaded[i],
                             world->image + world->model_buckets.plan->tensor_offsets[i]);
        }
        assert_int_equal(world->begins, round);
        TRY(tdm__receiver_prepare(world->receiver, &world->update, &hash));
        assert_int_equal(stage(world), TDM_E_STATE); /* After its vote nothing may change. */
        TRY(tdm__receiver_flip_shadow(world->receiver, &world->update));
        TRY(tdm__receiver_flip_shadow(world->receiver, &world->update));
    }
    world_close(world);
}

static void bucket_of_an_aborted_version_is_refused(void **state)
{
    struct world *world = world_open();
    struct tdm__hash hash;

    (void)state;
    describe(world);
    TRY(stage(world));
    TRY(tdm__receiver_prepare(world->receiver, &world->update, &hash));
    TRY(tdm__receiver_drop_shadow(world->receiver, world->epoch));
    assert_int_equal(stage(world), TDM_E_STATE);
    assert_int_equal(tdm__receiver_flip_shadow(world->receiver, &world->update), TDM_E_STATE);
    describe(world);
    TRY(stage(world));
    TRY(tdm__receiver_prepare(world->receiver, &world->update, &hash));
    world_close(world);
}

static void every_turned_bit_names_its_tensor(void **state)
{
    struct world *world = world_open();
    struct tdm__hash hash;

    (void)state;
    describe(world);
    for (uint32_t i = 0; i < TENSORS; i++) {
        for (size_t k = 0; k < tdm_tensor_bytes(&infos[i]) * 8; k++) {
            unsigned char *byte =
                &world->image[world->model_buckets.plan->tensor_offsets[i] + k / 8];
            char text[32];

            (void)snprintf(text, sizeof(text), "tensor %s", infos[i].name);
            *byte ^= (unsigned char)(1 << k % 8);
            assert_int_equal(stage(world), TDM_E_CHECKSUM);
            assert_non_null(strstr(tdm_error_detail(), text));
            *byte ^= (unsigned char)(1 << k % 8);
        }
    }
    assert_int_equal(tdm__receiver_prepare(world->receiver, &world->update, &hash), TDM_E_STATE);
    TRY(stage(world));
    TRY(tdm__receiver_prepare(world->receiver, &world->update, &hash));
    world_close(world);
}

static void every_turned_bit_of_the_description_is_refused(void **state)
{
    struct world *world = world_open();

    (void)state;
    describe(world);
    for (size_t k = 0; k < world->described.size_bytes * 8; k++) {
        world->description[k / 8] ^= (unsigned char)(1 << k % 8);
        assert_int_not_equal(stage(world), TDM_OK);
        world->description[k / 8] ^= (unsigned char)(1 << k % 8);
    }
    assert_int_equal(world->begins, 0);
    TRY(stage(world));
    world_close(world);
}

/* Encodes the tensor handles of the description again after `change` has changed them. */
static void describe_otherwise(struct world *world, void (*change)(struct tdm__tensor_handles *))
{
    struct tdm__tensor_handles handles;

    describe(world);
    TRY(tdm__tensor_handles_decode(world->described, &handles));
    change(&handles);
    TRY(tdm__tensor_handles_encode(&handles, world->description, world->described.size_bytes));
    tdm__tensor_handles_fini(&handles);
}

static void move_past_the_end(struct tdm__tensor_handles *handles)
{
    handles->storages[0].size_bytes = ROOM;
    handles->storages[0].allocation_bytes = ROOM;
    handles->tensors[TENSORS - 1].offset = ROOM / 8 - 1;
}

static void make_a_slice(struct tdm__tensor_handles *handles)
{
    handles->tensors[1].flags = TDM__TENSOR_SLICE;
    handles->tensors[1].dims_count = 2;
    handles->tensors[1].shape[0] = 1;
    handles->tensors[1].shape[1] = 2;
    handles->tensors[1].stride[0] = 2;
    handles->tensors[1].stride[1] = 1;
}

static void tensors_outside_the_bucket_and_slices_are_refused(void **state)
{
    struct world *world = world_open();

    (void)state;
    describe_otherwise(world, move_past_the_end);
    assert_int_equal(stage(world), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "up to byte 4096"));
    describe_otherwise(world, make_a_slice);
    assert_int_equal(stage(world), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "slice of tensor b"));
    describe(world);
    TRY(stage(world));
    world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_loaded_where_they_are),
        cmocka_unit_test(bucket_of_an_aborted_version_is_refused),
        cmocka_unit_test(every_turned_bit_names_its_tensor),
        cmocka_unit_test(every_turned_bit_of_the_description_is_refused),
        cmocka_unit_test(tensors_outside_the_bucket_and_slices_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
