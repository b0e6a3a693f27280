/* receiver_test.c - an engine rank loads exactly what was sent, and flips all of it at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/receiver.h"

#include "colocate/weights/tensor_handles.h"
#include "tests/support/weight_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

static int set_up(void **state)
{
    *state = weight_fixture_open("receiver", TDM__VERIFY_FULL);
    return 0;
}

static int tear_down(void **state)
{
    weight_fixture_close(*state);
    return 0;
}

static void assert_told(const char *words)
{
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

/* A copy of a bucket's description that a test corrupts. */
struct description {
    struct tdm_bytes bytes;
    unsigned char *copy;
    struct tdm__tensor_handles_header *header;
    struct tdm__storage_record *storage;
    struct tdm__tensor_record *tensors;
};

static struct description describe(struct weight_fixture *fixture, uint32_t bucket)
{
    struct tdm_bytes bytes = weight_fixture_describe(fixture, 0, bucket);
    struct description description = {.copy = malloc(bytes.size_bytes)};

    assert_non_null(description.copy);
    memcpy(description.copy, bytes.data, bytes.size_bytes);
    description.bytes = (struct tdm_bytes){description.copy, bytes.size_bytes};
    description.header = (void *)description.copy;
    description.storage = (void *)(description.copy + sizeof(*description.header));
    description.tensors = (void *)(description.storage + 1);
    return description;
}

/* Stages the description, with the checksum of what it says now, and frees it. */
static tdm_status stage(struct weight_fixture *fixture, struct description *description)
{
    const struct tdm__tensor_handles handles = {*description->header, description->storage,
                                                description->tensors};
    size_t size_bytes = description->bytes.size_bytes;
    char *again = malloc(size_bytes);
    tdm_status status;

    assert_non_null(again);
    TRY(tdm__tensor_handles_encode(&handles, again, size_bytes));
    status = tdm__receiver_stage_bucket(fixture->receiver, (struct tdm_bytes){again, size_bytes});
    free(again);
    free(description->copy);
    return status;
}

/* ---- what arrives -------------------------------------------------------------------- */

static void every_tensor_arrives_byte_for_byte(void **state)
{
    struct weight_fixture *fixture = *state;

    assert_true(weight_fixture_buckets_count(fixture) > 1);
    weight_fixture_commit(fixture);
    assert_true(weight_fixture_serves_truth(fixture));
    assert_int_equal(fixture->engine.begins, 1);
    assert_int_equal(fixture->engine.completes, 1);
    assert_int_equal(fixture->engine.loads, weight_fixture_buckets_count(fixture));
}

static void every_rank_of_the_trainers_shows_the_same_bucket(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__hash hash;

    weight_fixture_begin(fixture);
    for (uint32_t i = 0; i < weight_fixture_buckets_count(fixture); i++) {
        TRY(weight_fixture_fill(fixture, i));
        TRY(tdm__receiver_stage_bucket(fixture->receiver, weight_fixture_describe(fixture, 1, i)));
    }
    TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash));
    TRY(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update));
    assert_true(weight_fixture_serves_truth(fixture));
}

static void whole_tensors_outside_the_memory_that_was_sent_are_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    static const char sent[64];

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    assert_int_equal(tdm__receiver_stage_bucket_from(fixture->receiver,
                                                     weight_fixture_describe(fixture, 1, 0), sent,
                                                     sizeof(sent)),
                     TDM_E_PROTOCOL);
    TRY(tdm__receiver_stage_bucket(fixture->receiver, weight_fixture_describe(fixture, 1, 0)));
}

/* What an arriving bucket's function `accepted` has been called with. */
struct acceptance {
    uint32_t calls;    /* Number of calls. */
    uint32_t bucket;   /* Bucket of the last call. */
    tdm_status result; /* What the function returns. */
};

