/* tls.c - TLS between processes that know the cluster's token, and to servers with certificates. */
/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSL reads the socket through a BIO of this file, which uses send(2) with MSG_NOSIGNAL: a
 * library must not raise SIGPIPE. What OpenSSL writes is collected in a buffer of a few records and
 * sent with one system call. So OpenSSL never finds a full socket, and a write that it has taken
 * need not be repeated; what the socket does not accept waits in that buffer.
 *
 * The key of the token is known to all processes of the cluster, so TLS proves only that the other
 * side is one of them. Which one it is, and that it is the other end of this very connection, is
 * proved afterwards by runtime/rpc/handshake.c with tdm__tls_binding().
 *
 * In a cluster a server without a certificate cannot finish a handshake without the key. A client
 * refuses certificates, and a handshake that did not use the key. There are no sessions to resume,
 * no tickets, no early data and no earlier version of TLS. */
#include "runtime/tls.h"

#include "runtime/error.h"

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Sizes of keys, records and buffers. */
enum {
    KEY_BYTES = 32,          /* Bytes of the pre-shared key. */
    RECORD_BYTES = 16384,    /* Most bytes that one record of TLS carries. */
    RECORD_MORE_BYTES = 256, /* Most bytes by which encryption makes a record longer. */
    /* Capacity of the buffer of encrypted bytes. The last fifth of it is for what OpenSSL sends on
     * its own, such as an alert. */
    OUTPUT_BYTES = 5 * (RECORD_BYTES + RECORD_MORE_BYTES),
    /* Number of bytes in that buffer up to which one more record is encrypted into it. */
    OUTPUT_FILLED_BYTES = 3 * (RECORD_BYTES + RECORD_MORE_BYTES),
    READ_BUFFER_BYTES = 65536, /* Bytes that OpenSSL reads from the socket at once. */
    READ_BYTES_MAX = 262144,   /* Most bytes that one tdm__tls_read() decrypts. */
    /* Records after which the sender changes its key. RFC 8446 (5.5) allows AES-GCM 2^24.5. */
    KEY_RECORDS_MAX = 1 << 24
};

/* Name under which the client offers the key, and the labels of what is derived. */
static const char identity[] = "tandem";
static const char key_label[] = "tandem tls 1.3 pre-shared key";
static const char binding_label[] = "EXPORTER-tandem-handshake";
/* Number of the only cipher suite, TLS_AES_128_GCM_SHA256. */
static const unsigned char cipher_number[2] = {0x13, 0x01};

struct tdm__tls_context {
    SSL_CTX *ssl_context;   /* OpenSSL's part (owned). */
    bool has_key;           /* Whether connections use `key`, and not certificates. */
    uint8_t key[KEY_BYTES]; /* Pre-shared key, derived from the token. */
};

struct tdm__tls {
    SSL *ssl;             /* OpenSSL's part (owned). */
    int fd;               /* Socket (borrowed). */
    int error_number;     /* errno of the socket's failure; 0 if it has not failed. */
    bool is_at_end;       /* Whether the socket has reached its end. */
    bool has_input;       /* Whether decrypted or encrypted bytes may wait in OpenSSL. */
    uint8_t *output;      /* Encrypted bytes that wait (owned); NULL if there are none. */
    size_t output_begin;  /* Offset in `output` of the first byte that is not sent. */
    size_t output_end;    /* Offset in `output` behind the last byte. */
    uint32_t key_records; /* Number of records that were sent with the present key. */
    char problem[128];    /* What the last failure was. */
};

/* ---- modes ------------------------------------------------------------------------------ */

