/* whole_tensors_test.c - trainer ranks fill buckets with whole tensors by a plan, and describe
 * them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/whole_tensors.h"

#include "colocate/weights/tensor_handles.h"
#include "tests/support/weight_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

static int set_up(void **state)
{
    *state = weight_fixture_open("whole_tensors", TDM__VERIFY_FULL);
    return 0;
}

static int tear_down(void **state)
{
    weight_fixture_close(*state);
    return 0;
}

static struct tdm__tensor_handles decode(struct weight_fixture *fixture, uint32_t rank,
                                         uint32_t bucket)
{
    struct tdm__tensor_handles handles;

    TRY(tdm__tensor_handles_decode(weight_fixture_describe(fixture, rank, bucket), &handles));
    return handles;
}

/* Checks that the checksums are those of the bytes that the engine will read, which are the
 * trainers' bytes. */
static void assert_sums_are_of_the_truth(struct weight_fixture *fixture,
                                         const struct tdm__tensor_handles *handles)
{
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        uint32_t tensor = handles->tensors[i].tensor;

        assert_true(handles->tensors[i].checksum ==
                    tdm__checksum_tensor(fixture->truth + fixture->offsets[tensor],
                                         tdm_tensor_bytes(&fixture->infos[tensor])));
    }
}

static void the_buckets_describe_every_tensor_once_and_in_order(void **state)
{
    struct weight_fixture *fixture = *state;
    const struct tdm__bucket_plan *plan = tdm__whole_tensors_buckets(fixture->whole_tensors[0]);
    uint32_t count = weight_fixture_buckets_count(fixture);
    uint32_t next = 0;

    weight_fixture_begin(fixture);
    for (uint32_t bucket = 0; bucket < count; bucket++) {
        struct tdm__tensor_handles handles;
        uint64_t end = 0;

        TRY(weight_fixture_fill(fixture, bucket));
        handles = decode(fixture, 0, bucket);
        assert_int_equal(handles.header.bucket, bucket);
        assert_int_equal(handles.header.buckets_count, count);
        assert_int_equal(handles.header.epoch, fixture->epoch);
        assert_true(tdm__id_equal(&handles.header.update, &fixture->update));
        TRY(tdm__tensor_handles_check_location(&handles, &fixture->location.node,
                                               &fixture->location.gpu));
        TRY(tdm__tensor_handles_check_manifest(&handles, fixture->manifest));
        assert_sums_are_of_the_truth(fixture, &handles);
        for (uint32_t i = 0; i < handles.header.tensors_count; i++) {
            const struct tdm_tensor_info *info = &fixture->infos[next];

            assert_int_equal(handles.tensors[i].tensor, next++);
            end = handles.tensors[i].offset * tdm_dtype_bytes(info->dtype) + tdm_tensor_bytes(info);
        }
        assert_int_equal(plan->buckets[bucket].size_bytes, end);
        tdm__tensor_handles_fini(&handles);
    }
    assert_int_equal(next, WORLD_TENSORS);
}

static void ranks_describe_blocks_of_their_own_with_the_same_sums(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__tensor_handles handles[WORLD_RANKS];

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    handles[0] = decode(fixture, 0, 0);
    handles[1] = decode(fixture, 1, 0);
    assert_false(tdm__id_equal(&handles[0].storages[0].key, &handles[1].storages[0].key));
    assert_int_equal(weight_fixture_describe(fixture, 0, 0).size_bytes,
                     weight_fixture_describe(fixture, 1, 0).size_bytes);
    assert_sums_are_of_the_truth(fixture, &handles[1]);
    tdm__tensor_handles_fini(&handles[0]);
    tdm__tensor_handles_fini(&handles[1]);
}

static void each_export_has_a_number_of_its_own(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__tensor_handles first;
    struct tdm__tensor_handles second;

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    first = decode(fixture, 0, 0);
    second = decode(fixture, 0, 0);
    assert_true(first.storages[0].reference < second.storages[0].reference);
    tdm__tensor_handles_fini(&first);
    tdm__tensor_handles_fini(&second);
}

static void fill_shows_the_weights_as_they_are_then(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__tensor_handles handles;

    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    weight_fixture_learn(fixture);
    TRY(weight_fixture_fill(fixture, 0));
    handles = decode(fixture, 0, 0);
    assert_sums_are_of_the_truth(fixture, &handles);
    tdm__tensor_handles_fini(&handles);
    TRY(tdm__regions_pause(fixture->regions[0], "params"));
    TRY(weight_fixture_fill(fixture, 1)); /* The bucket is filled from the host copies. */
    handles = decode(fixture, 0, 1);
    assert_sums_are_of_the_truth(fixture, &handles);
    tdm__tensor_handles_fini(&handles);
}

static void bucket_without_memory_is_not_described(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm_bytes bytes;

    assert_int_equal(weight_fixture_try_describe(fixture, 0, 0, &bytes), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "describing bucket 0 failed: it has no memory yet"));
    weight_fixture_begin(fixture);
    TRY(weight_fixture_fill(fixture, 0));
}

