/* http_test.c - the HTTP server: immediate and late replies, and the check of the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/http/http.h"

#include "runtime/clock.h"
#include "runtime/descriptors.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEST_TIMEOUT_MS = 10000 };

static struct tdm__loop *loop;
static struct tdm__http_server *http;
static struct tdm__http_request *kept; /* Request that gets its reply later. */
static char said[4096];
static size_t said_bytes;
static int client = -1;

/* Comes before the C library's function.  The host "two.test" has two addresses: one that this
 * machine does not have, and one that it has. */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **found_out)
{
    static int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    int rc;

    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(node, "two.test") != 0) {
        return next(node, service, hints, found_out);
    }
    rc = next("192.0.2.1", service, hints, found_out);
    return rc != 0 ? rc : next("127.0.0.1", service, hints, &(*found_out)->ai_next);
}

static void on_request(void *arg, struct tdm__http_request *request, const char *path)
{
    (void)arg;
    if (strcmp(path, "/later") == 0) {
        kept = request;
    } else {
        tdm__http_reply(request, 200, "text/plain", path, strlen(path));
    }
}

static void open_at(const char *address)
{
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__http_open(loop, address, on_request, NULL, &http), TDM_OK);
}

static void close_all(void)
{
    if (client >= 0) {
        (void)close(client);
        client = -1;
    }
    tdm__http_close(http);
    tdm__loop_destroy(loop);
}

static void ask(const char *lines)
{
    const char *port = strrchr(tdm__http_address(http), ':') + 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};

    said_bytes = 0;
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(write(client, lines, strlen(lines)), (ssize_t)strlen(lines));
    assert_int_equal(fcntl(client, F_SETFL, O_NONBLOCK), 0);
}

static bool has_reply(void *arg)
{
    ssize_t got = recv(client, said + said_bytes, sizeof(said) - 1 - said_bytes, 0);

    (void)arg;
    said_bytes += got > 0 ? (size_t)got : 0;
    said[said_bytes] = '\0';
    return got == 0;
}

static bool is_kept(void *arg)
{
    (void)arg;
    return kept != NULL;
}

static const char *hear(void)
{
    for (int i = 0; i < 1000 && !has_reply(NULL); i++) {
        (void)tdm__loop_run(loop, has_reply, NULL, tdm__deadline_after(10));
    }
    (void)close(client);
    client = -1;
    return said;
}

static void request_gets_its_reply(void **state)
{
    (void)state;
    open_at("127.0.0.1:0");
    ask("GET /some/where?x=1 HTTP/1.1\r\nHost: 127.0.0.1:9\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(hear(), "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(said, "\r\n\r\n/some/where"));
    close_all();
}

