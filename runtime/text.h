/* text.h - a text that grows inside a fixed buffer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_TEXT_H
#define TDM_RUNTIME_TEXT_H

#include <stddef.h>

/* What does not fit is cut; the text is always NUL-terminated. */
struct tdm__text {
    char *bytes; /* borrowed */
    size_t size_bytes;
    size_t length;
};

/* An empty text in `bytes`, which has room for at least the NUL. */
struct tdm__text tdm__text_init(char *bytes, size_t size_bytes);
__attribute__((format(printf, 2, 3))) void tdm__text_add(struct tdm__text *text, const char *format,
                                                         ...);

#endif