tdm_status tdm__tls_mode_parse(const char *source, const char *text, enum tdm__tls_mode *mode_out)
{
    static const char *const names[TDM__TLS_MODES] = {"auto", "on", "off"};

    for (int i = 0; i < TDM__TLS_MODES; i++) {
        if (strcmp(text, names[i]) == 0) {
            *mode_out = (enum tdm__tls_mode)i;
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_INVAL, "%s wants auto, on or off, not \"%.40s\"", source, text);
}

tdm_status tdm__tls_mode_of_environment(enum tdm__tls_mode *mode_out)
{
    const char *text = getenv("TANDEM_TLS");

    *mode_out = TDM__TLS_AUTO;
    return text == NULL || text[0] == '\0' ? TDM_OK
                                           : tdm__tls_mode_parse("TANDEM_TLS", text, mode_out);
}

/* ---- the socket, as OpenSSL sees it ------------------------------------------------------ */

/* Table of the functions below, which OpenSSL calls; made once for the process. */
static BIO_METHOD *socket_method;

/* Reads the socket for OpenSSL. */
static int socket_read(BIO *bio, char *bytes, int count)
{
    struct tdm__tls *tls = BIO_get_data(bio);
    ssize_t got = recv(tls->fd, bytes, (size_t)count, 0);

    BIO_clear_retry_flags(bio);
    if (got > 0) {
        return (int)got;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_read(bio);
        return -1;
    }
    tls->is_at_end = got == 0;
    tls->error_number = got < 0 ? errno : 0;
    return -1;
}

/* Keeps encrypted bytes until output_send(). */
static int socket_write(BIO *bio, const char *bytes, int count)
{
    struct tdm__tls *tls = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (tls->output == NULL) {
        tls->output = malloc(OUTPUT_BYTES);
        tls->output_begin = 0;
        tls->output_end = 0;
    }
    if (tls->output == NULL || OUTPUT_BYTES - tls->output_end < (size_t)count) {
        tls->error_number = ENOBUFS;
        return -1;
    }
    memcpy(tls->output + tls->output_end, bytes, (size_t)count);
    tls->output_end += (size_t)count;
    return count;
}

/* Answers OpenSSL's requests to the socket: only flushing is one that must succeed. */
static long socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

/* Makes the table of functions. */
static void socket_method_make(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tandem socket");

    if (method != NULL) {
        (void)BIO_meth_set_read(method, socket_read);
        (void)BIO_meth_set_write(method, socket_write);
        (void)BIO_meth_set_ctrl(method, socket_control);
    }
    socket_method = method;
}

/* Sends encrypted bytes that wait. Returns false, with errno, if the socket has failed. */
static bool output_send(struct tdm__tls *tls)
{
    while (tls->output != NULL) {
        ssize_t sent = send(tls->fd, tls->output + tls->output_begin,
                            tls->output_end - tls->output_begin, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return errno == EAGAIN;
        }
        tls->output_begin += (size_t)sent;
        if (tls->output_begin == tls->output_end) {
            free(tls->output);
            tls->output = NULL;
        }
    }
    return true;
}

/* ---- the pre-shared key ------------------------------------------------------------------ */

/* Derives the pre-shared key from the token. */
static tdm_status key_derive(const uint8_t token[TDM__TOKEN_BYTES], uint8_t key_out[KEY_BYTES])
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *hkdf = EVP_KDF_CTX_new(kdf);
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t) "SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)token,
                                          TDM__TOKEN_BYTES),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)key_label,
                                          sizeof(key_label) - 1),
        OSSL_PARAM_construct_end()};
    bool is_derived = hkdf != NULL && EVP_KDF_derive(hkdf, key_out, KEY_BYTES, parameters) == 1;

    EVP_KDF_CTX_free(hkdf);
    EVP_KDF_free(kdf);
    return is_derived ? TDM_OK : tdm__fail(TDM_E_IO, "HKDF: OpenSSL cannot derive a key");
}

/* Creates what OpenSSL takes for a pre-shared key; NULL on failure. */
static SSL_SESSION *key_session(SSL *ssl)
{
    const struct tdm__tls_context *context = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_number);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session == NULL || cipher == NULL ||
        SSL_SESSION_set1_master_key(session, context->key, KEY_BYTES) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

/* Client: offers the key to the server. */
static int key_offer(SSL *ssl, const EVP_MD *digest, const unsigned char **name_out,
                     size_t *name_bytes_out, SSL_SESSION **session_out)
{
    (void)digest;
    *session_out = key_session(ssl);
    *name_out = (const unsigned char *)identity;
    *name_bytes_out = sizeof(identity) - 1;
    return *session_out != NULL;
}