static tdm_status accept_bucket(void *arg, const struct tdm__tensor_handles_header *header)
{
    struct acceptance *acceptance = arg;

    acceptance->calls++;
    acceptance->bucket = header->bucket;
    return acceptance->result;
}

/* Stages a bucket that trainer rank 0 has described. */
static tdm_status stage_accepting(struct weight_fixture *fixture, struct tdm_bytes handles,
                                  struct acceptance *acceptance)
{
    const struct tdm__bucket_description description = {0, handles};
    const struct tdm__bucket_arrival arrival = {.descriptions = &description,
                                                .descriptions_count = 1,
                                                .accepted = accept_bucket,
                                                .arg = acceptance};

    return tdm__receiver_stage_arrival(fixture->receiver, &arrival);
}

/* What comes with a bucket is for an engine that has accepted the bucket. */
static void refused_bucket_is_not_accepted(void **state)
{
    struct weight_fixture *fixture = *state;
    struct acceptance acceptance = {.result = TDM_E_CANCELED};
    struct description description;

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    description = describe(fixture, 0);
    description.copy[description.bytes.size_bytes - 1] ^= 1;
    assert_int_not_equal(stage_accepting(fixture, description.bytes, &acceptance), TDM_OK);
    assert_told("what trainer rank 0 described: ");
    free(description.copy);
    assert_int_equal(acceptance.calls, 0);

    assert_int_equal(stage_accepting(fixture, weight_fixture_describe(fixture, 0, 0), &acceptance),
                     TDM_E_CANCELED);
    assert_int_equal(acceptance.calls, 1);
    assert_int_equal(acceptance.bucket, 0);
    assert_int_equal(fixture->engine.loads, 0);
    description = describe(fixture, 0); /* Of an update that will be too old. */
    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    acceptance.result = TDM_OK;
    TRY(stage_accepting(fixture, weight_fixture_describe(fixture, 0, 0), &acceptance));
    assert_int_equal(acceptance.calls, 2);
    assert_int_equal(stage_accepting(fixture, description.bytes, &acceptance), TDM_E_STATE);
    assert_int_equal(acceptance.calls, 2);
    free(description.copy);
}

static void paused_weights_are_read_from_their_host_copies(void **state)
{
    struct weight_fixture *fixture = *state;

    TRY(tdm__regions_pause(fixture->regions[0], "params"));
    weight_fixture_commit(fixture);
    assert_true(weight_fixture_serves_truth(fixture));
}

static void update_follows_update_at_the_same_address(void **state)
{
    struct weight_fixture *fixture = *state;
    void *address = tdm_region_address(fixture->weights);

    for (int i = 0; i < 5; i++) {
        weight_fixture_learn(fixture);
        assert_false(weight_fixture_serves_truth(fixture));
        weight_fixture_commit(fixture);
        assert_true(weight_fixture_serves_truth(fixture));
        assert_ptr_equal(tdm_region_address(fixture->weights), address);
    }
}

static void the_vote_is_the_bytes_alone(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__hash hashes[3];

    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            weight_fixture_learn(fixture);
        }
        weight_fixture_begin(fixture);
        weight_fixture_send_all(fixture);
        TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hashes[i]));
        TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hashes[i]));
        TRY(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update));
    }
    assert_true(tdm__hash_equal(&hashes[0], &hashes[1]));
    assert_false(tdm__hash_equal(&hashes[0], &hashes[2]));
}

/* ---- what is refused ----------------------------------------------------------------- */

/* Changes one byte of the bucket from another process, `offset` bytes into it. */
static void flip_a_byte(struct weight_fixture *fixture, const struct tdm__id *key, size_t offset)
{
    struct tdm__device *device = fixture->gpu->devices[1];
    struct tdm__block *block;
    unsigned char byte;
    void *address;

    TRY(device->ops->import(device, key, &block));
    TRY(device->ops->reserve(device, block->size_bytes, &address));
    TRY(device->ops->map(device, address, block, TDM__READ_WRITE));
    weight_fixture_get(fixture, 1, &byte, (char *)address + offset, 1);
    byte ^= 0x10;
    weight_fixture_put(fixture, 1, (char *)address + offset, &byte, 1);
    TRY(device->ops->unmap(device, address, block->size_bytes));
    device->ops->unreserve(device, address, block->size_bytes);
    device->ops->release(device, &block, 1);
}

