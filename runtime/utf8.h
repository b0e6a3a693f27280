/* utf8.h - checks and cuts texts in UTF-8. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_UTF8_H
#define TDM_RUNTIME_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns true if the bytes are well-formed UTF-8 without control characters (U+0000 to U+001F and
 * U+007F to U+009F), which could change a terminal. */
bool tdm__utf8_is_printable(const char *text, size_t size_bytes);
/* Cuts the NUL-terminated text in place if it ends inside of a character, as a text does that was
 * cut to fit into a buffer. Returns `text`. */
const char *tdm__utf8_trim(char *text);

#endif
