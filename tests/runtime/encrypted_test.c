/* encrypted_test.c - a real Redis server that is reached by TLS. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/encrypted.h"

#include "runtime/clock.h"
#include "runtime/redis/store.h"
#include "tests/support/certificates.h"
#include "tests/support/redis_fixture.h"
#include "tests/support/tcp_sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STORE_MS = 20000, REFUSED_MS = 1000, TEXT_BYTES = 256, LOG_BYTES = 4096 };

/* A Redis server with a certificate, and a store in it. */
static struct {
    struct store_fixture base;
    char directory[64];
    uint16_t port;
    pid_t server;
    struct tdm__redis_encrypted *encrypted;
    struct tdm__redis_address local;
} world;

static const char *path_of(const char *name, char text[TEXT_BYTES])
{
    (void)snprintf(text, TEXT_BYTES, "%s/%s", world.directory, name);
    return text;
}

/* Starts a Redis server that accepts only TLS with the certificate `name`, from clients with a
 * certificate if `asks_clients` is set. */
static void start_server(const char *name, bool asks_clients)
{
    char port[16];
    char certificate[TEXT_BYTES];
    char key[TEXT_BYTES];
    char authority[TEXT_BYTES];
    char file[64];

    (void)snprintf(port, sizeof(port), "%u", world.port);
    (void)snprintf(file, sizeof(file), "%s.crt", name);
    (void)path_of(file, certificate);
    (void)snprintf(file, sizeof(file), "%s.key", name);
    (void)path_of(file, key);
    (void)path_of("ours.crt", authority);
    world.server = fork();
    assert_true(world.server >= 0);
    if (world.server == 0) {
        char *const words[] = {"redis-server",
                               "--port",
                               "0",
                               "--tls-port",
                               port,
                               "--bind",
                               "127.0.0.1",
                               "--tls-cert-file",
                               certificate,
                               "--tls-key-file",
                               key,
                               "--tls-ca-cert-file",
                               authority,
                               "--tls-auth-clients",
                               asks_clients ? "yes" : "no",
                               "--requirepass",
                               "se@cret",
                               "--save",
                               "",
                               "--logfile",
                               "/dev/null",
                               NULL};

        (void)execvp(words[0], words);
        _exit(127);
    }
}

static void stop_server(void)
{
    if (world.server > 0) {
        (void)kill(world.server, SIGKILL);
        assert_int_equal(waitpid(world.server, NULL, 0), world.server);
    }
    world.server = 0;
}

static int open_world(void **state)
{
    struct authority *ours;
    struct authority *theirs;

    (void)state;
    memset(&world, 0, sizeof(world));
    (void)snprintf(world.directory, sizeof(world.directory), "/tmp/tandem-test-XXXXXX");
    if (mkdtemp(world.directory) == NULL) {
        return 1;
    }
    ours = authority_make(world.directory, "ours");
    theirs = authority_make(world.directory, "theirs");
    authority_sign(ours, world.directory, "server", "DNS:localhost,IP:127.0.0.1");
    authority_sign(ours, world.directory, "other-host", "DNS:elsewhere.example");
    authority_sign(theirs, world.directory, "stranger", "DNS:localhost,IP:127.0.0.1");
    authority_sign(ours, world.directory, "client", "DNS:client.example");
    authority_free(ours);
    authority_free(theirs);
    world.port = tcp_sockets_free_port();
    return tdm__loop_create(&world.base.loop) != TDM_OK;
}

static int close_world(void **state)
{
    (void)state;
    if (world.base.store != NULL) {
        world.base.store->ops->close(world.base.store);
    }
    tdm__redis_encrypted_close(world.encrypted);
    stop_server();
    tdm__loop_destroy(world.base.loop);
    remove_tree(world.directory);
    return 0;
}

/* Opens a store in the server at `host`. With `has_certificate` the client has one, too. */
static tdm_status open_store(const char *host, bool has_certificate, int64_t timeout_ms)
{
    struct tdm__redis_address address;
    char url[4 * TEXT_BYTES];
    char more[2 * TEXT_BYTES] = "";

    if (has_certificate) {
        (void)snprintf(more, sizeof(more), "&cert=%s/client.crt&key=%s/client.key", world.directory,
                       world.directory);
    }
    (void)snprintf(url, sizeof(url), "rediss://:se%%40cret@%s:%u?cacert=%s/ours.crt%s", host,
                   world.port, world.directory, more);
    assert_int_equal(tdm__redis_address_parse(url, &address), TDM_OK);
    assert_int_equal(tdm__redis_encrypted_open(world.base.loop, &address, world.directory,
                                               &world.local, &world.encrypted),
                     TDM_OK);
    return tdm__store_redis_open_at(world.base.loop, &world.local, "test", timeout_ms,
                                    &world.base.store);
}