/* Each tensor of the bucket has a checksum of its own. */
static void one_flipped_byte_is_refused_by_the_name_of_its_tensor(void **state)
{
    struct weight_fixture *fixture = *state;
    uint32_t tensors_count = 1;

    for (uint32_t tensor = 0; tensor < tensors_count; tensor++) {
        struct description description;
        size_t tensor_bytes = tdm_tensor_bytes(&fixture->infos[tensor]);
        size_t offset = test_random_below(&fixture->chance, (uint32_t)tensor_bytes);

        weight_fixture_begin(fixture);
        TRY(weight_fixture_fill(fixture, 0));
        description = describe(fixture, 0);
        tensors_count = description.header->tensors_count;
        offset +=
            description.tensors[tensor].offset * tdm_dtype_bytes(fixture->infos[tensor].dtype);
        flip_a_byte(fixture, &description.storage->key, offset);
        assert_int_equal(stage(fixture, &description), TDM_E_CHECKSUM);
        assert_told(fixture->infos[tensor].name);
        assert_int_equal(fixture->engine.loads, 0);
        TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    }
    assert_true(tensors_count > 1);
}

static void bytes_are_not_checked_without_verify(void **state)
{
    struct weight_fixture *fixture = weight_fixture_open("receiver", TDM__VERIFY_NONE);
    struct description description;

    (void)state;
    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    description = describe(fixture, 0);
    flip_a_byte(fixture, &description.storage->key, 0);
    TRY(stage(fixture, &description));
    weight_fixture_close(fixture);
}

static void another_place_is_refused_before_a_byte_is_touched(void **state)
{
    struct weight_fixture *fixture = *state;
    struct description description;

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    description = describe(fixture, 0);
    description.header->node.bytes[0] ^= 1;
    /* This key is unknown. */
    memset(&description.storage->key, 1, sizeof(description.storage->key));
    assert_int_equal(stage(fixture, &description), TDM_E_DEVICE);
    assert_told("node");
    description = describe(fixture, 0);
    description.storage->gpu.bytes[3] ^= 1;
    memset(&description.storage->key, 1, sizeof(description.storage->key));
    assert_int_equal(stage(fixture, &description), TDM_E_DEVICE);
    assert_told("GPU");
    assert_int_equal(fixture->engine.begins, 0); /* The engine did not even accept the epoch. */
}

static void tensors_that_are_not_the_manifests_are_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    struct description description;

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    description = describe(fixture, 0);
    description.tensors[0].tensor = WORLD_TENSORS;
    assert_int_equal(stage(fixture, &description), TDM_E_PROTOCOL);
    description = describe(fixture, 0);
    description.tensors[0].shape[0]--;
    assert_int_equal(stage(fixture, &description), TDM_E_PROTOCOL);
    assert_int_equal(fixture->engine.begins, 0);
}

/* The size of the block that the sender claims is not believed. */
static void allocation_that_its_block_does_not_have_is_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    struct description description;

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    description = describe(fixture, 0);
    description.storage->allocation_bytes += 1024 * MIB;
    description.storage->offset_bytes = 512 * MIB;
    assert_int_equal(stage(fixture, &description), TDM_E_PROTOCOL);
    assert_told("allocation");
    description = describe(fixture, 0);
    memset(&description.storage->key, 1, sizeof(description.storage->key));
    assert_int_equal(stage(fixture, &description), TDM_E_NOT_FOUND);
    assert_int_equal(fixture->engine.loads, 0);
}

