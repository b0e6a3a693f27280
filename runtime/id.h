/* id.h - 128-bit random names of nodes, actors, groups and keys. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_ID_H
#define TDM_RUNTIME_ID_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* All zero means "none". */
struct tdm__id {
    uint8_t bytes[16];
};

enum { TDM__ID_TEXT_BYTES = 33 }; /* 32 hexadecimal digits and the NUL */

/* From the system's random source (RAND_bytes): ids may serve as unguessable keys. */
tdm_status tdm__id_generate(struct tdm__id *id_out);
bool tdm__id_is_none(const struct tdm__id *id);
bool tdm__id_equal(const struct tdm__id *a, const struct tdm__id *b);
/* Writes the hexadecimal text and returns it. */
const char *tdm__id_text(const struct tdm__id *id, char text[TDM__ID_TEXT_BYTES]);
/* TDM_E_INVAL unless `text` is 32 hexadecimal digits. */
tdm_status tdm__id_parse(const char *text, struct tdm__id *id_out);

#endif
