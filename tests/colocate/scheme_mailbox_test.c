/* scheme_mailbox_test.c - messages, waits for them, and prefixes that are closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/mailbox.h"

#include "runtime/clock.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { SOON_MS = 10000 };

static tdm_runtime *runtime;
static tdm_actor *mailbox;

static void put(const char *key, uint64_t value)
{
    tdm_ref *done;

    TRY(tdm_actor_call(mailbox, "put", &done, "s(u)", key, value));
    TRY(tdm__mailbox_await_done(done, tdm__deadline_after(SOON_MS)));
}

static uint64_t read_note(const char *key)
{
    const tdm_value *value;
    uint64_t number;
    tdm_ref *ref;

    TRY(tdm__mailbox_read_message(mailbox, key, tdm__deadline_after(SOON_MS), &ref, &value));
    number = tdm_value_uint(tdm_value_at(value, 0), UINT64_MAX);
    tdm_ref_release(ref);
    return number;
}

/* Checks the keys that a wait found, in their order. */
static void assert_found(tdm_ref *ref, const char *keys)
{
    struct tdm__message_list messages;
    char found[256] = "";

    TRY(tdm__mailbox_get_messages(ref, SOON_MS, &messages));
    for (uint32_t i = 0; i < messages.count; i++) {
        const char *key;

        (void)tdm__mailbox_message_at(&messages, i, &key);
        (void)strncat(found, key, sizeof(found) - strlen(found) - 1);
    }
    assert_string_equal(found, keys);
    tdm_ref_release(ref);
}

static tdm_ref *wait_for(const char *prefix, const char *after, uint64_t count)
{
    tdm_ref *ref;

    TRY(tdm__mailbox_wait_messages(mailbox, prefix, after, count, &ref));
    return ref;
}

static void note_is_read_and_replaced(void **state)
{
    (void)state;
    put("one/a", 1);
    put("one/a", 2);
    assert_int_equal(read_note("one/a"), 2);
    assert_found(wait_for("one/", "", 0), "one/a");
}

static void waiting_read_is_answered_when_enough_messages_exist(void **state)
{
    tdm_ref *two = wait_for("some/", "", 2);
    tdm_ref *late = wait_for("some/", "some/2", 1);
    uint8_t done = 0;

    (void)state;
    put("some/1", 1);
    assert_int_equal(tdm_wait(&two, 1, 1, 20, &done), TDM_E_TIMEOUT);
    put("some/2", 1);
    assert_found(two, "some/1some/2");
    assert_int_equal(tdm_wait(&late, 1, 1, 20, &done), TDM_E_TIMEOUT);
    put("some/3", 1);
    assert_found(late, "some/3");
    assert_found(wait_for("nothing/", "", 0), "");
}

static void closed_prefix_fails_waiting_and_later_reads(void **state)
{
    tdm_ref *early = wait_for("shut/1/x", "", 1);
    tdm_ref *other = wait_for("shut/", "", 9);
    uint8_t done = 0;

    (void)state;
    put("shut/1/y", 1);
    TRY(tdm__mailbox_close(mailbox, "shut/1/", TDM_E_ABORTED, "it is over", NULL));
    assert_int_equal(tdm_get(early, SOON_MS, ""), TDM_E_ABORTED);
    assert_string_equal(tdm_error_detail(), "it is over");
    tdm_ref_release(early);
    early = wait_for("shut/1/y", "", 1);
    assert_int_equal(tdm_get(early, SOON_MS, ""), TDM_E_ABORTED);
    tdm_ref_release(early);
    /* This wait has another prefix. */
    assert_int_equal(tdm_wait(&other, 1, 1, 20, &done), TDM_E_TIMEOUT);
    TRY(tdm_cancel(other, 0));
    tdm_ref_release(other);
    put("gone/1", 1);
    TRY(tdm__mailbox_close(mailbox, "gone/", TDM_OK, "", NULL));
    /* The messages were removed and may be put again. */
    assert_found(wait_for("gone/", "", 0), "");
    put("gone/1", 2);
    assert_int_equal(read_note("gone/1"), 2);
}