static void only_a_resumed_bucket_costs_memory(void **state)
{
    struct weight_fixture *fixture = *state;
    size_t idle = host_gpu_used_bytes(fixture->gpu);

    for (int i = 0; i < 2; i++) {
        TRY(tdm__weight_writer_resume_bucket(fixture->writers[0], 0));
        TRY(tdm__weight_writer_resume_bucket(fixture->writers[0], 0));
        assert_int_equal(host_gpu_used_bytes(fixture->gpu), idle + 2 * MIB);
        TRY(tdm__weight_writer_pause_bucket(fixture->writers[0]));
        TRY(tdm__weight_writer_pause_bucket(fixture->writers[0]));
        assert_int_equal(host_gpu_used_bytes(fixture->gpu), idle);
    }
}

/* One tensor is larger than a bucket. */
static void each_chunk_of_the_plan_is_a_bucket_of_whole_tensors(void **state)
{
    struct weight_fixture *fixture = *state;
    const struct tdm__bucket_plan *buckets = tdm__whole_tensors_buckets(fixture->whole_tensors[0]);

    assert_int_equal(fixture->plan->chunks_count, buckets->buckets_count);
    assert_int_equal(fixture->plan->chunk_bytes_max, buckets->bucket_bytes_max);
    assert_int_equal(fixture->plan->to_count, WORLD_RANKS);
    assert_int_equal(fixture->plan->cost.written_bytes,
                     WORLD_RANKS * fixture->manifest->size_bytes);
    assert_true(tdm_region_size(tdm__weight_writer_bucket(fixture->writers[0])) >=
                buckets->bucket_bytes_max);
    for (uint32_t bucket = 0; bucket < buckets->buckets_count; bucket++) {
        assert_int_equal(tdm__weight_writer_chunk_offset(fixture->writers[0], bucket, 0), 0);
    }
}

static void views_are_of_the_tensors_in_the_bucket(void **state)
{
    struct weight_fixture *fixture = *state;
    const tdm_region *region = tdm__weight_writer_bucket(fixture->writers[1]);
    uint32_t tensor = 0;

    weight_fixture_begin(fixture);
    for (uint32_t bucket = 0; bucket < weight_fixture_buckets_count(fixture); bucket++) {
        const struct tdm_tensor_view *views;
        uint32_t count;

        TRY(weight_fixture_fill(fixture, bucket));
        views = tdm__whole_tensors_views(fixture->whole_tensors[1], region, bucket, &count);
        for (uint32_t i = 0; i < count; i++, tensor++) {
            static unsigned char bytes[WORLD_MODEL_BYTES_MAX];
            size_t size_bytes = tdm_tensor_bytes(&fixture->infos[tensor]);

            assert_string_equal(views[i].info.name, fixture->infos[tensor].name);
            weight_fixture_get(fixture, 0, bytes, views[i].data, size_bytes);
            assert_memory_equal(bytes, fixture->truth + fixture->offsets[tensor], size_bytes);
        }
    }
    assert_int_equal(tensor, WORLD_TENSORS);
}

/* Ranks whose slices leave a gap would send undefined bytes. */
static void slices_with_a_gap_make_no_plan(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__transfer_plan *plan;

    fixture->slices[1][0].extent[0]--;
    assert_int_equal(tdm__whole_tensors_compile_plan(fixture->whole_tensors[0], fixture->layouts,
                                                     WORLD_RANKS, NULL, NULL, 0, &plan),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "embed"));
    fixture->slices[1][0].extent[0]++;
    TRY(tdm__whole_tensors_compile_plan(fixture->whole_tensors[0], fixture->layouts, WORLD_RANKS,
                                        NULL, NULL, 0, &plan));
    tdm__transfer_plan_destroy(plan);
}

static void buckets_have_a_size(void **state)
{
    struct weight_fixture *fixture = *state;
    struct tdm__whole_tensors *whole_tensors;

    assert_int_equal(tdm__whole_tensors_create(fixture->manifest, 0, WORLD_RANKS, &whole_tensors),
                     TDM_E_INVAL);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static int run_here(const char *device)
{
    const struct CMUnitTest tests[] = {
        EACH(the_buckets_describe_every_tensor_once_and_in_order),
        EACH(ranks_describe_blocks_of_their_own_with_the_same_sums),
        EACH(each_export_has_a_number_of_its_own),
        EACH(fill_shows_the_weights_as_they_are_then),
        EACH(bucket_without_memory_is_not_described),
        EACH(only_a_resumed_bucket_costs_memory),
        EACH(each_chunk_of_the_plan_is_a_bucket_of_whole_tensors),
        EACH(views_are_of_the_tensors_in_the_bucket),
        EACH(slices_with_a_gap_make_no_plan),
        EACH(buckets_have_a_size),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void)
{
    return weight_fixture_everywhere(run_here);
}