/* Server: finds the key that a client offers. Without one the handshake fails, because there is no
 * certificate. */
static int key_find(SSL *ssl, const unsigned char *name, size_t name_bytes,
                    SSL_SESSION **session_out)
{
    *session_out = NULL;
    if (name_bytes != sizeof(identity) - 1 || memcmp(name, identity, name_bytes) != 0) {
        return 1;
    }
    *session_out = key_session(ssl);
    return *session_out != NULL;
}

/* ---- contexts ---------------------------------------------------------------------------- */

/* Creates a context for TLS of at least `version`, without what belongs to keys or certificates. */
static tdm_status context_make(int version, struct tdm__tls_context **context_out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tdm__tls_context *context = calloc(1, sizeof(*context));
    SSL_CTX *ssl_context = SSL_CTX_new(TLS_method());

    (void)pthread_once(&once, socket_method_make);
    if (context == NULL || ssl_context == NULL || socket_method == NULL ||
        SSL_CTX_set_min_proto_version(ssl_context, version) != 1 ||
        SSL_CTX_set_max_proto_version(ssl_context, TLS1_3_VERSION) != 1) {
        SSL_CTX_free(ssl_context);
        free(context);
        return tdm__fail(TDM_E_IO, "OpenSSL cannot prepare TLS");
    }
    (void)SSL_CTX_set_options(ssl_context,
                              SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    (void)SSL_CTX_set_session_cache_mode(ssl_context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_mode(ssl_context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(ssl_context, 1);
    SSL_CTX_set_default_read_buffer_len(ssl_context, READ_BUFFER_BYTES);
    (void)SSL_CTX_set_app_data(ssl_context, context);
    context->ssl_context = ssl_context;
    *context_out = context;
    return TDM_OK;
}

tdm_status tdm__tls_context_create(const uint8_t token[TDM__TOKEN_BYTES],
                                   struct tdm__tls_context **context_out)
{
    struct tdm__tls_context *context;
    SSL_CTX *ssl_context;

    TDM_TRY(context_make(TLS1_3_VERSION, &context));
    ssl_context = context->ssl_context;
    context->has_key = true;
    if (key_derive(token, context->key) != TDM_OK ||
        SSL_CTX_set_ciphersuites(ssl_context, "TLS_AES_128_GCM_SHA256") != 1 ||
        SSL_CTX_set1_groups_list(ssl_context, "X25519") != 1 ||
        SSL_CTX_set_num_tickets(ssl_context, 0) != 1) {
        tdm__tls_context_destroy(context);
        return tdm__fail(TDM_E_IO, "OpenSSL cannot prepare TLS 1.3");
    }
    (void)SSL_CTX_clear_options(ssl_context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_psk_use_session_callback(ssl_context, key_offer);
    SSL_CTX_set_psk_find_session_callback(ssl_context, key_find);
    *context_out = context;
    return TDM_OK;
}

/* Fails because OpenSSL does not accept a file. */
static tdm_status fail_file(const char *what, const char *path)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());

    return tdm__fail(TDM_E_INVAL,
                     "the file %s with %s cannot be used: %s. It must be readable and "
                     "in PEM format",
                     path, what, reason != NULL ? reason : "no reason given");
}

/* Loads the authorities, and this client's certificate and key. */
static tdm_status load_files(SSL_CTX *ssl_context, const struct tdm__tls_files *files)
{
    ERR_clear_error();
    if (files->authorities == NULL && SSL_CTX_set_default_verify_paths(ssl_context) != 1) {
        return tdm__fail(TDM_E_IO, "OpenSSL does not find the authorities that the system trusts");
    }
    if (files->authorities != NULL &&
        SSL_CTX_load_verify_file(ssl_context, files->authorities) != 1) {
        return fail_file("the certificates of authorities", files->authorities);
    }
    if ((files->certificate == NULL) != (files->key == NULL)) {
        return tdm__fail(TDM_E_INVAL, "a client's certificate and its key are needed together");
    }
    if (files->certificate == NULL) {
        return TDM_OK;
    }
    if (SSL_CTX_use_certificate_chain_file(ssl_context, files->certificate) != 1) {
        return fail_file("the client's certificate", files->certificate);
    }
    if (SSL_CTX_use_PrivateKey_file(ssl_context, files->key, SSL_FILETYPE_PEM) != 1) {
        return fail_file("the key of the client's certificate", files->key);
    }
    return TDM_OK;
}

tdm_status tdm__tls_context_create_client(const struct tdm__tls_files *files,
                                          struct tdm__tls_context **context_out)
{
    struct tdm__tls_context *context;
    tdm_status status;

    TDM_TRY(context_make(TLS1_2_VERSION, &context));
    status = load_files(context->ssl_context, files);
    if (status != TDM_OK) {
        tdm__tls_context_destroy(context);
        return status;
    }
    *context_out = context;
    return TDM_OK;
}

void tdm__tls_context_destroy(struct tdm__tls_context *context)
{
    if (context == NULL) {
        return;
    }
    SSL_CTX_free(context->ssl_context);
    OPENSSL_cleanse(context->key, sizeof(context->key));
    free(context);
}

/* ---- one connection ---------------------------------------------------------------------- */

tdm_status tdm__tls_create(struct tdm__tls_context *context, int fd, bool server,
                           struct tdm__tls **tls_out)
{
    struct tdm__tls *tls = calloc(1, sizeof(*tls));
    SSL *ssl = SSL_new(context->ssl_context);
    BIO *bio = BIO_new(socket_method);

    if (tls == NULL || ssl == NULL || bio == NULL) {
        BIO_free(bio);
        SSL_free(ssl);
        free(tls);
        return tdm__fail(TDM_E_NOMEM, "a TLS connection");
    }
    tls->fd = fd;
    tls->ssl = ssl;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (server) {
        SSL_set_accept_state(ssl);
    } else {
        /* A context with a key trusts no issuer, so that every certificate is refused. */
        SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
        SSL_set_connect_state(ssl);
    }
    *tls_out = tls;
    return TDM_OK;
}

tdm_status tdm__tls_expect_host(struct tdm__tls *tls, const char *host)
{
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), host) == 1) {
        return TDM_OK;
    }
    if (SSL_set1_host(tls->ssl, host) != 1 || SSL_set_tlsext_host_name(tls->ssl, host) != 1) {
        return tdm__fail(TDM_E_INVAL, "\"%s\" is no name of a host with a certificate", host);
    }
    return TDM_OK;
}