static void every_truncated_description_is_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    struct description description;

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    description = describe(fixture, 0);
    for (size_t size = 0; size < description.bytes.size_bytes; size++) {
        /* The piece has its own allocation, so that reading past its end is detected. */
        void *piece = malloc(size + 1);

        assert_non_null(piece);
        memcpy(piece, description.copy, size);
        assert_int_equal(
            tdm__receiver_stage_bucket(fixture->receiver, (struct tdm_bytes){piece, size}),
            TDM_E_PROTOCOL);
        free(piece);
    }
    TRY(stage(fixture, &description));
}

static void lower_epoch_is_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__id first;

    weight_fixture_begin(fixture);
    TRY(weight_fixture_send(fixture, 0));
    first = fixture->update;
    weight_fixture_begin(fixture);
    TRY(weight_fixture_send(fixture, 0));
    fixture->epoch--;
    assert_int_equal(weight_fixture_send(fixture, 1), TDM_E_STATE);
    fixture->epoch++;
    fixture->update = first; /* The description has the new epoch with the old update ID. */
    assert_int_equal(weight_fixture_send(fixture, 1), TDM_E_STATE);
    assert_int_equal(fixture->engine.begins, 2);
    assert_int_equal(fixture->engine.loads, 2);
}

static void bucket_after_the_vote_is_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__hash hash;

    weight_fixture_begin(fixture);
    weight_fixture_send_all(fixture);
    TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash));
    assert_int_equal(weight_fixture_send(fixture, 0), TDM_E_STATE);
    assert_told("voted for");
    TRY(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update));
    TRY(tdm__receiver_resume_shadow(fixture->receiver, 0));
    assert_int_equal(weight_fixture_send(fixture, 0), TDM_E_STATE);
    assert_true(weight_fixture_serves_truth(fixture));
}

static void bucket_before_the_shadow_has_memory_is_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    size_t before;

    weight_fixture_begin(fixture);
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    before = host_gpu_used_bytes(fixture->gpu);
    assert_int_equal(weight_fixture_send(fixture, 0), TDM_E_STATE);
    weight_fixture_pause_buckets(fixture); /* Nothing of the buckets was kept. */
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), before - WORLD_RANKS * 2 * MIB);
}

static void no_vote_without_every_tensor(void **state)
{
    struct weight_fixture *fixture = *state;
    uint32_t last = weight_fixture_buckets_count(fixture) - 1;
    struct description description;
    struct tdm__hash hash;
    char told[256];

    weight_fixture_begin(fixture);
    assert_int_equal(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash),
                     TDM_E_STATE);
    for (uint32_t i = 0; i < last; i++) {
        TRY(weight_fixture_send(fixture, i));
    }
    assert_int_equal(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash),
                     TDM_E_STATE);
    assert_int_equal(fixture->engine.completes, 0);
    (void)snprintf(told, sizeof(told), "%s", tdm_error_detail());
    TRY(weight_fixture_fill(fixture, last));
    description = describe(fixture, last);
    assert_non_null(strstr(told, fixture->infos[description.tensors[0].tensor].name));
    TRY(stage(fixture, &description));
    TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash));
}

/* A bucket that arrives twice, the second time incompletely, does not count as staged. */
static void no_vote_for_a_tensor_that_was_spoiled_later(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__hash hash;

    weight_fixture_begin(fixture);
    weight_fixture_send_all(fixture);
    fixture->engine.load_fails = TDM_E_NOMEM;
    assert_int_equal(weight_fixture_send(fixture, 0), TDM_E_NOMEM);
    assert_int_equal(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash),
                     TDM_E_STATE);
    assert_told("embed");
    fixture->engine.load_fails = TDM_OK;
    TRY(weight_fixture_send(fixture, 0));
    TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash));
}

/* ---- flip and drop ------------------------------------------------------------------- */

