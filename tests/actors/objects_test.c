/* objects_test.c - calls of the service "object" are told from others, and values outlive it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/objects.h"

#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static void test_calls_of_other_services_are_left_alone(void **state)
{
    static const char *const methods[] = {"object.settled", "object.return", "object.read",
                                          "object.get"};
    struct object_fixture *scene = *state;
    struct remote_peer borrower;
    struct remote_reply reply;

    object_fixture_borrower(scene, &borrower);
    for (uint32_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        /* The service replies, if only that one number is not what it expects. */
        assert_int_not_equal(remote_peer_call(&borrower, methods[i], "i", (int64_t)5),
                             TDM_E_NOT_FOUND);
        assert_null(scene->last);
    }
    remote_peer_ask(&borrower, &reply, "object.unknown", "");
    object_fixture_settle(scene);
    assert_non_null(scene->last);
    tdm__incoming_reply_pack(scene->last, "");
    scene->last = NULL;
    TRY(remote_peer_wait(&borrower, &reply));
    remote_reply_free(&reply);
    remote_peer_close(&borrower);
}

static void test_a_runtime_can_lose_its_objects_twice(void **state)
{
    struct object_fixture *scene = *state;
    const tdm_value *value;
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)3));
    tdm__objects_destroy(scene->runtime);
    assert_null(scene->runtime->objects);
    assert_null(scene->runtime->memory);
    TRY(tdm_get_value(ref, 0, &value)); /* The value is kept by its reference. */
    tdm_ref_release(ref);
    tdm__objects_destroy(scene->runtime);
    /* The fixture counts entries at its end. */
    TRY(tdm__objects_create(scene->runtime, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(test_calls_of_other_services_are_left_alone),
        OBJECT_FIXTURE_TEST(test_a_runtime_can_lose_its_objects_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
