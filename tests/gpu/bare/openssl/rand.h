/* rand.h - what runtime/id.c needs of OpenSSL, for machines that have none. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GPU_BARE_OPENSSL_RAND_H
#define TDM_TESTS_GPU_BARE_OPENSSL_RAND_H

#include <sys/random.h>

static inline int RAND_bytes(unsigned char *bytes, int count)
{
    return getrandom(bytes, (size_t)count, 0) == count;
}

#endif
