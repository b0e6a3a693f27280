/* gpu_places.h - reserves the GPUs of a job's trainers and engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_GPU_PLACES_H
#define TDM_COLOCATE_JOB_GPU_PLACES_H

#include "colocate/job/worker_group.h"
#include "runtime/id.h"

/* Reserves the GPUs of all ranks, and stores the reservations in the worker group. Ranks that share
 * memory get GPUs of one node: the ranks of each engine, with the trainer ranks on the same GPUs if
 * the engine is colocated, and else all trainers. The GPUs of colocated engines are numbered node
 * by node, and may be on several nodes. Blocks until the GPUs are free, at most a minute. If
 * `joining_ms` is not 0, blocks at most that many milliseconds, also for nodes that have yet to
 * join; TDM_E_CANCELED if the user interrupts that. TDM_E_NO_RESOURCES: `joining_ms` is 0 and the
 * nodes can never hold the ranks. On failure the worker group owns what was reserved. */
tdm_status tdm__gpu_places_reserve(struct tdm__worker_group *workers, int64_t joining_ms);

/* Writes the ID of the node at which the trainer ranks meet, that of rank 0, and whether all
 * trainer ranks are on it. The GPUs must be reserved. */
tdm_status tdm__gpu_places_meeting_node(const struct tdm__worker_group *workers,
                                        char node_id_out[TDM__ID_TEXT_BYTES],
                                        bool *is_one_node_out);

/* Gives the GPUs of an engine with GPUs of its own back. Does nothing if it has none. */
void tdm__gpu_places_release(struct tdm__worker_group *workers, uint32_t engine);

/* Reserves GPUs on any node for a lost or added engine with GPUs of its own, instead of those that
 * it had, and waits at most `timeout_ms` milliseconds until a node has them. TDM_E_TIMEOUT: no node
 * has them yet. That reservation is kept, and the next call goes on waiting for it. */
tdm_status tdm__gpu_places_replace(struct tdm__worker_group *workers, uint32_t engine,
                                   int64_t timeout_ms);

#endif