static void host_name_in_the_header_is_refused(void **state)
{
    (void)state;
    open_at("127.0.0.1:0");
    ask("GET / HTTP/1.1\r\nHost: evil.example:9100\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(hear(), "HTTP/1.1 403 "));
    ask("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(hear(), "HTTP/1.1 403 "));
    ask("GET / HTTP/1.1\r\nHost: [::1]:9100\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(hear(), "HTTP/1.1 200 "));
    ask("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(hear(), "HTTP/1.1 200 "));
    close_all();
}

static void only_reading_is_allowed(void **state)
{
    (void)state;
    open_at("127.0.0.1:0");
    ask("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(hear(), "HTTP/1.1 501 "));
    close_all();
}

static void reply_may_come_later_or_too_late(void **state)
{
    static const char lines[] =
        "GET /later HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";

    (void)state;
    open_at("127.0.0.1:0");
    ask(lines);
    assert_int_equal(tdm__loop_run(loop, is_kept, NULL, tdm__deadline_after(TEST_TIMEOUT_MS)),
                     TDM_OK);
    tdm__http_reply(kept, 200, "text/plain", "now", 3);
    kept = NULL;
    assert_non_null(strstr(hear(), "\r\n\r\nnow"));
    ask(lines);
    assert_int_equal(tdm__loop_run(loop, is_kept, NULL, tdm__deadline_after(TEST_TIMEOUT_MS)),
                     TDM_OK);
    (void)close(client); /* The client does not wait for the reply. */
    client = -1;
    (void)tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(50));
    tdm__http_reply(kept, 200, "text/plain", "now", 3);
    kept = NULL;
    ask(lines);
    assert_int_equal(tdm__loop_run(loop, is_kept, NULL, tdm__deadline_after(TEST_TIMEOUT_MS)),
                     TDM_OK);
    kept = NULL; /* It never gets a reply; closing the server frees it. */
    close_all();
}

static void second_address_of_host_is_used_if_first_cannot_be_bound(void **state)
{
    (void)state;
    open_at("two.test:0");
    assert_memory_equal(tdm__http_address(http), "two.test:", 9);
    ask("GET /second HTTP/1.1\r\nHost: two.test\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(hear(), "HTTP/1.1 200 OK\r\n"));
    close_all();
}

static void unix_socket_is_this_users_alone(void **state)
{
    struct stat about;
    char address[64];

    (void)state;
    (void)snprintf(address, sizeof(address), "unix:/tmp/tdt-http-%d", (int)getpid());
    open_at(address);
    assert_int_equal(stat(address + 5, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    close_all();
    assert_int_equal(stat(address + 5, &about), -1);
}

/* Writing to a closed connection raises SIGPIPE, which would end the process. */
static void client_that_closes_early_does_no_harm(void **state)
{
    static const char lines[] = "GET /later HTTP/1.0\r\n\r\n";
    struct sockaddr_un there = {.sun_family = AF_UNIX};
    char address[64];

    (void)state;
    (void)snprintf(address, sizeof(address), "unix:/tmp/tdt-http-%d", (int)getpid());
    (void)snprintf(there.sun_path, sizeof(there.sun_path), "%s", address + 5);
    open_at(address);
    client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&there, sizeof(there)), 0);
    assert_int_equal(write(client, lines, strlen(lines)), (ssize_t)strlen(lines));
    assert_int_equal(tdm__loop_run(loop, is_kept, NULL, tdm__deadline_after(TEST_TIMEOUT_MS)),
                     TDM_OK);
    (void)close(client);
    client = -1;
    tdm__http_reply(kept, 200, "text/plain", "now", 3);
    kept = NULL;
    (void)tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(50));
    close_all();
}

static void malformed_address_is_refused(void **state)
{
    struct tdm__http_server *none;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__http_open(loop, "9100", on_request, NULL, &none), TDM_E_INVAL);
    assert_int_equal(tdm__http_open(loop, "127.0.0.1:", on_request, NULL, &none), TDM_E_INVAL);
    assert_int_equal(tdm__http_open(loop, "127.0.0.1:99999", on_request, NULL, &none), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "65535"));
    tdm__loop_destroy(loop);
}

static void file_that_is_no_socket_is_not_replaced(void **state)
{
    char path[] = "/tmp/http_test_file.XXXXXX";
    char address[64];
    struct tdm__http_server *none;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    (void)snprintf(address, sizeof(address), "unix:%s", path);
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__http_open(loop, address, on_request, NULL, &none), TDM_E_EXISTS);
    tdm__loop_destroy(loop);
    assert_int_equal(unlink(path), 0);
}

/* Number of clients, as many as wait in the queue of the kernel, and of the descriptors that the
 * process has left for them. */
enum { FLOOD = 16, FLOOD_DESCRIPTORS = 68 };

/* Starts a process that connects FLOOD times and asks nothing, until it is killed. */
static pid_t start_flood(void)
{
    const char *port = strrchr(tdm__http_address(http), ':') + 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    pid_t flood = fork();

    if (flood == 0) {
        for (int i = 0; i < FLOOD; i++) {
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

            (void)connect(fd, (const struct sockaddr *)&address, sizeof(address));
        }
        (void)pause();
        _exit(0);
    }
    return flood;
}

/* The clients had taken all descriptors of the process. */
static void silent_clients_leave_descriptors_for_others(void **state)
{
    struct rlimit before;
    struct rlimit tight;
    pid_t flood;
    int next;

    (void)state;
    for (int fd = 3; fd < 1024; fd++) { /* Descriptors that this process has inherited. */
        (void)close(fd);
    }
    open_at("127.0.0.1:0");
    next = dup(STDERR_FILENO);
    assert_int_equal(close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)next + FLOOD_DESCRIPTORS;
    flood = start_flood();
    assert_true(flood > 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    assert_int_equal(tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(100)), TDM_E_TIMEOUT);
    assert_false(tdm__descriptors_are_few(FLOOD_DESCRIPTORS - 6));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(kill(flood, SIGKILL), 0);
    assert_int_equal(waitpid(flood, NULL, 0), flood);
    /* The pause ends, and the others are accepted. */
    assert_int_equal(tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(400)), TDM_E_TIMEOUT);
    ask("GET /hello HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    assert_non_null(strstr(hear(), "/hello"));
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_clients_leave_descriptors_for_others),
        cmocka_unit_test(request_gets_its_reply),
        cmocka_unit_test(host_name_in_the_header_is_refused),
        cmocka_unit_test(only_reading_is_allowed),
        cmocka_unit_test(reply_may_come_later_or_too_late),
        cmocka_unit_test(second_address_of_host_is_used_if_first_cannot_be_bound),
        cmocka_unit_test(unix_socket_is_this_users_alone),
        cmocka_unit_test(client_that_closes_early_does_no_harm),
        cmocka_unit_test(malformed_address_is_refused),
        cmocka_unit_test(file_that_is_no_socket_is_not_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
