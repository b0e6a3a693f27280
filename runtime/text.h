/* text.h - builds a text inside of a fixed buffer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_TEXT_H
#define TDM_RUNTIME_TEXT_H

#include <stddef.h>

/* A NUL-terminated text that grows inside of a buffer of the caller. The part that does not fit is
 * cut. */
struct tdm__text {
    char *bytes;       /* Buffer with the text; borrowed. */
    size_t size_bytes; /* Capacity of `bytes`, the NUL included. */
    size_t length;     /* Length of the text in bytes, without the NUL. */
};

/* Returns an empty text in `bytes`, a buffer of `size_bytes` bytes, at least 1. */
struct tdm__text tdm__text_init(char *bytes, size_t size_bytes);
/* Appends formatted text and cuts the text at the end of its buffer. */
__attribute__((format(printf, 2, 3))) void tdm__text_add(struct tdm__text *text, const char *format,
                                                         ...);
/* Copies `text` into `short_text`, a buffer of `size_bytes` bytes, at least 16. If the text is too
 * long, its first third and its end are copied, with "\n…\n" between them. No character of UTF-8 is
 * divided. */
void tdm__text_shorten(const char *text, char *short_text, size_t size_bytes);

#endif
