/* socket_test.c - ports are checked, and only stale socket files are removed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/socket.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/tds-XXXXXX";
static char path[64];

static int bind_there(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void a_port_has_sixteen_bits(void **state)
{
    static const char *const wrong[] = {"",   "65536", "99999", "4294967376", "-1",
                                        "+1", " 1",    "1 ",    "0x1",        "http"};

    (void)state;
    assert_true(tdm__port_is_valid("0"));
    assert_true(tdm__port_is_valid("7000"));
    assert_true(tdm__port_is_valid("65535"));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(tdm__port_is_valid(wrong[i]));
    }
}

static void an_absent_file_is_no_error(void **state)
{
    (void)state;
    assert_int_equal(tdm__socket_remove_stale(path), TDM_OK);
}

static void a_file_that_is_no_socket_stays(void **state)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(tdm__socket_remove_stale(path), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), path));
    assert_int_equal(unlink(path), 0);
}

static void a_listening_socket_stays(void **state)
{
    int fd = bind_there();

    (void)state;
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(tdm__socket_remove_stale(path), TDM_E_EXISTS);
    /* The queue of the listening process is full. */
    assert_int_equal(tdm__socket_remove_stale(path), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), "a process listens"));
    (void)close(fd);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
}

static void a_stale_socket_is_removed(void **state)
{
    (void)state;
    (void)close(bind_there());
    assert_int_equal(tdm__socket_remove_stale(path), TDM_OK);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_port_has_sixteen_bits),
        cmocka_unit_test(an_absent_file_is_no_error),
        cmocka_unit_test(a_file_that_is_no_socket_stays),
        cmocka_unit_test(a_listening_socket_stays),
        cmocka_unit_test(a_stale_socket_is_removed),
    };
    int failed;

    if (mkdtemp(directory) == NULL) {
        return 1;
    }
    (void)snprintf(path, sizeof(path), "%s/socket", directory);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(directory);
    return failed;
}
