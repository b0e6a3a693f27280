/* collective.c - implements tandem/collective.h over the communicator of a group. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The public functions check their arguments and pass the call to the group's communicator: host,
 * tcp or nccl. A group owns its communicator, and counts the operations. Every rank of a group
 * calls the same operation, so an operation with 0 bytes still synchronises all ranks. One thread
 * uses a group. tandem/collective.h specifies the functions. */

#include "colocate/comm/collective.h"

#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>

/* A group that this process has joined; the caller of join or wrap owns it. */
struct tdm_collective_group {
    struct tdm__comm *comm; /* Owned. */
    uint64_t calls_count;   /* Number of operations that this process has begun. */
    bool is_paused;         /* True from a pause to a resume that have both succeeded. */
};

tdm_status tdm__collective_wrap(struct tdm__comm *comm, tdm_collective_group **group_out)
{
    tdm_collective_group *group = calloc(1, sizeof(*group));

    if (group == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group");
    }
    group->comm = comm;
    *group_out = group;
    return TDM_OK;
}

struct tdm__comm *tdm__collective_comm(tdm_collective_group *group)
{
    return group->comm;
}

uint64_t tdm__collective_calls_count(const tdm_collective_group *group)
{
    return group->calls_count;
}

void tdm_collective_leave(tdm_collective_group *group)
{
    if (group != NULL) {
        group->comm->ops->destroy(group->comm);
        free(group);
    }
}

uint32_t tdm_collective_rank(const tdm_collective_group *group)
{
    TDM__REQUIRE_OR(group, 0);

    return group->comm->rank;
}

uint32_t tdm_collective_ranks_count(const tdm_collective_group *group)
{
    TDM__REQUIRE_OR(group, 0);

    return group->comm->ranks_count;
}

/* Fails with TDM_E_LIMIT if `count` elements for every rank overflow a size in bytes. */
static tdm_status check_elements_count(const tdm_collective_group *group, size_t count,
                                       size_t unit_bytes)
{
    if (count > SIZE_MAX / 2 / unit_bytes / group->comm->ranks_count) {
        return tdm__fail(TDM_E_LIMIT, "%zu elements of %zu bytes for each of %u ranks", count,
                         unit_bytes, group->comm->ranks_count);
    }
    return TDM_OK;
}

/* Fails with TDM_E_INVAL unless `root` is a rank of the group. */
static tdm_status check_root(const tdm_collective_group *group, uint32_t root)
{
    if (root >= group->comm->ranks_count) {
        return tdm__fail(TDM_E_INVAL, "root %u of %u ranks", root, group->comm->ranks_count);
    }
    return TDM_OK;
}

/* Counts an operation that begins. Fails with TDM_E_STATE in a group that is paused. */
static tdm_status begin(tdm_collective_group *group)
{
    if (group->is_paused) {
        return tdm__fail(TDM_E_STATE,
                         "rank %u of %u: the group is paused: call tdm_collective_resume() first",
                         group->comm->rank, group->comm->ranks_count);
    }
    group->calls_count++;
    return TDM_OK;
}

tdm_status tdm_collective_barrier(tdm_collective_group *group)
{
    TDM__REQUIRE(group);

    TDM_TRY(begin(group));
    return tdm__comm_barrier(group->comm);
}

/* In all functions below a call with zero bytes still synchronises all ranks. */

/* Checks the arguments of a reduction over elements of one type and runs it. */
static tdm_status all_reduce(tdm_collective_group *group, void *data, size_t count,
                             enum tdm__comm_dtype element, enum tdm_reduction reduction)
{
    if (reduction != TDM_SUM && reduction != TDM_MAX) {
        return tdm__fail(TDM_E_INVAL, "unknown reduction %d: expected TDM_SUM or TDM_MAX",
                         (int)reduction);
    }
    TDM_TRY(check_elements_count(group, count, sizeof(double)));
    if (count == 0) {
        return tdm_collective_barrier(group);
    }
    TDM_TRY(begin(group));
    return group->comm->ops->all_reduce(group->comm, data, count, element, reduction);
}

tdm_status tdm_collective_all_reduce(tdm_collective_group *group, float *data, size_t count,
                                     enum tdm_reduction reduction)
{
    TDM__REQUIRE(group);
    TDM__REQUIRE_ARRAY(data, count);

    return all_reduce(group, data, count, TDM__COMM_FLOAT32, reduction);
}

