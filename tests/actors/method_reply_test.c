/* method_reply_test.c - cached replies are independent copies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/method_reply.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void kept_value_outlives_its_bytes_and_descriptors(void **state)
{
    char bytes[] = {'\x91', 5};
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct tdm__method_reply answer = {
        .detail = "", .packed = {bytes, sizeof(bytes)}, .fds = &fd, .fds_count = 1};
    struct tdm__cached_reply *kept;
    int copy;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(tdm__cached_reply_create(&answer, &kept), TDM_OK);
    bytes[1] = 6;
    (void)close(fd);
    assert_int_equal(kept->reply.status, TDM_OK);
    assert_int_equal(kept->reply.packed.size_bytes, 2);
    assert_memory_equal(kept->reply.packed.data, "\x91\x05", 2);
    assert_int_equal(kept->reply.fds_count, 1);
    copy = kept->reply.fds[0];
    assert_true(fcntl(copy, F_GETFD) == FD_CLOEXEC);
    tdm__cached_reply_destroy(kept);
    assert_true(fcntl(copy, F_GETFD) < 0 && errno == EBADF);
}

static void deferred_failure_has_its_text(void **state)
{
    char detail[] = "out of fuel";
    struct tdm__method_reply answer = {.status = TDM_E_METHOD, .detail = detail};
    struct tdm__cached_reply *kept;

    (void)state;
    assert_int_equal(tdm__cached_reply_create(&answer, &kept), TDM_OK);
    detail[0] = 'X';
    assert_int_equal(kept->reply.status, TDM_E_METHOD);
    assert_string_equal(kept->reply.detail, "out of fuel");
    tdm__cached_reply_destroy(kept);
    tdm__cached_reply_destroy(NULL);
}

static void of_a_stream_only_its_end_is_kept(void **state)
{
    const struct tdm__method_reply answer = {.detail = "", .packed = {"\x90", 1}};
    const struct tdm__id node = {{1}};

    (void)state;
    assert_ptr_equal(tdm__method_reply_for_cache(&answer, false, &node), &answer);
    assert_int_equal(tdm__method_reply_for_cache(&answer, true, &node)->status, TDM_E_CLOSED);
}

static void descriptor_that_is_none_is_refused(void **state)
{
    int fd = -1;
    struct tdm__method_reply answer = {
        .detail = "", .packed = {"\x90", 1}, .fds = &fd, .fds_count = 1};
    struct tdm__cached_reply *kept;

    (void)state;
    assert_int_equal(tdm__cached_reply_create(&answer, &kept), TDM_E_IO);
    assert_non_null(strstr(tdm_error_detail(), "descriptor 0 of a reply"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_value_outlives_its_bytes_and_descriptors),
        cmocka_unit_test(deferred_failure_has_its_text),
        cmocka_unit_test(of_a_stream_only_its_end_is_kept),
        cmocka_unit_test(descriptor_that_is_none_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
