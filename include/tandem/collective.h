/* collective.h - collective operations of a fixed set of actors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_COLLECTIVE_H
#define TANDEM_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A process's membership in a group.  Every member makes the same calls in the same order and
 * with the same sizes; a call blocks until all members have made it.  One thread may use it at
 * a time.
 *
 * If a member dies, or makes no call before the deadline, the calls of all other members fail:
 * TDM_E_ABORTED names the rank that died or whose connection broke, TDM_E_TIMEOUT the ranks that
 * did not come.  Every later call fails too, and the members must join a new group.  Results do
 * not depend on timing, because sums are taken in the order of ranks. */
typedef struct tdm_collective_group tdm_collective_group;

enum {
    /* Largest number of members of a group, and so of the GPUs of a job (job.h).  Members on
     * several nodes have a connection to each other and, while they join, some have a second one:
     * the usual limit of 1,024 descriptors of a process allows that many. */
    TDM_COLLECTIVE_RANKS_MAX = 256
};

/* Options of a member of a collective group. */
struct tdm_collective_options {
    /* Name of the group, under which its members find each other: the same for all members, and
     * unique on the node. */
    const char *name;
    uint32_t rank;        /* Rank of this member in the group, from 0 to ranks_count - 1. */
    uint32_t ranks_count; /* Number of members: 1 to TDM_COLLECTIVE_RANKS_MAX. */
    /* Staging memory of one rank in bytes; larger data move in pieces. 0: 1 MiB. */
    size_t slot_bytes;
    int64_t timeout_ms; /* Deadline of every call, of joining too, in milliseconds.  0: 60,000. */
    /* NULL if all members are on this node.  Otherwise the ID of a node, the same for all members,
     * at whose daemon they find each other; `name` is unique there.  Members on one node use shared
     * memory, others TCP. */
    const char *node_id;
    /* 1: the data may lie on this actor's first GPU as well as in host memory.  All members say
     * the same.  In each call the data of all members, and the result, lie in the same kind of
     * memory: a mixture ends the group with TDM_E_INVAL, which names a rank that differs.  Work
     * that writes or reads data on a GPU must be finished before the call.
     *
     * NCCL moves the data (TDM_E_UNSUPPORTED if there is no NCCL) and chooses the order of sums of
     * data on GPUs.  If two members share a GPU, which NCCL refuses, the data move through host
     * memory instead, as slowly as that is; NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment of
     * all members leaves this case to NCCL, too, which must be version 2.30 or later.  The memory
     * of virtual GPUs is host memory and needs no NCCL. */
    int on_gpu;
};

/* Joins a collective group and blocks until all members have joined, at most `options->timeout_ms`.
 * The caller leaves with tdm_collective_leave().  TDM_E_TIMEOUT names the ranks that did not come;
 * TDM_E_INVAL says which option is wrong.  On failure `*group_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_collective_join(tdm_runtime *runtime,
                                                      const struct tdm_collective_options *options,
                                                      tdm_collective_group **group_out);
/* Leaves a collective group and frees the handle to it.  Never blocks, unless NCCL moves the
 * group's data: then it waits until the other members have left, too, but at most 2 seconds; after
 * that NCCL goes on in the background, and its memory is freed when it has ended.  NULL is allowed.
 */
TDM_API void tdm_collective_leave(tdm_collective_group *group);
/* Returns this member's rank in the group, or 0 if `group` is NULL. */
TDM_API uint32_t tdm_collective_rank(const tdm_collective_group *group);
/* Returns the number of members of the group, or 0 if `group` is NULL. */
TDM_API uint32_t tdm_collective_ranks_count(const tdm_collective_group *group);

enum tdm_reduction { TDM_SUM, TDM_MAX };

/* The functions below block as described above.  Data pointers are borrowed for the call.  They
 * may be NULL if the size is 0; such a call only synchronises the ranks. */

/* Blocks until all ranks of the group have called this function. */
TDM_API tdm_status tdm_collective_barrier(tdm_collective_group *group);
/* Replaces data[0 ... count-1] by the reduction over the data of all ranks; every rank gets the
 * same bits.  On failure the contents are undefined. */
TDM_API tdm_status tdm_collective_all_reduce(tdm_collective_group *group, float *data, size_t count,
                                             enum tdm_reduction reduction);
/* Does the same as tdm_collective_all_reduce() with numbers of type double. */
TDM_API tdm_status tdm_collective_all_reduce_double(tdm_collective_group *group, double *data,
                                                    size_t count, enum tdm_reduction reduction);
/* Collects `bytes_per_rank` bytes at `in` from each rank into `out`, in the order of ranks.
 * `out` has room for ranks_count * bytes_per_rank bytes.  `in` may lie in `out`, at this rank's
 * place. */
TDM_API tdm_status tdm_collective_all_gather(tdm_collective_group *group, const void *in,
                                             size_t bytes_per_rank, void *out);
/* Sums the ranks' ranks_count * count floats at `in` and gives each rank its own part of the
 * sum: `count` floats at `out`. */
TDM_API tdm_status tdm_collective_reduce_scatter(tdm_collective_group *group, const float *in,
                                                 size_t count, float *out);
/* Copies `size_bytes` bytes at `data` of rank `root` to `data` of all ranks. */
TDM_API tdm_status tdm_collective_broadcast(tdm_collective_group *group, void *data,
                                            size_t size_bytes, uint32_t root);
/* Collects `bytes_per_rank` bytes at `in` from each rank at rank `root`, which has room for all
 * of them at `out`, in the order of ranks.  Other ranks may pass NULL as `out`. */
TDM_API tdm_status tdm_collective_gather(tdm_collective_group *group, const void *in,
                                         size_t bytes_per_rank, void *out, uint32_t root);
/* Frees memory that the group holds on this actor's GPU, until tdm_collective_resume(): Tandem's
 * own buffers, and NCCL's if it is version 2.29.7 or later; an older NCCL keeps its own.  A group
 * that NCCL does not serve holds no such memory; its ranks only synchronise.  Until the resume all
 * other operations fail with TDM_E_STATE; the group may be left.  The function `pause` of a trainer
 * or an engine (tandem/job.h) may call it, and their `resume` the other one. */
TDM_API tdm_status tdm_collective_pause(tdm_collective_group *group);
/* Allocates again what tdm_collective_pause() has freed.  TDM_E_STATE if the group is not paused; a
 * GPU without enough memory ends the group. */
TDM_API tdm_status tdm_collective_resume(tdm_collective_group *group);

#ifdef __cplusplus
}
#endif

#endif