tdm_status tdm_collective_all_reduce_double(tdm_collective_group *group, double *data, size_t count,
                                            enum tdm_reduction reduction)
{
    TDM__REQUIRE(group);
    TDM__REQUIRE_ARRAY(data, count);

    return all_reduce(group, data, count, TDM__COMM_FLOAT64, reduction);
}

tdm_status tdm_collective_all_gather(tdm_collective_group *group, const void *in,
                                     size_t bytes_per_rank, void *out)
{
    TDM__REQUIRE(group);
    TDM__REQUIRE_ARRAY(in, bytes_per_rank);
    TDM__REQUIRE_ARRAY(out, bytes_per_rank);

    TDM_TRY(check_elements_count(group, bytes_per_rank, 1));
    if (bytes_per_rank == 0) {
        return tdm_collective_barrier(group);
    }
    TDM_TRY(begin(group));
    return group->comm->ops->all_gather(group->comm, in, bytes_per_rank, out);
}

tdm_status tdm_collective_reduce_scatter(tdm_collective_group *group, const float *in, size_t count,
                                         float *out)
{
    TDM__REQUIRE(group);
    TDM__REQUIRE_ARRAY(in, count);
    TDM__REQUIRE_ARRAY(out, count);

    TDM_TRY(check_elements_count(group, count, sizeof(float)));
    if (count == 0) {
        return tdm_collective_barrier(group);
    }
    TDM_TRY(begin(group));
    return group->comm->ops->reduce_scatter(group->comm, in, count, out);
}

tdm_status tdm_collective_broadcast(tdm_collective_group *group, void *data, size_t size_bytes,
                                    uint32_t root)
{
    TDM__REQUIRE(group);
    TDM__REQUIRE_ARRAY(data, size_bytes);

    TDM_TRY(check_root(group, root));
    if (size_bytes == 0) {
        return tdm_collective_barrier(group);
    }
    TDM_TRY(begin(group));
    return group->comm->ops->broadcast(group->comm, data, size_bytes, root);
}

tdm_status tdm_collective_gather(tdm_collective_group *group, const void *in, size_t bytes_per_rank,
                                 void *out, uint32_t root)
{
    TDM__REQUIRE(group);
    TDM__REQUIRE_ARRAY(in, bytes_per_rank);
    TDM__REQUIRE_ARRAY(out, root == group->comm->rank ? bytes_per_rank : 0);

    TDM_TRY(check_root(group, root));
    TDM_TRY(check_elements_count(group, bytes_per_rank, 1));
    if (bytes_per_rank == 0) {
        return tdm_collective_barrier(group);
    }
    TDM_TRY(begin(group));
    return group->comm->ops->gather(group->comm, in, bytes_per_rank, out, root);
}

tdm_status tdm__collective_exchange(tdm_collective_group *group,
                                    const struct tdm__comm_exchange *exchange)
{
    if (exchange->part_bytes_max == 0) {
        return tdm_collective_barrier(group);
    }
    TDM_TRY(begin(group));
    return group->comm->ops->exchange(group->comm, exchange);
}

/* Calls a function that pauses or resumes the communicator on all ranks. A communicator without
 * memory on a GPU has none, so that the ranks only synchronise. */
static tdm_status change_memory(tdm_collective_group *group,
                                tdm_status (*change)(struct tdm__comm *),
                                enum tdm__collective_op_kind kind)
{
    const struct tdm__collective_op op = {.kind = kind};

    return change != NULL ? change(group->comm) : group->comm->ops->synchronize(group->comm, &op);
}

tdm_status tdm_collective_pause(tdm_collective_group *group)
{
    TDM__REQUIRE(group);

    TDM_TRY(begin(group));
    TDM_TRY(change_memory(group, group->comm->ops->pause, TDM__COLLECTIVE_PAUSE));
    group->is_paused = true;
    return TDM_OK;
}

tdm_status tdm_collective_resume(tdm_collective_group *group)
{
    TDM__REQUIRE(group);

    if (!group->is_paused) {
        return tdm__fail(TDM_E_STATE, "rank %u of %u: the group is not paused", group->comm->rank,
                         group->comm->ranks_count);
    }
    TDM_TRY(change_memory(group, group->comm->ops->resume, TDM__COLLECTIVE_RESUME));
    group->is_paused = false;
    return TDM_OK;
}
