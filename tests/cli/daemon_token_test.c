/* daemon_token_test.c - a daemon uses the token that is named, or one of its own directory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { PATH_BYTES = 64 };

static char folder[] = "/tmp/daemon-token-XXXXXX"; /* Directory of the daemon. */
static char own_path[PATH_BYTES];                  /* The file "token" in it. */
static char named_path[PATH_BYTES];                /* Another file with a token. */
static uint8_t named_token[TDM__TOKEN_BYTES];      /* Its contents. */

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/daemon-token-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(own_path, sizeof(own_path), "%s/token", folder);
    (void)snprintf(named_path, sizeof(named_path), "%s/named", folder);
    TRY(tdm__token_create(named_path, named_token));
    (void)unsetenv("TANDEM_TOKEN_FILE");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(own_path);
    (void)unlink(named_path);
    return rmdir(folder);
}

static void private_node_creates_a_token_and_keeps_it(void **state)
{
    const struct cli_daemon_options options = {.is_private = true};
    uint8_t first[TDM__TOKEN_BYTES];
    uint8_t second[TDM__TOKEN_BYTES];

    (void)state;
    TRY(cli_daemon_token_get(&options, folder, first));
    TRY(cli_daemon_token_get(&options, folder, second));
    assert_memory_equal(first, second, sizeof(first));
}

static void named_token_is_read(void **state)
{
    const struct cli_daemon_options options = {.redis_url = "redis://127.0.0.1:1"};
    uint8_t token[TDM__TOKEN_BYTES];

    (void)state;
    assert_int_equal(setenv("TANDEM_TOKEN_FILE", named_path, 1), 0);
    TRY(cli_daemon_token_get(&options, folder, token));
    assert_memory_equal(token, named_token, sizeof(token));
    assert_int_equal(access(own_path, F_OK), -1);
}

static void started_node_links_to_the_named_token(void **state)
{
    const struct cli_daemon_options options = {.is_started = true};
    uint8_t token[TDM__TOKEN_BYTES];
    char target[PATH_BYTES] = "";

    (void)state;
    TRY(tdm__token_create(own_path, token)); /* An earlier daemon has left its own. */
    assert_int_equal(setenv("TANDEM_TOKEN_FILE", named_path, 1), 0);
    TRY(cli_daemon_token_get(&options, folder, token));
    assert_memory_equal(token, named_token, sizeof(token));
    assert_true(readlink(own_path, target, sizeof(target) - 1) > 0);
    assert_string_equal(target, named_path);
}

static void node_of_a_cluster_needs_a_named_token(void **state)
{
    const struct cli_daemon_options joins[] = {{.redis_url = "redis://127.0.0.1:1"},
                                               {.join_address = "127.0.0.1:1"}};
    uint8_t token[TDM__TOKEN_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(joins) / sizeof(joins[0]); i++) {
        assert_int_equal(cli_daemon_token_get(&joins[i], folder, token), TDM_E_AUTH);
        assert_non_null(strstr(tdm_error_detail(), "TANDEM_TOKEN_FILE"));
        assert_int_equal(access(own_path, F_OK), -1);
    }
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(private_node_creates_a_token_and_keeps_it),
        EACH(named_token_is_read),
        EACH(started_node_links_to_the_named_token),
        EACH(node_of_a_cluster_needs_a_named_token),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
