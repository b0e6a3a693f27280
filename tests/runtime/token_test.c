/* token_test.c - the cluster's token is created once and readable by its user only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/token.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/tdn-XXXXXX";
static char path[64];

static void token_survives_its_file(void **state)
{
    uint8_t made[TDM__TOKEN_BYTES];
    uint8_t read_back[TDM__TOKEN_BYTES];
    struct stat about;

    (void)state;
    assert_int_equal(tdm__token_create(path, made), TDM_OK);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(tdm__token_read(path, read_back), TDM_OK);
    assert_memory_equal(made, read_back, TDM__TOKEN_BYTES);
    assert_int_equal(tdm__token_create(path, made), TDM_E_EXISTS);
}

static void token_that_others_may_read_is_refused(void **state)
{
    uint8_t token[TDM__TOKEN_BYTES];

    (void)state;
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(tdm__token_read(path, token), TDM_E_AUTH);
    assert_non_null(strstr(tdm_error_detail(), "chmod 600"));
    assert_int_equal(chmod(path, 0600), 0);
}

static void token_of_another_length_is_refused(void **state)
{
    uint8_t token[TDM__TOKEN_BYTES];

    (void)state;
    for (off_t size = 0; size < 40; size++) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(tdm__token_read(path, token),
                         size == TDM__TOKEN_BYTES ? TDM_OK : TDM_E_AUTH);
    }
    assert_int_equal(truncate(path, TDM__TOKEN_BYTES), 0);
    assert_int_not_equal(tdm__token_read("/no/such/token", token), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "/no/such/token"));
}

/* Simulates a full disk: a partial file must not be taken for a token later. */
static void token_that_cannot_be_written_leaves_no_file(void **state)
{
    struct rlimit before;
    uint8_t token[TDM__TOKEN_BYTES];
    char other[96];
    tdm_status status;

    (void)state;
    (void)snprintf(other, sizeof(other), "%s/other", directory);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, before.rlim_max}), 0);
    status = tdm__token_create(other, token);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TDM_E_IO);
    assert_non_null(strstr(tdm_error_detail(), "File too large"));
    assert_int_equal(access(other, F_OK), -1);
}

static void address_leads_to_its_token(void **state)
{
    uint8_t token[TDM__TOKEN_BYTES];
    char address[96];
    char other[96];

    (void)state;
    (void)snprintf(other, sizeof(other), "%s/away", directory);
    (void)snprintf(address, sizeof(address), "unix:%s/tandemd.sock", directory);
    assert_int_equal(unsetenv("TANDEM_TOKEN_FILE"), 0);
    assert_int_equal(tdm__token_for_address(address, token), TDM_OK);
    assert_int_equal(tdm__token_for_address("tcp:127.0.0.1:1", token), TDM_E_AUTH);
    assert_non_null(strstr(tdm_error_detail(), "TANDEM_TOKEN_FILE"));
    assert_int_equal(tdm__token_for_address("unix:/no/such/socket", token), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "no node at unix:/no/such/socket"));
    /* A node that got its token from TANDEM_TOKEN_FILE has only its socket there. */
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(close(open(address + strlen("unix:"), O_CREAT | O_WRONLY, 0600)), 0);
    assert_int_equal(tdm__token_for_address(address, token), TDM_E_AUTH);
    assert_non_null(strstr(tdm_error_detail(), "set TANDEM_TOKEN_FILE"));
    assert_int_equal(unlink(address + strlen("unix:")), 0);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(tdm__token_for_address("localhost", token), TDM_E_INVAL);
    assert_int_equal(setenv("TANDEM_TOKEN_FILE", path, 1), 0);
    assert_int_equal(tdm__token_for_address("tcp:127.0.0.1:1", token), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_survives_its_file),
        cmocka_unit_test(token_that_others_may_read_is_refused),
        cmocka_unit_test(token_of_another_length_is_refused),
        cmocka_unit_test(token_that_cannot_be_written_leaves_no_file),
        cmocka_unit_test(address_leads_to_its_token),
    };
    int failed;

    if (mkdtemp(directory) == NULL) {
        return 1;
    }
    (void)snprintf(path, sizeof(path), "%s/token", directory);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    (void)rmdir(directory);
    return failed;
}