static void no_flip_without_a_vote(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__id none = {.bytes = {0}};
    struct tdm__hash hash;

    assert_int_equal(tdm__receiver_flip_shadow(fixture->receiver, &none), TDM_E_STATE);
    weight_fixture_begin(fixture);
    weight_fixture_send_all(fixture);
    assert_int_equal(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update), TDM_E_STATE);
    TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash));
    assert_int_equal(tdm__receiver_flip_shadow(fixture->receiver, &none), TDM_E_STATE);
    assert_false(weight_fixture_serves_truth(fixture));
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    assert_int_equal(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update), TDM_E_STATE);
    assert_false(weight_fixture_serves_truth(fixture));
}

static void flip_again_changes_nothing(void **state)
{
    struct weight_fixture *fixture = *state;

    weight_fixture_commit(fixture);
    TRY(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update));
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    TRY(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update));
    assert_true(weight_fixture_serves_truth(fixture));
}

static void drop_keeps_what_is_served(void **state)
{
    struct weight_fixture *fixture = *state;
    unsigned char *served = malloc(2 * MIB);
    unsigned char *kept = malloc(2 * MIB);
    struct tdm__hash hash;

    assert_non_null(served);
    assert_non_null(kept);
    weight_fixture_commit(fixture);
    weight_fixture_get(fixture, 1, served, tdm_region_address(fixture->weights), 2 * MIB);
    weight_fixture_learn(fixture);
    weight_fixture_begin(fixture);
    weight_fixture_send_all(fixture);
    TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash));
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    weight_fixture_get(fixture, 1, kept, tdm_region_address(fixture->weights), 2 * MIB);
    assert_memory_equal(served, kept, 2 * MIB);
    free(served);
    free(kept);
    weight_fixture_commit(fixture); /* The next update works as usual. */
    assert_true(weight_fixture_serves_truth(fixture));
}

/* Flip and drop both release the shadow and the imports, so a paused bucket is really freed. */
static void nothing_is_held_after_flip_and_after_drop(void **state)
{
    struct weight_fixture *fixture = *state;
    size_t idle = host_gpu_used_bytes(fixture->gpu);

    weight_fixture_commit(fixture);
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), idle);
    weight_fixture_begin(fixture);
    TRY(weight_fixture_send(fixture, 0));
    weight_fixture_pause_buckets(fixture);
    /* An import keeps the memory allocated. */
    assert_true(host_gpu_used_bytes(fixture->gpu) > idle + 2 * MIB);
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), idle);
}

/* The source has aborted an update and begun another, so the imports of the first are released. */
static void higher_epoch_lets_the_older_imports_go(void **state)
{
    struct weight_fixture *fixture = *state;
    size_t begun;

    weight_fixture_begin(fixture);
    begun = host_gpu_used_bytes(fixture->gpu);
    for (int i = 0; i < 40; i++) { /* These are more updates than there may be imports. */
        TRY(weight_fixture_send(fixture, 0));
        weight_fixture_pause_buckets(fixture);
        weight_fixture_begin(fixture);
    }
    TRY(weight_fixture_send(fixture, 0));
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), begun);
}

/* ---- from a file --------------------------------------------------------------------- */

static void write_model(struct weight_fixture *fixture, uint32_t count, char path[64])
{
    struct tdm_tensor_view views[WORLD_TENSORS];

    (void)snprintf(path, 64, "/tmp/tandem-receiver-%ld.safetensors", (long)getpid());
    for (uint32_t i = 0; i < count; i++) {
        views[i] = (struct tdm_tensor_view){.info = fixture->infos[i],
                                            .data = fixture->truth + fixture->offsets[i]};
        if (fixture->infos[i].dims_count == 2) {
            views[i].stride[0] = fixture->infos[i].shape[1];
            views[i].stride[1] = 1;
        }
    }
    TRY(tdm_safetensors_write(path, views, count));
}

