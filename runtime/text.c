/* text.c - builds a text inside of a fixed buffer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/text.h"

#include "runtime/assert.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

/* Returns true if the byte is not the first of a character of UTF-8. */
static bool is_inside_character(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

void tdm__text_shorten(const char *text, char *short_text, size_t size_bytes)
{
    static const char gap[] = "\n…\n";
    size_t length = strlen(text);
    size_t head = size_bytes / 3;
    const char *tail;

    TDM_ASSERT(size_bytes >= 16);
    if (length < size_bytes) {
        memcpy(short_text, text, length + 1);
        return;
    }
    tail = text + length - (size_bytes - sizeof(gap) - head);
    while (head > 0 && is_inside_character(text[head])) {
        head--;
    }
    while (is_inside_character(*tail)) {
        tail++;
    }
    (void)snprintf(short_text, size_bytes, "%.*s%s%s", (int)head, text, gap, tail);
}