void tdm__tls_destroy(struct tdm__tls *tls)
{
    if (tls == NULL) {
        return;
    }
    SSL_free(tls->ssl);
    free(tls->output);
    free(tls);
}

void tdm__tls_set_fd(struct tdm__tls *tls, int fd)
{
    tls->fd = fd;
}

/* Notes what OpenSSL says about the last failure. Returns its reason, one of SSL_R_…; 0 if there is
 * none. */
static int problem_note(struct tdm__tls *tls)
{
    unsigned long error = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(error);

    if (reason != NULL || tls->problem[0] == '\0') {
        (void)snprintf(tls->problem, sizeof(tls->problem), "%s",
                       reason != NULL ? reason : "no reason given");
    }
    return ERR_GET_REASON(error);
}

/* Returns whether a handshake failed because the two sides have different keys, as one of the sides
 * sees it: the server checks the client's proof first and sends an alert. */
static bool reason_is_wrong_key(int reason)
{
    return reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason == SSL_R_BAD_PSK ||
           reason == SSL_R_DIGEST_CHECK_FAILED || reason == SSL_R_CERTIFICATE_VERIFY_FAILED ||
           reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM || reason == SSL_R_NO_CERTIFICATE_SET ||
           reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||
           reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR ||
           reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE;
}

