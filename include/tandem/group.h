/* group.h - a fixed set of actors that exchange data in step (a communicator). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_GROUP_H
#define TANDEM_GROUP_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every member makes the same calls in the same order, with the same sizes.  A call blocks
 * until the data is there.  When a member dies, or is silent past the deadline, every other
 * member's call fails (TDM_E_ABORTED names the rank, TDM_E_TIMEOUT the ranks that did not come)
 * and so does every later call on the group: it must be made anew.  Results do not depend on
 * timing: sums are taken in rank order. */
typedef struct tdm_group tdm_group;

struct tdm_group_options {
    const char *name; /* the meeting point: the same for all members, unique on the node */
    uint32_t rank;    /* 0 … ranks_count-1, each taken once */
    uint32_t ranks_count;
    size_t slot_bytes;  /* staging per rank; larger data goes in pieces; 0: 1 MiB */
    int64_t timeout_ms; /* of every call, this one included; 0: 60,000 */
    /* NULL: all members are on this node.  Else the id of a node, the same for all members,
     * whose daemon they meet at, wherever they are: shared memory where they are on one node,
     * TCP else.  The name is then unique on that node. */
    const char *node_id;
    /* 1: what is moved may lie on this actor's first GPU as well as in host memory; all members
     * say the same, and each has a GPU of its own.  NCCL moves it (TDM_E_UNSUPPORTED where
     * there is none), but for virtual GPUs, whose memory is the host's.  Sums of what lies on
     * GPUs are taken in NCCL's order. */
    int on_gpu;
};

/* Meets the other members; blocks until all have come. */
TDM_API tdm_status tdm_group_join(tdm_runtime *runtime, const struct tdm_group_options *options,
                                  tdm_group **group_out);
TDM_API void tdm_group_leave(tdm_group *group); /* never blocks; NULL is allowed */
TDM_API uint32_t tdm_group_rank(const tdm_group *group);
TDM_API uint32_t tdm_group_ranks_count(const tdm_group *group);

enum tdm_reduction { TDM_SUM, TDM_MAX };

TDM_API tdm_status tdm_group_barrier(tdm_group *group);
/* data[0 … count) becomes the reduction over all ranks' data, the same bits on every rank. */
TDM_API tdm_status tdm_group_all_reduce(tdm_group *group, float *data, size_t count,
                                        enum tdm_reduction reduction);
TDM_API tdm_status tdm_group_all_reduce_double(tdm_group *group, double *data, size_t count,
                                               enum tdm_reduction reduction);
/* in: count floats per rank; out: ranks_count × count floats, rank after rank.  `in` may lie
 * inside `out` at its own place. */
TDM_API tdm_status tdm_group_all_gather(tdm_group *group, const void *in, size_t bytes_per_rank,
                                        void *out);
/* in: ranks_count × count floats; out: the sum over ranks of this rank's part, count floats. */
TDM_API tdm_status tdm_group_reduce_scatter(tdm_group *group, const float *in, size_t count,
                                            float *out);
/* `data` of rank `root` to all. */
TDM_API tdm_status tdm_group_broadcast(tdm_group *group, void *data, size_t size_bytes,
                                       uint32_t root);
/* Rank `root` receives everyone's bytes, rank after rank, at out[rank × bytes_per_rank]; `out`
 * is not read elsewhere. */
TDM_API tdm_status tdm_group_gather(tdm_group *group, const void *in, size_t bytes_per_rank,
                                    void *out, uint32_t root);

#ifdef __cplusplus
}
#endif

#endif
