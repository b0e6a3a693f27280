/* id.h - 128-bit random identifiers of nodes, actors, placement groups and keys. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_ID_H
#define TDM_RUNTIME_ID_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* A 128-bit identifier.  All zero means "no id". */
struct tdm__id {
    uint8_t bytes[16]; /* The id in the order in which it is printed. */
};

/* Capacity of the text of an id: 32 hexadecimal digits and the NUL. */
enum { TDM__ID_TEXT_BYTES = 33 };

/* Fills `id_out` from OpenSSL's RAND_bytes().  Ids are unguessable, so they may serve as keys.
 * Returns TDM_E_IO if there is no randomness. */
tdm_status tdm__id_generate(struct tdm__id *id_out);
/* Returns true if all bytes of the id are zero. */
bool tdm__id_is_none(const struct tdm__id *id);
/* Returns true if both ids have the same bytes. */
bool tdm__id_equal(const struct tdm__id *a, const struct tdm__id *b);
/* Writes the id as 32 lower-case hexadecimal digits and a NUL to `text` and returns `text`. */
const char *tdm__id_text(const struct tdm__id *id, char text[TDM__ID_TEXT_BYTES]);
/* Parses 32 hexadecimal digits of either case.  Returns TDM_E_INVAL for any other text. */
tdm_status tdm__id_parse(const char *text, struct tdm__id *id_out);

#endif
