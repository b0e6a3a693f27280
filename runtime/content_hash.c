/* content_hash.c - SHA-256 of bytes and of files, by which processes recognise equal contents. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/content_hash.h"

#include "runtime/error.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a file that are read at a time. */
enum { READ_BYTES = 64 * 1024 };

/* Fails because OpenSSL has refused to compute a hash. */
static tdm_status fail_hash(void)
{
    return tdm__fail(TDM_E_IO, "OpenSSL cannot compute a SHA-256");
}

tdm_status tdm__content_hash_bytes(struct tdm_bytes bytes, struct tdm__content_hash *hash_out)
{
    const void *data = bytes.size_bytes == 0 ? "" : bytes.data;

    return EVP_Digest(data, bytes.size_bytes, hash_out->bytes, NULL, EVP_sha256(), NULL) == 1
               ? TDM_OK
               : fail_hash();
}

/* Adds the rest of an open file to the hash. */
static tdm_status hash_rest(EVP_MD_CTX *context, int fd, const char *path, uint64_t *size_bytes)
{
    char buffer[READ_BYTES];

    for (;;) {
        ssize_t count = read(fd, buffer, sizeof(buffer));

        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return tdm__fail_errno(errno, "%s: read", path);
        }
        if (count == 0) {
            return TDM_OK;
        }
        if (EVP_DigestUpdate(context, buffer, (size_t)count) != 1) {
            return fail_hash();
        }
        *size_bytes += (uint64_t)count;
    }
}

tdm_status tdm__content_hash_file(int fd, const char *path, struct tdm__content_hash *hash_out,
                                  uint64_t *size_bytes_out)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    uint64_t size_bytes = 0;
    tdm_status status = context == NULL || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1
                            ? fail_hash()
                            : hash_rest(context, fd, path, &size_bytes);

    if (status == TDM_OK && EVP_DigestFinal_ex(context, hash_out->bytes, NULL) != 1) {
        status = fail_hash();
    }
    EVP_MD_CTX_free(context);
    *size_bytes_out = size_bytes;
    return status;
}

bool tdm__content_hash_equal(const struct tdm__content_hash *a, const struct tdm__content_hash *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

const char *tdm__content_hash_text(const struct tdm__content_hash *hash,
                                   char text[TDM__CONTENT_HASH_TEXT_BYTES])
{
    for (size_t i = 0; i < sizeof(hash->bytes); i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", hash->bytes[i]);
    }
    return text;
}
