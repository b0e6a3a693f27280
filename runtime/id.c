/* id.c - 128-bit random identifiers of nodes, actors, placement groups and keys. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/id.h"

#include "runtime/error.h"

#include <openssl/rand.h>

#include <stdio.h>
#include <string.h>

tdm_status tdm__id_generate(struct tdm__id *id_out)
{
    struct tdm__id id;

    if (RAND_bytes(id.bytes, sizeof(id.bytes)) != 1) {
        return tdm__fail(TDM_E_IO, "RAND_bytes: no randomness from the system");
    }
    *id_out = id;
    return TDM_OK;
}

bool tdm__id_is_none(const struct tdm__id *id)
{
    static const struct tdm__id none;

    return memcmp(id, &none, sizeof(none)) == 0;
}

bool tdm__id_equal(const struct tdm__id *a, const struct tdm__id *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

const char *tdm__id_text(const struct tdm__id *id, char text[TDM__ID_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < sizeof(id->bytes); i++) {
        text[2 * i] = digits[id->bytes[i] >> 4];
        text[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    text[TDM__ID_TEXT_BYTES - 1] = '\0';
    return text;
}

/* Returns the value of a hexadecimal digit of either case, or -1 for another character. */
static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    if (digit >= 'A' && digit <= 'F') {
        return digit - 'A' + 10;
    }
    return -1;
}

tdm_status tdm__id_parse(const char *text, struct tdm__id *id_out)
{
    struct tdm__id id;

    if (strlen(text) != TDM__ID_TEXT_BYTES - 1) {
        return tdm__fail(TDM_E_INVAL,
                         "malformed id \"%.40s\": expected 32 hexadecimal digits, found %zu bytes",
                         text, strlen(text));
    }
    for (size_t i = 0; i < sizeof(id.bytes); i++) {
        int high = hex_digit(text[2 * i]);
        int low = hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0) {
            return tdm__fail(TDM_E_INVAL, "malformed id \"%s\": expected hexadecimal digits", text);
        }
        id.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *id_out = id;
    return TDM_OK;
}