static void file_is_as_good_as_buckets(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__hash from_file;
    struct tdm__hash from_buckets;
    char path[64];

    write_model(fixture, WORLD_TENSORS, path);
    weight_fixture_begin(fixture);
    TRY(tdm__receiver_stage_file(fixture->receiver, &fixture->update, fixture->epoch, path));
    TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &from_file));
    assert_int_equal(
        tdm__receiver_stage_file(fixture->receiver, &fixture->update, fixture->epoch, path),
        TDM_E_STATE);
    TRY(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update));
    assert_true(weight_fixture_serves_truth(fixture));
    weight_fixture_begin(fixture);
    weight_fixture_send_all(fixture);
    TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &from_buckets));
    assert_true(tdm__hash_equal(&from_file, &from_buckets));
    (void)unlink(path);
}

static void file_of_another_model_is_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__hash hash;
    char path[64];

    write_model(fixture, WORLD_TENSORS - 1, path);
    weight_fixture_begin(fixture);
    assert_int_equal(
        tdm__receiver_stage_file(fixture->receiver, &fixture->update, fixture->epoch, path),
        TDM_E_NOT_FOUND);
    assert_told("head");
    fixture->infos[0].shape[0]--;
    write_model(fixture, WORLD_TENSORS, path);
    fixture->infos[0].shape[0]++;
    assert_int_equal(
        tdm__receiver_stage_file(fixture->receiver, &fixture->update, fixture->epoch, path),
        TDM_E_PROTOCOL);
    assert_told("embed");
    (void)unlink(path);
    assert_int_equal(
        tdm__receiver_stage_file(fixture->receiver, &fixture->update, fixture->epoch, path),
        TDM_E_NOT_FOUND);
    assert_int_equal(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash),
                     TDM_E_STATE);
    assert_int_equal(fixture->engine.loads, 0);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* ---- from a peer --------------------------------------------------------------------- */

static void begin_nothing(void *state)
{
    (void)state;
}

/* Another engine rank of the same layout, which uses memory like another process. */
struct joiner {
    tdm_region *weights;
    struct tdm__receiver *receiver;
};

static struct joiner joiner_open(struct weight_fixture *fixture, size_t size_bytes)
{
    static const struct tdm_engine_ops ops = {.size_bytes = sizeof(ops), .begin = begin_nothing};
    const struct tdm_region_options weights = {
        .tag = "weights", .size_bytes = size_bytes, .policy = TDM_REGION_DROP};
    struct tdm__receiver_options options = {.manifest = fixture->manifest,
                                            .ops = &ops,
                                            .regions = fixture->regions[0],
                                            .location = fixture->location,
                                            .verify = TDM__VERIFY_FULL};
    struct joiner joiner;

    TRY(tdm__region_create(fixture->regions[0], &weights, &joiner.weights));
    options.weights = joiner.weights;
    TRY(tdm__receiver_create(&options, &joiner.receiver));
    return joiner;
}

static void joiner_close(struct joiner *joiner)
{
    tdm__receiver_destroy(joiner->receiver);
    tdm_region_destroy(joiner->weights);
}

static void weights_of_a_peer_are_copied_completely(void **state)
{
    struct weight_fixture *fixture = *state;
    struct joiner joiner = joiner_open(fixture, 2 * MIB);
    unsigned char *copied = malloc(2 * MIB);
    unsigned char *shown = malloc(2 * MIB);
    struct tdm__weight_blocks blocks;

    assert_true(copied != NULL && shown != NULL);
    weight_fixture_commit(fixture);
    TRY(tdm__receiver_export_weights(fixture->receiver, &blocks));
    assert_true(blocks.count > 0);
    TRY(tdm__receiver_pull_weights(joiner.receiver, &blocks));
    weight_fixture_get(fixture, 0, copied, tdm_region_address(joiner.weights), 2 * MIB);
    weight_fixture_get(fixture, 1, shown, tdm_region_address(fixture->weights), 2 * MIB);
    assert_memory_equal(copied, fixture->truth, fixture->manifest->size_bytes);
    assert_memory_equal(copied, shown, 2 * MIB);
    free(copied);
    free(shown);
    assert_true(weight_fixture_serves_truth(fixture));
    /* The memory is really freed, because no process maps it. */
    TRY(tdm_region_pause(fixture->weights));
    TRY(tdm_region_resume(fixture->weights, 0));
    joiner_close(&joiner);
}

