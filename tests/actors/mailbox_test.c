/* mailbox_test.c - calls leave a mailbox in the order they came. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/mailbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The mailbox never looks inside. */
static struct tdm__incoming *call_number(uintptr_t number)
{
    return (struct tdm__incoming *)(number + 1);
}

static void calls_leave_in_the_order_they_came(void **state)
{
    struct tdm__mailbox mailbox;
    uintptr_t in = 0;
    uintptr_t out = 0;

    (void)state;
    tdm__mailbox_init(&mailbox, 1000);
    assert_null(tdm__mailbox_pop(&mailbox));
    while (out < 2000) { /* grows while its head is anywhere in the ring */
        for (int i = 0; i < 7 && in < 2000; i++) {
            assert_int_equal(tdm__mailbox_push(&mailbox, call_number(in++)), TDM_OK);
        }
        for (int i = 0; i < 5 || in == 2000; i++) {
            struct tdm__incoming *incoming = tdm__mailbox_pop(&mailbox);

            if (incoming == NULL) {
                break;
            }
            assert_ptr_equal(incoming, call_number(out++));
        }
    }
    assert_int_equal(out, 2000);
    tdm__mailbox_fini(&mailbox);
}

static void a_full_mailbox_refuses_and_keeps_what_it_has(void **state)
{
    struct tdm__mailbox mailbox;

    (void)state;
    tdm__mailbox_init(&mailbox, 100);
    for (uintptr_t i = 0; i < 100; i++) {
        assert_int_equal(tdm__mailbox_push(&mailbox, call_number(i)), TDM_OK);
    }
    assert_int_equal(tdm__mailbox_push(&mailbox, call_number(100)), TDM_E_AGAIN);
    assert_string_equal(tdm_error_detail(), "the mailbox is full: 100 calls wait");
    for (uintptr_t i = 0; i < 100; i++) {
        assert_ptr_equal(tdm__mailbox_pop(&mailbox), call_number(i));
    }
    assert_null(tdm__mailbox_pop(&mailbox));
    tdm__mailbox_fini(&mailbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_leave_in_the_order_they_came),
        cmocka_unit_test(a_full_mailbox_refuses_and_keeps_what_it_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
