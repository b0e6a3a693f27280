/* arguments.h - the arguments of a call, some of which may still be on their way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_ARGUMENTS_H
#define TDM_ACTORS_ARGUMENTS_H

#include "actors/ref.h"

#include <stdbool.h>

struct tdm__arguments;

/* Packs by format; what the letters r, R and h stand for is kept until destroy.  With the
 * loop's lock. */
tdm_status tdm__arguments_make(tdm_runtime *runtime, const char *format, va_list args,
                               struct tdm__arguments **arguments_out);
/* Copies one packed array. */
tdm_status tdm__arguments_of_packed(tdm_runtime *runtime, struct tdm_bytes packed,
                                    struct tdm__arguments **arguments_out);
/* When the call is answered: until then it may be sent again.  NULL is allowed. */
void tdm__arguments_destroy(struct tdm__arguments *arguments);
/* At the runtime's end: what it keeps for the next call. */
void tdm__arguments_drop_spare(tdm_runtime *runtime);

/* All there is to keep of arguments that are few bytes, complete, and pass nothing on; of
 * others {NULL, 0}.  Borrowed until destroy. */
struct tdm_bytes tdm__arguments_small(const struct tdm__arguments *arguments);

/* Are there references or handles that others get with them?  Complete once they are packed. */
bool tdm__arguments_pass_on(const struct tdm__arguments *arguments);
/* Are all references done? */
bool tdm__arguments_ready(const struct tdm__arguments *arguments);
/* The payload and descriptors of the request, once ready; a reference that failed fails it with
 * its own status and detail.  Large arguments are lent over `conn` (NULL: they travel
 * inside), by descriptor to a `near` process, of this node.  All borrowed until destroy. */
tdm_status tdm__arguments_pack(struct tdm__arguments *arguments, struct tdm__conn *conn,
                               bool near, struct tdm__request *request);

#endif
