/* hex.h - bytes as text, so that what is packed can be written down in a test. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_HEX_H
#define TDM_TESTS_HEX_H

#include <tandem/value.h>

/* Fails the test unless `bytes` equal the bytes that `hex` describes. Blanks in `hex` are ignored.
 */
void hex_expect(struct tdm_bytes bytes, const char *hex);
/* Decodes `hex` into `room`, which the caller owns, and returns the bytes. The test fails if they
 * are more than `room_bytes`. */
struct tdm_bytes hex_read(const char *hex, void *room, size_t room_bytes);

#endif