/* Returns the context of a connection. */
static const struct tdm__tls_context *context_of(const struct tdm__tls *tls)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(tls->ssl));
}

/* Returns the failure of a handshake with a server that should have a certificate. */
static tdm_status certificate_failure(struct tdm__tls *tls, const char *peer)
{
    long result = SSL_get_verify_result(tls->ssl);

    if (result != X509_V_OK) {
        return tdm__fail(TDM_E_AUTH, "the certificate of %s is not trusted: %s", peer,
                         X509_verify_cert_error_string(result));
    }
    return tdm__fail(TDM_E_PROTOCOL, "%s does not accept TLS (%s)", peer, tls->problem);
}

/* Returns the failure of a handshake in words. */
static tdm_status handshake_failure(struct tdm__tls *tls, const char *peer)
{
    int reason = problem_note(tls);

    if (tls->is_at_end || tls->error_number == ECONNRESET || tls->error_number == EPIPE) {
        return tdm__fail(TDM_E_CLOSED, "%s closed the connection during the handshake", peer);
    }
    if (tls->error_number != 0) {
        return tdm__fail_errno(tls->error_number, "TLS with %s", peer);
    }
    if (!context_of(tls)->has_key) {
        return certificate_failure(tls, peer);
    }
    if (reason_is_wrong_key(reason)) {
        return tdm__fail(TDM_E_AUTH, "%s does not know the cluster's token%s (TLS: %s)", peer,
                         SSL_is_server(tls->ssl)
                             ? ""
                             : " that this process has: set TANDEM_TOKEN_FILE to the token file of "
                               "that node",
                         tls->problem);
    }
    return tdm__fail(TDM_E_PROTOCOL, "%s does not speak TLS 1.3 of Tandem (TLS: %s)", peer,
                     tls->problem);
}

tdm_status tdm__tls_handshake(struct tdm__tls *tls, const char *peer, bool *done_out)
{
    int rc;
    int error;

    *done_out = false;
    ERR_clear_error();
    rc = SSL_do_handshake(tls->ssl);
    error = rc == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, rc);
    tls->has_input = rc == 1;
    if (!output_send(tls) && tls->error_number == 0) {
        tls->error_number = errno;
    }
    if (error == SSL_ERROR_WANT_READ && tls->error_number == 0) {
        return TDM_OK;
    }
    if (rc != 1 || tls->error_number != 0) {
        return handshake_failure(tls, peer);
    }
    if (context_of(tls)->has_key && SSL_session_reused(tls->ssl) != 1) {
        return tdm__fail(TDM_E_AUTH, "%s did not use the cluster's token for TLS", peer);
    }
    *done_out = true;
    return TDM_OK;
}

tdm_status tdm__tls_binding(struct tdm__tls *tls, uint8_t binding_out[TDM__TLS_BINDING_BYTES])
{
    if (SSL_export_keying_material(tls->ssl, binding_out, TDM__TLS_BINDING_BYTES, binding_label,
                                   sizeof(binding_label) - 1, NULL, 0, 0) != 1) {
        return tdm__fail(TDM_E_IO, "OpenSSL cannot bind the handshake to TLS");
    }
    return TDM_OK;
}

/* Sets errno to what stopped reading, and `tls->has_input` to whether reading again may find
 * something else than EAGAIN. Returns 0 at the end of the connection, else -1. */
static ssize_t read_stopped(struct tdm__tls *tls, int error)
{
    tls->has_input = false;
    (void)output_send(tls); /* Reading may have made OpenSSL answer. */
    if (error == SSL_ERROR_WANT_READ) {
        errno = EAGAIN;
        return -1;
    }
    if (tls->is_at_end || error == SSL_ERROR_ZERO_RETURN) {
        return 0;
    }
    if (tls->error_number != 0) {
        errno = tls->error_number;
        return -1;
    }
    (void)problem_note(tls);
    errno = EPROTO;
    return -1;
}

