/* call_arguments.h - the arguments of a call, some of which may still be on their way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CALL_ARGUMENTS_H
#define TDM_ACTORS_CLIENT_CALL_ARGUMENTS_H

#include "actors/objects/ref.h"

#include <stdbool.h>

struct tdm__call_arguments;

/* Packs by format; what the letters r, R and h stand for is kept until destroy.  With the
 * loop's lock. */
tdm_status tdm__call_arguments_create(tdm_runtime *runtime, const char *format, va_list args,
                                      struct tdm__call_arguments **arguments_out);
/* Copies one packed array. */
tdm_status tdm__call_arguments_copy(tdm_runtime *runtime, struct tdm_bytes packed,
                                    struct tdm__call_arguments **arguments_out);
/* When the call is answered: until then it may be sent again.  NULL is allowed. */
void tdm__call_arguments_destroy(struct tdm__call_arguments *arguments);
/* At the runtime's end: what it keeps for the next call. */
void tdm__call_arguments_free_cached(tdm_runtime *runtime);

/* All there is to keep of arguments that are few bytes, complete, and pass nothing on; of
 * others {NULL, 0}.  Borrowed until destroy. */
struct tdm_bytes tdm__call_arguments_inline_bytes(const struct tdm__call_arguments *arguments);

/* Are there references or handles that others get with them?  Complete once they are packed. */
bool tdm__call_arguments_contain_refs(const struct tdm__call_arguments *arguments);
/* Are all references done? */
bool tdm__call_arguments_are_ready(const struct tdm__call_arguments *arguments);
/* The payload and descriptors of the request, once ready; a reference that failed fails it with
 * its own status and detail.  Large arguments are lent over `conn` (NULL: they travel
 * inside), by descriptor to a `near` process, of this node.  All borrowed until destroy. */
tdm_status tdm__call_arguments_pack(struct tdm__call_arguments *arguments, struct tdm__conn *conn,
                                    bool near, struct tdm__rpc_request *request);

#endif
