/* text.c - builds a text inside of a fixed buffer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/text.h"

#include "runtime/assert.h"

#include <stdarg.h>
#include <stdio.h>

struct tdm__text tdm__text_init(char *bytes, size_t size_bytes)
{
    TDM_ASSERT(size_bytes > 0);
    bytes[0] = '\0';
    return (struct tdm__text){.bytes = bytes, .size_bytes = size_bytes};
}

void tdm__text_add(struct tdm__text *text, const char *format, ...)
{
    size_t left = text->size_bytes - text->length;
    va_list args;
    int wanted;

    va_start(args, format);
    wanted = vsnprintf(text->bytes + text->length, left, format, args);
    va_end(args);
    if (wanted > 0) {
        text->length += (size_t)wanted < left ? (size_t)wanted : left - 1;
    }
}