/* Fails unless the server cannot be used, and the log says why with the words `why`. */
static void check_refused(const char *host, bool has_certificate, const char *why)
{
    char path[TEXT_BYTES];
    char log[LOG_BYTES] = "";
    int log_fd = open(path_of("log", path), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int stderr_fd = dup(STDERR_FILENO);
    tdm_status status;

    assert_true(log_fd >= 0 && stderr_fd >= 0);
    assert_int_equal(dup2(log_fd, STDERR_FILENO), STDERR_FILENO);
    status = open_store(host, has_certificate, REFUSED_MS);
    assert_int_equal(dup2(stderr_fd, STDERR_FILENO), STDERR_FILENO);
    assert_true(pread(log_fd, log, sizeof(log) - 1, 0) >= 0);
    (void)close(log_fd);
    (void)close(stderr_fd);
    assert_int_equal(status, TDM_E_STORE);
    if (strstr(log, why) == NULL) {
        fail_msg("no \"%s\" in the log: %s", why, log);
    }
    assert_null(strstr(log, "se@cret"));
}

/* Returns whether the server accepts connections. */
static bool server_listens(void)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(world.port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool listens;

    assert_true(fd >= 0);
    listens = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    (void)close(fd);
    return listens;
}

/* Waits until the server accepts connections. */
static void await_server(void)
{
    int64_t deadline_ms = tdm__deadline_after(STORE_MS);

    while (!server_listens()) {
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
        (void)usleep(10000);
    }
}

/* ---- the tests -------------------------------------------------------------------------- */

static void store_behind_tls_works_like_one_at_hand(void **state)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1"};

    (void)state;
    start_server("server", false);
    await_server();
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(open_store(hosts[i], false, STORE_MS), TDM_OK);
        assert_int_equal(store_put(&world.base, "a", "1", TDM__VERSION_ANY, 0), TDM_OK);
        assert_true(store_version(&world.base, "a") > 0);
        assert_int_equal(store_suite_counts_exactly(&world.base, i == 0 ? "one" : "two"), 0);
        world.base.store->ops->close(world.base.store);
        world.base.store = NULL;
        tdm__redis_encrypted_close(world.encrypted);
        world.encrypted = NULL;
    }
}

static void large_values_pass(void **state)
{
    const size_t bytes = (size_t)3 << 20;
    char *text = malloc(bytes + 1);
    struct store_reply reply;

    (void)state;
    assert_non_null(text);
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    start_server("server", false);
    await_server();
    assert_int_equal(open_store("localhost", false, STORE_MS), TDM_OK);
    assert_int_equal(store_put(&world.base, "large", text, TDM__VERSION_ANY, 0), TDM_OK);
    reply = store_read(&world.base, "large");
    assert_int_equal(reply.status, TDM_OK);
    free(text);
}

static void server_that_comes_back_is_used_again(void **state)
{
    int64_t deadline_ms;

    (void)state;
    start_server("server", false);
    await_server();
    assert_int_equal(open_store("localhost", false, STORE_MS), TDM_OK);
    assert_int_equal(store_put(&world.base, "a", "1", TDM__VERSION_ANY, 0), TDM_OK);
    stop_server();
    store_run_for(&world.base, 100);
    start_server("server", false);
    deadline_ms = tdm__deadline_after(STORE_MS);
    while (store_put(&world.base, "b", "1", TDM__VERSION_ANY, 0) != TDM_OK) {
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
    }
}

static void certificate_of_an_unknown_authority_is_refused(void **state)
{
    (void)state;
    start_server("stranger", false);
    await_server();
    check_refused("localhost", false, "the certificate of localhost is not trusted: unable to get");
}

static void certificate_of_another_host_is_refused(void **state)
{
    (void)state;
    start_server("other-host", false);
    await_server();
    check_refused("localhost", false, "the certificate of localhost is not trusted: hostname");
}

static void certificate_of_another_address_is_refused(void **state)
{
    (void)state;
    start_server("other-host", false);
    await_server();
    check_refused("127.0.0.1", false, "the certificate of 127.0.0.1 is not trusted: IP address");
}

static void server_may_ask_for_a_certificate(void **state)
{
    (void)state;
    start_server("server", true);
    await_server();
    assert_int_equal(open_store("localhost", true, STORE_MS), TDM_OK);
    assert_int_equal(store_put(&world.base, "a", "1", TDM__VERSION_ANY, 0), TDM_OK);
}

static void client_without_a_certificate_is_told(void **state)
{
    (void)state;
    start_server("server", true);
    await_server();
    check_refused("localhost", false, "certificate required");
}

static void absent_server_is_named(void **state)
{
    (void)state;
    check_refused("localhost", false, "Connection refused");
}

static void file_that_is_no_certificate_is_named(void **state)
{
    char path[TEXT_BYTES];
    struct tdm__redis_address address = {.is_encrypted = true, .host = {"localhost", 1}};

    (void)state;
    (void)snprintf(address.authorities, sizeof(address.authorities), "%s",
                   path_of("server.key", path));
    assert_int_equal(tdm__redis_encrypted_open(world.base.loop, &address, world.directory,
                                               &world.local, &world.encrypted),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "/server.key with the certificates"));
    address.authorities[0] = '\0';
    (void)snprintf(address.certificate, sizeof(address.certificate), "%s",
                   path_of("client.crt", path));
    assert_int_equal(tdm__redis_encrypted_open(world.base.loop, &address, world.directory,
                                               &world.local, &world.encrypted),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "needed together"));
}

#define ENCRYPTED_TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENCRYPTED_TEST(store_behind_tls_works_like_one_at_hand),
        ENCRYPTED_TEST(large_values_pass),
        ENCRYPTED_TEST(server_that_comes_back_is_used_again),
        ENCRYPTED_TEST(certificate_of_an_unknown_authority_is_refused),
        ENCRYPTED_TEST(certificate_of_another_host_is_refused),
        ENCRYPTED_TEST(certificate_of_another_address_is_refused),
        ENCRYPTED_TEST(server_may_ask_for_a_certificate),
        ENCRYPTED_TEST(client_without_a_certificate_is_told),
        ENCRYPTED_TEST(absent_server_is_named),
        ENCRYPTED_TEST(file_that_is_no_certificate_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
