/* hex.c - bytes as text, so that what is packed can be written down in a test. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/hex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint8_t digit(char character)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = strchr(digits, character);

    assert_non_null(at);
    return (uint8_t)(at - digits);
}

struct tdm_bytes hex_read(const char *hex, void *room, size_t room_bytes)
{
    struct tdm_bytes bytes = {room, 0};
    uint8_t *next = room;

    while (*hex != '\0') {
        if (*hex == ' ') {
            hex++;
            continue;
        }
        assert_true(bytes.size_bytes < room_bytes);
        *next++ = (uint8_t)(digit(hex[0]) << 4 | digit(hex[1]));
        bytes.size_bytes++;
        hex += 2;
    }
    return bytes;
}

void hex_expect(struct tdm_bytes bytes, const char *hex)
{
    uint8_t room[1024];
    struct tdm_bytes expected = hex_read(hex, room, sizeof(room));

    assert_int_equal(bytes.size_bytes, expected.size_bytes);
    assert_memory_equal(bytes.data, expected.data, expected.size_bytes);
}
