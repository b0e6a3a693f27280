/* gather_test.c - one gather of padded parts, and none if there is nothing to gather. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/gather.h"

#include "colocate/comm/collective.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A communicator of two ranks. This process is rank 1; what rank 0 gives is in `other`. */
struct scripted {
    struct tdm__comm base;
    struct tdm_bytes other; /* Bytes that rank 0 gives to the next gather. */
    uint32_t gathers;       /* Number of gathers so far. */
    size_t part_bytes;      /* Bytes that each rank gave to the last gather. */
};

static tdm_status all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                             void *out)
{
    uint64_t other = ((struct scripted *)comm)->other.size_bytes;

    assert_int_equal(bytes_per_rank, sizeof(other));
    memcpy(out, &other, sizeof(other));
    memcpy((char *)out + sizeof(other), in, sizeof(other));
    return TDM_OK;
}

static tdm_status gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank, void *out,
                         uint32_t root)
{
    struct scripted *scripted = (struct scripted *)comm;

    assert_int_equal(root, 1);
    memset(out, 0, bytes_per_rank);
    if (scripted->other.size_bytes > 0) {
        memcpy(out, scripted->other.data, scripted->other.size_bytes);
    }
    memcpy((char *)out + bytes_per_rank, in, bytes_per_rank);
    scripted->gathers++;
    scripted->part_bytes = bytes_per_rank;
    return TDM_OK;
}

static void destroy(struct tdm__comm *comm)
{
    (void)comm;
}

static const struct tdm__comm_ops ops = {
    .name = "scripted", .destroy = destroy, .all_gather = all_gather, .gather = gather};

static void parts_of_other_sizes_arrive_in_one_gather(void **state)
{
    struct scripted scripted = {.base = {.ops = &ops, .rank = 1, .ranks_count = 2}};
    struct tdm__gathered gathered = {.sizes = NULL};
    tdm_collective_group *group;

    (void)state;
    assert_int_equal(tdm__collective_wrap(&scripted.base, &group), TDM_OK);
    assert_int_equal(
        tdm__collective_gather_unequal(group, (struct tdm_bytes){NULL, 0}, 1, &gathered), TDM_OK);
    assert_int_equal(scripted.gathers, 0);
    assert_int_equal(tdm__gathered_part(&gathered, 1).size_bytes, 0);

    scripted.other = (struct tdm_bytes){"longer", 6};
    assert_int_equal(
        tdm__collective_gather_unequal(group, (struct tdm_bytes){"own", 3}, 1, &gathered), TDM_OK);
    assert_int_equal(scripted.gathers, 1);
    assert_int_equal(scripted.part_bytes, 6);
    assert_int_equal(tdm__gathered_part(&gathered, 0).size_bytes, 6);
    assert_memory_equal(tdm__gathered_part(&gathered, 0).data, "longer", 6);
    assert_int_equal(tdm__gathered_part(&gathered, 1).size_bytes, 3);
    assert_memory_equal(tdm__gathered_part(&gathered, 1).data, "own", 3);

    scripted.other = (struct tdm_bytes){NULL, 0}; /* The memory is used again. */
    assert_int_equal(
        tdm__collective_gather_unequal(group, (struct tdm_bytes){"x", 1}, 1, &gathered), TDM_OK);
    assert_int_equal(tdm__gathered_part(&gathered, 0).size_bytes, 0);
    assert_memory_equal(tdm__gathered_part(&gathered, 1).data, "x", 1);
    tdm__gathered_fini(&gathered);
    tdm_collective_leave(group);
}

static void vast_part_is_refused_with_its_rank(void **state)
{
    struct scripted scripted = {.base = {.ops = &ops, .rank = 1, .ranks_count = 2},
                                .other = {NULL, ((size_t)64 << 20) + 1}};
    struct tdm__gathered gathered = {.sizes = NULL};
    tdm_collective_group *group;

    (void)state;
    assert_int_equal(tdm__collective_wrap(&scripted.base, &group), TDM_OK);
    assert_int_equal(
        tdm__collective_gather_unequal(group, (struct tdm_bytes){"own", 3}, 1, &gathered),
        TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "rank 0 gives 67108865 bytes"));
    assert_int_equal(scripted.gathers, 0);
    tdm__gathered_fini(&gathered);
    tdm_collective_leave(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_other_sizes_arrive_in_one_gather),
        cmocka_unit_test(vast_part_is_refused_with_its_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
