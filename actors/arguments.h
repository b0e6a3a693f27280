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
/* The call is on its way: the bytes may go, what they refer to stays until the call is answered
 * (destroy).  A call that may be sent again keeps them. */
void tdm__arguments_sent(struct tdm__arguments *arguments);
void tdm__arguments_destroy(struct tdm__arguments *arguments); /* NULL is allowed */

/* Are all references done? */
bool tdm__arguments_ready(const struct tdm__arguments *arguments);
/* The packed array, once ready; a reference that failed fails it with its own status and
 * detail. Borrowed until destroy. */
tdm_status tdm__arguments_pack(struct tdm__arguments *arguments, struct tdm_bytes *packed_out);

#endif
