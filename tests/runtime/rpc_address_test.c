/* rpc_address_test.c - addresses are parsed exactly, malformed ones are refused, and all addresses
 * of a host name are tried. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/address.h"
#include "tests/support/rpc_pair.h"
#include "tests/support/tcp_sockets.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

/* ---- a host with three addresses ---------------------------------------------------------- */

/* The functions below replace those of the C library in this program.  The host "three.addresses"
 * has the addresses 127.0.0.2, where the kernel refuses connections at once, 127.0.0.3, where it
 * refuses them later, and 127.0.0.1. */

static int refused_later = -1; /* Socket whose connect(2) will fail. */

/* Returns the function of that name that this program has replaced. */
static void *replaced(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    assert_non_null(function);
    return function;
}

__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *port,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **found)
{
    static const char *const hosts[] = {"127.0.0.2", "127.0.0.3", "127.0.0.1"};
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = NULL;
    struct addrinfo **end = found;

    *(void **)&real = replaced("getaddrinfo");
    if (strcmp(host, "three.addresses") != 0) {
        return real(host, port, hints, found);
    }
    if ((hints->ai_flags & AI_NUMERICHOST) != 0) {
        return EAI_NONAME;
    }
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        if (real(hosts[i], port, hints, end) != 0) {
            return EAI_FAIL;
        }
        end = &(*end)->ai_next;
    }
    return 0;
}

__attribute__((visibility("default"))) int connect(int fd, __CONST_SOCKADDR_ARG target,
                                                   socklen_t address_bytes)
{
    const struct sockaddr *address = target.__sockaddr__;
    int (*real)(int, const struct sockaddr *, socklen_t) = NULL;
    const struct sockaddr_in *four = (const void *)address;

    *(void **)&real = replaced("connect");
    if (address->sa_family == AF_INET && ntohl(four->sin_addr.s_addr) == 0x7f000003) {
        refused_later = fd;
        errno = EINPROGRESS;
        return -1;
    }
    return real(fd, address, address_bytes);
}

__attribute__((visibility("default"))) int getsockopt(int fd, int level, int name, void *value,
                                                      socklen_t *value_bytes)
{
    int (*real)(int, int, int, void *, socklen_t *) = NULL;

    *(void **)&real = replaced("getsockopt");
    if (level == SOL_SOCKET && name == SO_ERROR && fd == refused_later) {
        refused_later = -1;
        *(int *)value = ECONNREFUSED;
        return 0;
    }
    return real(fd, level, name, value, value_bytes);
}

/* ---- tests ------------------------------------------------------------------------------ */

static void socket_path_is_used_unchanged(void **state)
{
    struct tdm__address parsed;

    (void)state;
    assert_int_equal(tdm__address_parse("unix:/run/a b", &parsed), TDM_OK);
    assert_int_equal(parsed.socket.any.sa_family, AF_UNIX);
    assert_string_equal(parsed.socket.local.sun_path, "/run/a b");
}

static void host_of_either_family_is_found_with_its_port(void **state)
{
    struct tdm__address parsed;

    (void)state;
    assert_int_equal(tdm__address_parse("tcp:127.0.0.1:7000", &parsed), TDM_OK);
    assert_int_equal(parsed.socket.any.sa_family, AF_INET);
    assert_int_equal(tdm__address_parse("tcp:[::1]:80", &parsed), TDM_OK);
    assert_int_equal(parsed.socket.any.sa_family, AF_INET6);
}

static void invalid_address_is_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "unix:",
                                        "tcp:",
                                        "tcp:host",
                                        "tcp::1",
                                        "http://x",
                                        "tcp:127.0.0.1:port",
                                        "tcp:127.0.0.1:99999",
                                        "tcp:127.0.0.1:",
                                        "/tmp/x"};
    char path[256] = "unix:";
    struct tdm__address parsed;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(tdm__address_parse(wrong[i], &parsed), TDM_E_INVAL);
    }
    memset(path + 5, 'p', sizeof(path) - 6);
    assert_int_equal(tdm__address_parse(path, &parsed), TDM_E_INVAL);
}

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    tdm__incoming_reply_pack(incoming, "i", INT64_C(1));
}

/* Calls the method "any" at port `port` of the host. */
static tdm_status call_at(struct tdm__rpc *caller, const char *port)
{
    struct tdm__rpc_request request = {
        .method = "any", .packed = {"\x90", 1}, .deadline_ms = INT64_MAX};
    char address[64];
    struct tdm__conn *conn;

    (void)snprintf(address, sizeof(address), "tcp:three.addresses:%s", port);
    TDM_TRY(tdm__rpc_connect(caller, address, &conn));
    return tdm__conn_call_wait(conn, &request, NULL, NULL, NULL);
}

static void all_addresses_of_a_host_name_are_tried(void **state)
{
    struct tdm__peer_identity identity = pair_identity("either");
    struct tdm__rpc *caller;
    struct tdm__rpc *callee;
    struct tdm__loop *loop;
    char bound[64];
    const char *port;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__rpc_create(loop, &identity, pair_token, &caller), TDM_OK);
    assert_int_equal(tdm__rpc_create(loop, &identity, pair_token, &callee), TDM_OK);
    tdm__rpc_set_call_handler(callee, serve, NULL);
    assert_int_equal(tdm__rpc_listen(callee, "tcp:127.0.0.1:0", bound, sizeof(bound)), TDM_OK);
    port = strrchr(bound, ':') + 1;
    if (call_at(caller, port) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    assert_int_equal(tcp_sockets_check(false), 2); /* The dialled one, and the accepted one. */
    tdm__rpc_destroy(callee);                      /* Now no address accepts connections. */
    assert_int_not_equal(call_at(caller, port), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "three.addresses"));
    tdm__rpc_destroy(caller);
    tdm__loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(socket_path_is_used_unchanged),
        cmocka_unit_test(host_of_either_family_is_found_with_its_port),
        cmocka_unit_test(invalid_address_is_refused),
        cmocka_unit_test(all_addresses_of_a_host_name_are_tried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
