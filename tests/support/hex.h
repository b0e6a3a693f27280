/* hex.h - bytes as text, so that what is packed can be written down in a test. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_HEX_H
#define TDM_TESTS_HEX_H

#include <tandem/value.h>

/* Fails the test unless `bytes` are those of `hex`, in which blanks mean nothing. */
void hex_expect(struct tdm_bytes bytes, const char *hex);
/* The bytes of `hex` in `room`; the test fails if they are more. */
struct tdm_bytes hex_read(const char *hex, void *room, size_t room_bytes);

#endif
