/* scheme_attachment_test.c - copies of the bytes that are attached to a version. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/attachment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tandem/error.h>
#include <tandem/weights.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static void a_copy_is_kept_and_replaced(void **state)
{
    struct tdm__attachment attachment = {.data = NULL};
    char text[] = "step 5";

    (void)state;
    TRY(tdm__attachment_set(&attachment, (struct tdm_bytes){text, 6}));
    text[5] = '6';
    assert_memory_equal(attachment.data, "step 5", 6);
    TRY(tdm__attachment_set(&attachment, (struct tdm_bytes){text, 6}));
    assert_memory_equal(attachment.data, "step 6", 6);
    TRY(tdm__attachment_verify(&attachment));
    TRY(tdm__attachment_set(&attachment, (struct tdm_bytes){.size_bytes = 0}));
    assert_null(attachment.data);
    assert_int_equal(attachment.size_bytes, 0);
    assert_true(attachment.sum == 0);
    TRY(tdm__attachment_verify(&attachment));
}

static void received_bytes_are_compared_with_the_senders_checksum(void **state)
{
    struct tdm__attachment sent = {.data = NULL};
    struct tdm__attachment received = {.data = NULL};

    (void)state;
    TRY(tdm__attachment_set(&sent, (struct tdm_bytes){"abc", 3}));
    TRY(tdm__attachment_receive(&received, (struct tdm_bytes){"abc", 3}, sent.sum));
    TRY(tdm__attachment_verify(&received));
    TRY(tdm__attachment_receive(&received, (struct tdm_bytes){"abd", 3}, sent.sum));
    assert_int_equal(tdm__attachment_verify(&received), TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), "the 3 attached bytes"));
    TRY(tdm__attachment_receive(&received, (struct tdm_bytes){.size_bytes = 0}, sent.sum));
    assert_int_equal(tdm__attachment_verify(&received), TDM_E_CHECKSUM);
    tdm__attachment_fini(&received);
    tdm__attachment_fini(&sent);
    assert_null(sent.data);
}

static void too_many_bytes_change_nothing(void **state)
{
    struct tdm__attachment attachment = {.data = NULL};

    (void)state;
    TRY(tdm__attachment_set(&attachment, (struct tdm_bytes){"abc", 3}));
    assert_int_equal(tdm__attachment_set(
                         &attachment, (struct tdm_bytes){"", TDM_WEIGHTS_ATTACHED_BYTES_MAX + 1}),
                     TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "at most 4194304"));
    assert_int_equal(attachment.size_bytes, 3);
    TRY(tdm__attachment_verify(&attachment));
    tdm__attachment_fini(&attachment);
}

static void bytes_up_to_the_limit_are_attached(void **state)
{
    static char bytes[TDM_WEIGHTS_ATTACHED_BYTES_MAX];
    struct tdm__attachment attachment = {.data = NULL};

    (void)state;
    TRY(tdm__attachment_set(&attachment, (struct tdm_bytes){bytes, sizeof(bytes)}));
    assert_int_equal(attachment.size_bytes, sizeof(bytes));
    TRY(tdm__attachment_verify(&attachment));
    tdm__attachment_fini(&attachment);
}

static void a_move_frees_what_the_target_had(void **state)
{
    struct tdm__attachment from = {.data = NULL};
    struct tdm__attachment to = {.data = NULL};

    (void)state;
    TRY(tdm__attachment_set(&from, (struct tdm_bytes){"new", 3}));
    TRY(tdm__attachment_set(&to, (struct tdm_bytes){"older", 5}));
    tdm__attachment_move(&to, &from);
    assert_null(from.data);
    assert_int_equal(to.size_bytes, 3);
    assert_memory_equal(to.data, "new", 3);
    tdm__attachment_fini(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_kept_and_replaced),
        cmocka_unit_test(received_bytes_are_compared_with_the_senders_checksum),
        cmocka_unit_test(too_many_bytes_change_nothing),
        cmocka_unit_test(bytes_up_to_the_limit_are_attached),
        cmocka_unit_test(a_move_frees_what_the_target_had),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