static void only_the_newest_ends_are_remembered(void **state)
{
    char key[32];
    uint8_t done = 0;
    tdm_ref *ref;

    (void)state;
    for (int i = 0; i <= TDM__MAILBOX_CLOSED_MAX; i++) {
        (void)snprintf(key, sizeof(key), "many/%d/", i);
        TRY(tdm__mailbox_close(mailbox, key, TDM_E_ABORTED, key, NULL));
    }
    ref = wait_for(key, "", 1);
    assert_int_equal(tdm_get(ref, SOON_MS, ""), TDM_E_ABORTED);
    tdm_ref_release(ref);
    ref = wait_for("many/0/", "", 1);
    assert_int_equal(tdm_wait(&ref, 1, 1, 20, &done), TDM_E_TIMEOUT);
    TRY(tdm_cancel(ref, 0));
    tdm_ref_release(ref);
}

static void reference_stays_as_long_as_its_note(void **state)
{
    const tdm_value *value;
    uint64_t number;
    tdm_ref *done;
    tdm_ref *ref;
    tdm_ref *inner;

    (void)state;
    TRY(tdm_put(runtime, &inner, "u", (uint64_t)42));
    TRY(tdm_actor_call(mailbox, "put", &done, "s(R)", "ref", inner));
    TRY(tdm__mailbox_await_done(done, tdm__deadline_after(SOON_MS)));
    tdm_ref_release(inner);
    TRY(tdm__mailbox_read_message(mailbox, "ref", tdm__deadline_after(SOON_MS), &ref, &value));
    TRY(tdm_value_ref(runtime, tdm_value_at(value, 0), &inner));
    TRY(tdm_get(inner, SOON_MS, "u", &number));
    assert_int_equal(number, 42);
    tdm_ref_release(inner);
    tdm_ref_release(ref);
}

static void refuses(const char *method, const char *format, ...)
{
    tdm_writer *writer;
    tdm_ref *ref;
    va_list args;

    TRY(tdm_writer_create(&writer));
    va_start(args, format);
    TRY(tdm_pack_va(writer, format, args));
    va_end(args);
    TRY(tdm_actor_call_packed(mailbox, method, tdm_writer_bytes(writer), &ref));
    assert_int_equal(tdm_get(ref, SOON_MS, ""), TDM_E_PROTOCOL);
    tdm_ref_release(ref);
    tdm_writer_destroy(writer);
}

static void malformed_calls_are_refused_and_the_mailbox_lives_on(void **state)
{
    (void)state;
    refuses("put", "nu", (uint64_t)1); /* Texts must not be nil. */
    refuses("wait", "nsu", "", (uint64_t)1);
    refuses("close", "nis", (int64_t)TDM_E_END, "over");
    refuses("put", "s", "key");
    put("still/here", 3);
    assert_int_equal(read_note("still/here"), 3);
}

static void mailbox_is_found_by_its_name_until_the_deadline(void **state)
{
    tdm_actor *found;

    (void)state;
    TRY(tdm__mailbox_find(runtime, "the mailbox", tdm__deadline_after(SOON_MS), &found));
    tdm_actor_destroy(found);
    assert_int_equal(tdm__mailbox_find(runtime, "no mailbox", tdm__deadline_after(50), &found),
                     TDM_E_TIMEOUT);
    assert_int_equal(tdm__mailbox_create(runtime, "the mailbox", SOON_MS, &found), TDM_E_EXISTS);
    assert_int_equal(tdm__mailbox_close(mailbox, "", TDM_E_END, "all over", NULL), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(note_is_read_and_replaced),
        cmocka_unit_test(waiting_read_is_answered_when_enough_messages_exist),
        cmocka_unit_test(closed_prefix_fails_waiting_and_later_reads),
        cmocka_unit_test(only_the_newest_ends_are_remembered),
        cmocka_unit_test(reference_stays_as_long_as_its_note),
        cmocka_unit_test(malformed_calls_are_refused_and_the_mailbox_lives_on),
        cmocka_unit_test(mailbox_is_found_by_its_name_until_the_deadline),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    TDM_CHECK(tdm__mailbox_create(runtime, "the mailbox", SOON_MS, &mailbox));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_actor_destroy(mailbox);
    tdm_runtime_stop(runtime);
    return failed;
}
