/* utf8.c - checks and cuts texts in UTF-8. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/utf8.h"

#include <stdint.h>
#include <string.h>

/* Returns the number of bytes of a character from its first byte; 0 if no character begins so. */
static size_t character_bytes(unsigned char first)
{
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc2 || first > 0xf4) { /* A later byte of a character, or never used. */
        return 0;
    }
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Decodes the character of `size_bytes` bytes at `text`. Returns UINT32_MAX if it is malformed. */
static uint32_t character_decode(const unsigned char *text, size_t size_bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t character = size_bytes == 1 ? text[0] : text[0] & (0x7fU >> size_bytes);

    for (size_t i = 1; i < size_bytes; i++) {
        if ((text[i] & 0xc0U) != 0x80) {
            return UINT32_MAX;
        }
        character = character << 6 | (text[i] & 0x3fU);
    }
    if (character < least[size_bytes] || character > 0x10ffff ||
        (character >= 0xd800 && character <= 0xdfff)) {
        return UINT32_MAX;
    }
    return character;
}

bool tdm__utf8_is_printable(const char *text, size_t size_bytes)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t i = 0;

    while (i < size_bytes) {
        size_t length = character_bytes(bytes[i]);
        uint32_t character;

        if (length == 0 || length > size_bytes - i) {
            return false;
        }
        character = character_decode(bytes + i, length);
        if (character == UINT32_MAX || character < ' ' ||
            (character >= 0x7f && character <= 0x9f)) {
            return false;
        }
        i += length;
    }
    return true;
}

const char *tdm__utf8_trim(char *text)
{
    size_t end = strlen(text);
    size_t start = end;

    /* The last character begins at the last byte that continues no character. */
    while (start > 0 && end - start < 4 && ((unsigned char)text[start - 1] & 0xc0U) == 0x80) {
        start--;
    }
    if (start > 0 && character_bytes((unsigned char)text[start - 1]) > end - start + 1) {
        text[start - 1] = '\0';
    }
    return text;
}