ssize_t tdm__tls_read(struct tdm__tls *tls, const struct iovec *places, size_t places_count)
{
    size_t total = 0;

    tls->has_input = true;
    for (size_t i = 0; i < places_count; i++) {
        size_t filled = 0;

        while (filled < places[i].iov_len && total < READ_BYTES_MAX) {
            size_t got = 0;
            int rc;

            ERR_clear_error();
            rc = SSL_read_ex(tls->ssl, (char *)places[i].iov_base + filled,
                             places[i].iov_len - filled, &got);
            if (rc != 1) {
                ssize_t stopped = read_stopped(tls, SSL_get_error(tls->ssl, rc));

                /* A failure behind some bytes is reported by the next call. */
                tls->has_input = total > 0 && !(stopped < 0 && errno == EAGAIN);
                return total > 0 ? (ssize_t)total : stopped;
            }
            filled += got;
            total += got;
        }
    }
    return (ssize_t)total;
}

bool tdm__tls_has_input(const struct tdm__tls *tls)
{
    return tls->has_input;
}

/* A position in the pieces that tdm__tls_write() writes. */
struct write_position {
    const struct iovec *pieces; /* The first piece that is not written completely. */
    size_t pieces_count;        /* Number of pieces from there on. */
    size_t offset;              /* Number of bytes of the first piece that are written. */
};

/* Returns the next bytes to write, at most RECORD_BYTES, and moves the position behind them. Pieces
 * that do not fill a record are copied to `copy` together. Stores 0 in `*count_out` at the end. */
static const uint8_t *position_take(struct write_position *position, uint8_t copy[RECORD_BYTES],
                                    size_t *count_out)
{
    size_t count = 0;

    while (position->pieces_count > 0 && count < RECORD_BYTES) {
        const uint8_t *from = (const uint8_t *)position->pieces->iov_base + position->offset;
        size_t rest = position->pieces->iov_len - position->offset;
        size_t taken = rest < RECORD_BYTES - count ? rest : RECORD_BYTES - count;

        position->offset += taken;
        if (taken == RECORD_BYTES) {
            *count_out = taken;
            return from;
        }
        if (taken > 0) {
            memcpy(copy + count, from, taken);
        }
        count += taken;
        if (taken == rest) {
            position->pieces++;
            position->pieces_count--;
            position->offset = 0;
        }
    }
    *count_out = count;
    return copy;
}

/* Encrypts the bytes from the position on into the buffer of encrypted bytes, as many as it has
 * room for. Returns the number of bytes, or -1 with errno. */
static ssize_t output_fill(struct tdm__tls *tls, struct write_position *position)
{
    uint8_t copy[RECORD_BYTES];
    size_t total = 0;

    for (;;) {
        size_t used = tls->output == NULL ? 0 : tls->output_end;
        size_t count = 0;
        size_t written = 0;
        const uint8_t *bytes;

        if (used > OUTPUT_FILLED_BYTES) {
            return (ssize_t)total;
        }
        bytes = position_take(position, copy, &count);
        if (count == 0) {
            return (ssize_t)total;
        }
        ERR_clear_error();
        if (++tls->key_records == KEY_RECORDS_MAX) {
            tls->key_records = 0;
            (void)SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
        }
        if (SSL_write_ex(tls->ssl, bytes, count, &written) != 1 || written != count) {
            (void)problem_note(tls);
            errno = EPIPE;
            return -1;
        }
        total += count;
    }
}

ssize_t tdm__tls_write(struct tdm__tls *tls, const struct iovec *pieces, size_t pieces_count)
{
    struct write_position position = {.pieces = pieces, .pieces_count = pieces_count};
    ssize_t total = 0;
    ssize_t taken = 1;

    if (!output_send(tls)) {
        return -1;
    }
    while (taken > 0 && tls->output == NULL) {
        taken = output_fill(tls, &position);
        if (taken < 0 || !output_send(tls)) {
            return -1;
        }
        total += taken;
    }
    return total;
}

bool tdm__tls_has_output(const struct tdm__tls *tls)
{
    return tls->output != NULL;
}

const char *tdm__tls_problem(const struct tdm__tls *tls)
{
    return tls->problem;
}
