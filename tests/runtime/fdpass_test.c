/* fdpass_test.c - descriptors arrive with their record, and surplus ones are closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/fdpass.h"
#include "tests/support/open_files.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int ends[2];

static int open_ends(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int close_ends(void **state)
{
    (void)state;
    (void)close(ends[0]);
    (void)close(ends[1]);
    return 0;
}

static void descriptor_arrives_with_its_record(void **state)
{
    char record[16];
    size_t record_bytes = sizeof(record);
    int fds[2] = {-1, -1};
    uint32_t fds_count = 2;
    struct stat sent;
    struct stat received;

    (void)state;
    assert_int_equal(tdm__fds_send(ends[0], "order", 5, &ends[0], 1), TDM_OK);
    assert_int_equal(tdm__fds_receive(ends[1], record, &record_bytes, fds, &fds_count), TDM_OK);
    assert_int_equal(record_bytes, 5);
    assert_memory_equal(record, "order", 5);
    assert_int_equal(fds_count, 1);
    assert_int_equal(fstat(ends[0], &sent), 0);
    assert_int_equal(fstat(fds[0], &received), 0);
    assert_int_equal(sent.st_ino, received.st_ino);
    assert_int_equal(fcntl(fds[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    (void)close(fds[0]);
}

static void too_many_or_too_much_is_refused_and_closed(void **state)
{
    char record[4];
    size_t record_bytes = sizeof(record);
    int fds[1];
    uint32_t fds_count = 1;
    uint32_t before = open_files_count("");

    (void)state;
    assert_int_equal(tdm__fds_send(ends[0], "two", 3, ends, 2), TDM_OK);
    assert_int_equal(tdm__fds_receive(ends[1], record, &record_bytes, fds, &fds_count),
                     TDM_E_PROTOCOL);
    fds_count = 1;
    assert_int_equal(tdm__fds_send(ends[0], "too long", 8, ends, 1), TDM_OK);
    assert_int_equal(tdm__fds_receive(ends[1], record, &record_bytes, fds, &fds_count),
                     TDM_E_PROTOCOL);
    assert_int_equal(open_files_count(""), before);
}

static void closed_end_reads_as_nothing(void **state)
{
    char record[4];
    size_t record_bytes = sizeof(record);
    uint32_t fds_count = 0;

    (void)state;
    (void)shutdown(ends[0], SHUT_WR);
    assert_int_equal(tdm__fds_receive(ends[1], record, &record_bytes, &(int){-1}, &fds_count),
                     TDM_OK);
    assert_int_equal(record_bytes, 0);
    assert_int_equal(tdm__fds_send(-1, "x", 1, NULL, 0), TDM_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(descriptor_arrives_with_its_record, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(too_many_or_too_much_is_refused_and_closed, open_ends,
                                        close_ends),
        cmocka_unit_test_setup_teardown(closed_end_reads_as_nothing, open_ends, close_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
