/* name_key.c - the store keys of the names of actors and placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A key of the store is printable ASCII without '*', at most 199 bytes. All other bytes of a name,
 * and '/' and '%', are written as %XX. A key that would be too long has a hash instead:
 * "KIND/%%HASH/" and the beginning of the name. "%%" occurs in no other key. */

#include "scheduler/name_key.h"

#include "runtime/error.h"
#include "runtime/text.h"
#include "runtime/utf8.h"

#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENCODED_BYTES_MAX = 2048, /* Size of a buffer for a key before it is shortened. */
    HASH_BYTES = 16,          /* Bytes of the hash in the key of a long name. */
    BEGINNING_BYTES = 120     /* Most bytes of the encoded name in the key of a long name. */
};

/* Appends a name to a key, in which other bytes than plain ones are %XX, as long as the name takes
 * at most `bytes_max` bytes of the key. */
static void key_add_name(struct tdm__text *key, const char *name, size_t bytes_max)
{
    size_t end = key->length + bytes_max;

    for (const char *byte = name; *byte != '\0' && key->length + 3 <= end; byte++) {
        if (*byte < ' ' || *byte > '~' || strchr("*/%", *byte) != NULL) {
            tdm__text_add(key, "%%%02X", (unsigned char)*byte);
        } else {
            tdm__text_add(key, "%c", *byte);
        }
    }
}

const char *tdm__name_key(const char *kind, const char *name_space, const char *name,
                          char key[TDM__STORE_KEY_BYTES])
{
    char encoded[ENCODED_BYTES_MAX];
    struct tdm__text whole = tdm__text_init(encoded, sizeof(encoded));
    struct tdm__text shortened = tdm__text_init(key, TDM__STORE_KEY_BYTES);
    uint8_t hash[EVP_MAX_MD_SIZE] = {0};
    unsigned hash_bytes;

    tdm__text_add(&whole, "%s/", kind);
    key_add_name(&whole, name_space, sizeof(encoded));
    tdm__text_add(&whole, "/");
    key_add_name(&whole, name, sizeof(encoded));
    if (whole.length < TDM__STORE_KEY_BYTES) {
        return memcpy(key, encoded, whole.length + 1);
    }
    (void)EVP_Digest(encoded, whole.length, hash, &hash_bytes, EVP_sha256(), NULL);
    tdm__text_add(&shortened, "%s/%%%%", kind);
    for (int i = 0; i < HASH_BYTES; i++) {
        tdm__text_add(&shortened, "%02x", hash[i]);
    }
    tdm__text_add(&shortened, "/");
    key_add_name(&shortened, name, BEGINNING_BYTES);
    return key;
}

const char *tdm__name_of_key(const char *key, char name[TDM__NAME_OF_KEY_BYTES])
{
    const char *slash = strchr(key, '/');
    const char *encoded = slash == NULL ? NULL : strchr(slash + 1, '/');
    char digits[3] = "";
    size_t length = 0;

    for (encoded = encoded == NULL ? key : encoded + 1;
         *encoded != '\0' && length < TDM__NAME_OF_KEY_BYTES - 4; encoded++) {
        if (encoded[0] == '%' && encoded[1] != '\0' && encoded[2] != '\0') {
            memcpy(digits, encoded + 1, 2);
            name[length++] = (char)strtoul(digits, NULL, 16);
            encoded += 2;
        } else {
            name[length++] = *encoded;
        }
    }
    name[length] = '\0';
    (void)tdm__utf8_trim(name);
    if (slash != NULL && strncmp(slash, "/%%", 3) == 0) {
        length = strlen(name);
        (void)snprintf(name + length, TDM__NAME_OF_KEY_BYTES - length, "…");
    }
    return name;
}
