/* call_arguments.h - the arguments of a call, whose values may still be incomplete references. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CALL_ARGUMENTS_H
#define TDM_ACTORS_CLIENT_CALL_ARGUMENTS_H

#include "actors/objects/ref.h"
#include "runtime/rpc/rpc.h"

#include <stdbool.h>

/* The packed arguments of one call or constructor, with the references that they need. Owned by
 * the call or the channel; guarded by the loop's lock. */
struct tdm__call_arguments;

/* Packs the arguments by format. References and handles for the letters r, R and h are held
 * until tdm__call_arguments_destroy(). */
tdm_status tdm__call_arguments_create(tdm_runtime *runtime, const char *format, va_list args,
                                      struct tdm__call_arguments **arguments_out);
/* Copies arguments that are already packed as one array. */
tdm_status tdm__call_arguments_copy(tdm_runtime *runtime, struct tdm_bytes packed,
                                    struct tdm__call_arguments **arguments_out);
/* Frees the arguments. Called after the reply has arrived, since the call may be sent again
 * until then. NULL is allowed. */
void tdm__call_arguments_destroy(struct tdm__call_arguments *arguments);
/* Frees the object that the runtime caches for the next call, at the end of the runtime. */
void tdm__call_arguments_free_cached(tdm_runtime *runtime);

/* Returns the packed bytes if they are few, complete, and contain no references, so that nothing
 * else must be kept; else {NULL, 0}. Borrowed until destroy. */
struct tdm_bytes tdm__call_arguments_inline_bytes(const struct tdm__call_arguments *arguments);

/* Returns true if the packed arguments contain references or handles that the callee receives. */
bool tdm__call_arguments_contain_refs(const struct tdm__call_arguments *arguments);
/* Returns true if all references whose values are arguments are complete. */
bool tdm__call_arguments_are_ready(const struct tdm__call_arguments *arguments);
/* Returns a copy of the values that the failure of the first failed reference among the arguments
 * carries, which the caller destroys; NULL if no reference has failed, or its failure carries none.
 */
tdm_document *tdm__call_arguments_failure(const struct tdm__call_arguments *arguments);
/* Fills in the payload and descriptors of a request when all references are complete. A failed
 * reference fails it with the same status and text. Large arguments are exported over `conn`, by
 * descriptor if the callee is on this node (`same_node`), else as an offer; with `conn` NULL they
 * travel inside the message. All borrowed until destroy. */
tdm_status tdm__call_arguments_pack(struct tdm__call_arguments *arguments, struct tdm__conn *conn,
                                    bool same_node, struct tdm__rpc_request *request);

#endif
