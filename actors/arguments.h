/* arguments.h - the arguments of a call, some of which may still be on their way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_ARGUMENTS_H
#define TDM_ACTORS_ARGUMENTS_H

#include "actors/ref.h"

#include <stdbool.h>

struct tdm__arguments;

/* Packs by format; a letter r takes a reference of this process and keeps it until the call. */
tdm_status tdm__arguments_make(const char *format, va_list args,
                               struct tdm__arguments **arguments_out);
/* Copies one packed array. */
tdm_status tdm__arguments_of_packed(struct tdm_bytes packed,
                                    struct tdm__arguments **arguments_out);
void tdm__arguments_destroy(struct tdm__arguments *arguments); /* NULL is allowed */

/* Are all references done? */
bool tdm__arguments_ready(const struct tdm__arguments *arguments);
/* The packed array, once ready; a reference that failed fails it with its own status and
 * detail. Borrowed until destroy. */
tdm_status tdm__arguments_pack(struct tdm__arguments *arguments, struct tdm_bytes *packed_out);

#endif