static void weights_that_changed_since_the_export_are_refused(void **state)
{
    struct weight_fixture *fixture = *state;
    struct joiner joiner = joiner_open(fixture, 2 * MIB);
    struct tdm__weight_blocks blocks;
    unsigned char *last = (unsigned char *)tdm_region_address(fixture->weights) + 2 * MIB - 1;
    unsigned char byte;

    weight_fixture_commit(fixture);
    TRY(tdm__receiver_export_weights(fixture->receiver, &blocks));
    weight_fixture_get(fixture, 1, &byte, last, 1);
    byte ^= 1;
    weight_fixture_put(fixture, 1, last, &byte, 1);
    assert_int_equal(tdm__receiver_pull_weights(joiner.receiver, &blocks), TDM_E_CHECKSUM);
    byte ^= 1;
    weight_fixture_put(fixture, 1, last, &byte, 1);
    blocks.keys[0].bytes[3] ^= 1;
    assert_int_equal(tdm__receiver_pull_weights(joiner.receiver, &blocks), TDM_E_NOT_FOUND);
    blocks.keys[0].bytes[3] ^= 1;
    TRY(tdm__receiver_pull_weights(joiner.receiver, &blocks));
    blocks.count++;
    assert_int_equal(tdm__receiver_pull_weights(joiner.receiver, &blocks), TDM_E_PROTOCOL);
    joiner_close(&joiner);
    joiner = joiner_open(fixture, 4 * MIB);
    blocks.count--;
    assert_int_equal(tdm__receiver_pull_weights(joiner.receiver, &blocks), TDM_E_PROTOCOL);
    joiner_close(&joiner);
}

static int run_here(const char *device)
{
    const struct CMUnitTest tests[] = {
        EACH(every_tensor_arrives_byte_for_byte),
        EACH(every_rank_of_the_trainers_shows_the_same_bucket),
        EACH(whole_tensors_outside_the_memory_that_was_sent_are_refused),
        EACH(refused_bucket_is_not_accepted),
        EACH(paused_weights_are_read_from_their_host_copies),
        EACH(update_follows_update_at_the_same_address),
        EACH(the_vote_is_the_bytes_alone),
        EACH(one_flipped_byte_is_refused_by_the_name_of_its_tensor),
        cmocka_unit_test(bytes_are_not_checked_without_verify),
        EACH(another_place_is_refused_before_a_byte_is_touched),
        EACH(tensors_that_are_not_the_manifests_are_refused),
        EACH(allocation_that_its_block_does_not_have_is_refused),
        EACH(every_truncated_description_is_refused),
        EACH(lower_epoch_is_refused),
        EACH(bucket_after_the_vote_is_refused),
        EACH(bucket_before_the_shadow_has_memory_is_refused),
        EACH(no_vote_without_every_tensor),
        EACH(no_vote_for_a_tensor_that_was_spoiled_later),
        EACH(no_flip_without_a_vote),
        EACH(flip_again_changes_nothing),
        EACH(drop_keeps_what_is_served),
        EACH(nothing_is_held_after_flip_and_after_drop),
        EACH(higher_epoch_lets_the_older_imports_go),
        EACH(file_is_as_good_as_buckets),
        EACH(file_of_another_model_is_refused),
        EACH(weights_of_a_peer_are_copied_completely),
        EACH(weights_that_changed_since_the_export_are_refused),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void)
{
    return weight_fixture_everywhere(run_here);
}
