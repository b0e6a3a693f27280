/* certificates.c - makes an authority and certificates that it has signed, for TLS in tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { VALID_S = 86400 };

struct authority {
    X509 *certificate;
    EVP_PKEY *key;
};

static void add_extension(X509 *certificate, int kind, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);

    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* Makes a certificate for a key, signed by the authority `by`, or by itself if that is NULL. */
static X509 *make(EVP_PKEY *key, const char *name, const struct authority *by, long number)
{
    X509 *certificate = X509_new();
    X509_NAME *subject = X509_NAME_new();

    assert_non_null(certificate);
    assert_non_null(subject);
    assert_int_equal(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                                (const unsigned char *)name, -1, -1, 0),
                     1);
    assert_int_equal(X509_set_version(certificate, 2), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(certificate), number), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate), -60));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate), VALID_S));
    assert_int_equal(X509_set_subject_name(certificate, subject), 1);
    assert_int_equal(
        X509_set_issuer_name(certificate,
                             by == NULL ? subject : X509_get_subject_name(by->certificate)),
        1);
    assert_int_equal(X509_set_pubkey(certificate, key), 1);
    X509_NAME_free(subject);
    return certificate;
}

/* Opens DIRECTORY/NAME.SUFFIX for writing. */
static FILE *open_file(const char *directory, const char *name, const char *suffix)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s.%s", directory, name, suffix);
    file = fopen(path, "w");
    assert_non_null(file);
    return file;
}

static void write_certificate(X509 *certificate, const char *directory, const char *name)
{
    FILE *file = open_file(directory, name, "crt");

    assert_int_equal(PEM_write_X509(file, certificate), 1);
    assert_int_equal(fclose(file), 0);
}

static void write_key(EVP_PKEY *key, const char *directory, const char *name)
{
    FILE *file = open_file(directory, name, "key");

    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(fclose(file), 0);
}

struct authority *authority_make(const char *directory, const char *name)
{
    struct authority *authority = calloc(1, sizeof(*authority));

    assert_non_null(authority);
    authority->key = EVP_EC_gen("P-256");
    assert_non_null(authority->key);
    authority->certificate = make(authority->key, name, NULL, 1);
    add_extension(authority->certificate, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(authority->certificate, authority->key, EVP_sha256()) > 0);
    write_certificate(authority->certificate, directory, name);
    return authority;
}

void authority_free(struct authority *authority)
{
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    free(authority);
}

void authority_sign(const struct authority *authority, const char *directory, const char *name,
                    const char *hosts)
{
    static long number = 1;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate;

    assert_non_null(key);
    certificate = make(key, name, authority, ++number);
    add_extension(certificate, NID_subject_alt_name, hosts);
    assert_true(X509_sign(certificate, authority->key, EVP_sha256()) > 0);
    write_certificate(certificate, directory, name);
    write_key(key, directory, name);
    X509_free(certificate);
    EVP_PKEY_free(key);
}
