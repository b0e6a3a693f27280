/* tcp_settings_test.c - ranges of ports are read, and listeners keep to the settings. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/tcp_settings.h"

#include "runtime/messages/messages.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void ranges_of_ports_are_read(void **state)
{
    static const char *const wrong[] = {"",    "-",      "0",     "7-",   "-7",
                                        "9-7", "7-9-11", "70000", "7 - 9"};
    struct tdm__tcp_settings settings = {.first_port = 1};

    (void)state;
    assert_true(tdm__tcp_settings_parse_ports("7000-65535", &settings));
    assert_int_equal(settings.first_port, 7000);
    assert_int_equal(settings.last_port, 65535);
    assert_true(tdm__tcp_settings_parse_ports("7", &settings));
    assert_int_equal(settings.first_port, 7);
    assert_int_equal(settings.last_port, 7);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(tdm__tcp_settings_parse_ports(wrong[i], &settings));
    }
}

static void settings_survive_a_message(void **state)
{
    const struct tdm__tcp_settings settings = {
        .tls_mode = TDM__TLS_ON, .first_port = 1, .last_port = 2, .advertised_host = "n1"};
    struct tdm__tcp_settings_message message;
    struct tdm__tcp_settings back;

    (void)state;
    tdm__tcp_settings_to_message(&settings, &message);
    assert_int_equal(tdm__tcp_settings_of_message(&message, &back), TDM_OK);
    assert_int_equal(back.tls_mode, TDM__TLS_ON);
    assert_int_equal(back.last_port, 2);
    assert_string_equal(back.advertised_host, "n1");
    message.tls_mode = TDM__TLS_MODES;
    assert_int_equal(tdm__tcp_settings_of_message(&message, &back), TDM_E_PROTOCOL);
}

/* Other processes may have some of the ports, so that only a part of the range must be free. */
static void listeners_keep_to_the_range_and_the_advertised_host(void **state)
{
    const struct tdm__tcp_settings settings = {
        .first_port = 19000, .last_port = 19009, .advertised_host = "node.example"};
    struct rpc_pair pair;
    char bound[64];
    uint32_t listening = 0;

    (void)state;
    pair_create(&pair);
    tdm__rpc_set_tcp_settings(pair.rpcs[0], &settings);
    while (tdm__rpc_listen(pair.rpcs[0], "tcp:127.0.0.1:0", bound, sizeof(bound)) == TDM_OK) {
        long port = strtol(strrchr(bound, ':') + 1, NULL, 10);

        assert_memory_equal(bound, "tcp:node.example:", 17);
        assert_in_range(port, 19000, 19009);
        listening++;
    }
    assert_in_range(listening, 1, 10);
    assert_non_null(strstr(tdm_error_detail(), "none of the ports 19000 to 19009 (--ports)"));
    assert_non_null(strstr(tdm_error_detail(), "in use"));
    pair_destroy(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_of_ports_are_read),
        cmocka_unit_test(settings_survive_a_message),
        cmocka_unit_test(listeners_keep_to_the_range_and_the_advertised_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
