/* certificates.h - makes an authority and certificates that it has signed, for TLS in tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_CERTIFICATES_H
#define TDM_TESTS_SUPPORT_CERTIFICATES_H

/* An authority. */
struct authority;

/* Makes an authority and writes its certificate to DIRECTORY/NAME.crt. */
struct authority *authority_make(const char *directory, const char *name);
void authority_free(struct authority *authority);
/* Makes a certificate for `hosts`, such as "DNS:localhost,IP:127.0.0.1", and writes it and its key
 * to DIRECTORY/NAME.crt and NAME.key. */
void authority_sign(const struct authority *authority, const char *directory, const char *name,
                    const char *hosts);

#endif
