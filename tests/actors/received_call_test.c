/* received_call_test.c - arguments that are set are not parsed again, and end with their call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/received_call.h"

#include "runtime/free_list.h"
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_a_call_is_queued_until_its_method_begins(void **state)
{
    tdm_call call = {.state = TDM__CALL_HELD};

    (void)state;
    assert_true(tdm__call_is_queued(&call));
    call.state = TDM__CALL_WAITING;
    assert_true(tdm__call_is_queued(&call));
    call.state = TDM__CALL_RUNNING;
    assert_false(tdm__call_is_queued(&call));
    call.state = TDM__CALL_RETURNED;
    assert_false(tdm__call_is_queued(&call));
}

static void test_a_freed_call_releases_its_references(void **state)
{
    struct object_fixture *scene = *state;
    tdm_call *call = tdm__free_list_alloc_zeroed(sizeof(*call));
    tdm_document *document;
    tdm_ref *ref;

    assert_non_null(call);
    assert_int_equal(tdm_put(scene->runtime, &ref, "i", (int64_t)7), TDM_OK);
    assert_int_equal(tdm__pins_add(&call->pins, ref), TDM_OK);
    assert_int_equal(tdm__pins_add(&call->reply_pins, ref), TDM_OK);
    assert_int_equal(tdm_document_parse((struct tdm_bytes){"\x91\x07", 2}, &document), TDM_OK);
    call->document = document;
    assert_int_equal(tdm__call_parse(call), TDM_OK); /* The arguments are set already. */
    assert_ptr_equal(call->document, document);
    assert_int_equal(atomic_load(&ref->holders_count), 3);
    tdm__call_free(call);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call_is_queued_until_its_method_begins),
        OBJECT_FIXTURE_TEST(test_a_freed_call_releases_its_references),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
