/* rpc_address_test.c - addresses are parsed exactly, and malformed ones are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_socket_path_is_taken_as_it_is(void **state)
{
    struct tdm__address parsed;

    (void)state;
    assert_int_equal(tdm__address_parse("unix:/run/a b", &parsed), TDM_OK);
    assert_int_equal(parsed.socket.any.sa_family, AF_UNIX);
    assert_string_equal(parsed.socket.local.sun_path, "/run/a b");
}

static void a_host_of_either_family_is_found_with_its_port(void **state)
{
    struct tdm__address parsed;

    (void)state;
    assert_int_equal(tdm__address_parse("tcp:127.0.0.1:7000", &parsed), TDM_OK);
    assert_int_equal(parsed.socket.any.sa_family, AF_INET);
    assert_int_equal(tdm__address_parse("tcp:[::1]:80", &parsed), TDM_OK);
    assert_int_equal(parsed.socket.any.sa_family, AF_INET6);
}

static void what_is_no_address_is_refused(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_path_is_taken_as_it_is),
        cmocka_unit_test(a_host_of_either_family_is_found_with_its_port),
        cmocka_unit_test(what_is_no_address_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
