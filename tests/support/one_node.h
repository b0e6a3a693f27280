/* one_node.h - a private node for a test program, its actors, and calls to its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_ONE_NODE_H
#define TDM_TESTS_SUPPORT_ONE_NODE_H

#include <tandem/tandem.h>

/* Starts a node with one GPU of that size. In a worker process it becomes the actor, so that it
 * must be the first call in main(). */
tdm_runtime *one_node_start(uint64_t gpu_bytes);

/* Creates an actor with that fraction of a GPU and waits for its constructor. */
tdm_actor *one_node_actor(tdm_runtime *runtime, const char *class_name, const char *name,
                          double num_gpus);
/* Kills the actor's process with SIGKILL. */
void one_node_kill_actor(tdm_actor *actor);

/* Calls the daemon and waits; `document_out` may be NULL. */
tdm_status one_node_call(tdm_runtime *runtime, const char *method, tdm_document **document_out,
                         const char *format, ...);
/* Returns the bytes that the broker has charged on the GPU. */
uint64_t one_node_used_bytes(tdm_runtime *runtime);
/* Waits until the charged bytes equal `bytes`; fails the test after 5 s. */
void one_node_wait_used(tdm_runtime *runtime, uint64_t bytes);

#endif
