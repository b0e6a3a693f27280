/* store_completion_test.c - completions run later, in order, once, with the text of their failure.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/completion.h"

#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { TOLD_BYTES = 512 };

static struct tdm__loop *loop;
static struct tdm__store_completions *outcomes;
/* One word for each callback, in the order in which they ran. */
static char told[TOLD_BYTES];
/* Whether the next callback of a read destroys the queue. */
static bool destroys;

static int set_up(void **state)
{
    (void)state;
    told[0] = '\0';
    destroys = false;
    return tdm__loop_create(&loop) != TDM_OK ||
           tdm__store_completions_create(loop, &outcomes) != TDM_OK;
}

static int tear_down(void **state)
{
    (void)state;
    if (outcomes != NULL) {
        tdm__store_completions_destroy(outcomes);
    }
    outcomes = NULL;
    tdm__loop_destroy(loop);
    return 0;
}

static void tell(const char *name, tdm_status status, const char *more)
{
    size_t used = strlen(told);

    (void)snprintf(told + used, sizeof(told) - used, "%s %d %s;", name, (int)status,
                   status == TDM_OK ? more : tdm_error_detail());
}

static void on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                    uint32_t records_count)
{
    tell(arg, status, records_count > 0 ? records[0].key : "nothing");
    if (destroys) {
        struct tdm__store_completions *all = outcomes;

        outcomes = NULL;
        tdm__store_completions_destroy(all);
    }
}

static uint32_t losers_count; /* Of all commits that were told. */

static void on_commit(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "version %llu", (unsigned long long)committed->version);
    tell(arg, status, text);
    losers_count += committed->losers_count;
    assert_true(status == TDM_OK || committed->version == TDM__VERSION_NONE);
}

static void on_change(void *arg, const char *key)
{
    tell(arg, TDM_OK, key);
}

static void read_fails(const char *name, const char *why)
{
    struct tdm__store_completion *outcome =
        tdm__store_completion_of_read(on_read, (void *)(uintptr_t)name);

    tdm__store_completions_add(outcomes, outcome, tdm__fail(TDM_E_TIMEOUT, "%s", why), NULL);
}

static void round_of_loop(void)
{
    (void)tdm__loop_run(loop, NULL, NULL, 0);
}

static void replies_come_later_and_in_order(void **state)
{
    const struct tdm__store_record record = {"a/key", 3, {"x", 1}};
    struct tdm__store_completion *commit = tdm__store_completion_of_commit(on_commit, "commit");
    struct tdm__store_records *records;

    (void)state;
    assert_int_equal(tdm__store_records_copy(&record, 1, &records), TDM_OK);
    tdm__store_completion_set_version(commit, 7);
    tdm__store_completions_add(outcomes, tdm__store_completion_of_read(on_read, "read"), TDM_OK,
                               records);
    tdm__store_completions_add(outcomes, commit, TDM_OK, NULL);
    tdm__store_completions_add_change(outcomes, on_change, "change", "b/key");
    assert_string_equal(told, "");
    round_of_loop();
    assert_string_equal(told, "read 0 a/key;commit 0 version 7;change 0 b/key;");
    round_of_loop();
    assert_string_equal(told, "read 0 a/key;commit 0 version 7;change 0 b/key;");
}

static void failure_keeps_its_words(void **state)
{
    struct tdm__store_completion *commit = tdm__store_completion_of_commit(on_commit, "commit");
    char expected[TOLD_BYTES];

    (void)state;
    tdm__store_completion_set_version(commit, 7);
    read_fails("read", "too late");
    tdm__store_completions_add(outcomes, commit, tdm__fail(TDM_E_CONFLICT, "somebody was faster"),
                               NULL);
    (void)tdm__fail(TDM_E_INVAL, "of something else");
    round_of_loop();
    (void)snprintf(expected, sizeof(expected), "read %d too late;commit %d somebody was faster;",
                   TDM_E_TIMEOUT, TDM_E_CONFLICT);
    assert_string_equal(told, expected);
}

static void lost_commit_tells_its_losers(void **state)
{
    const struct tdm__store_record record = {"a/key", 3, {"x", 1}};
    const tdm_status statuses[] = {TDM_E_CONFLICT, TDM_E_STORE};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct tdm__store_records *records;

        assert_int_equal(tdm__store_records_copy(&record, 1, &records), TDM_OK);
        losers_count = 0;
        tdm__store_completions_add(outcomes, tdm__store_completion_of_commit(on_commit, "commit"),
                                   tdm__fail(statuses[i], "lost"), records);
        round_of_loop();
        assert_int_equal(losers_count, i == 0 ? 1 : 0);
    }
}

static void waiting_operations_fail_at_the_end_and_changes_are_dropped(void **state)
{
    char expected[TOLD_BYTES];

    (void)state;
    tdm__store_completions_add(outcomes, tdm__store_completion_of_read(on_read, "read"), TDM_OK,
                               NULL);
    tdm__store_completions_add_change(outcomes, on_change, "change", "b/key");
    tdm__store_completions_add(outcomes, tdm__store_completion_of_commit(on_commit, "commit"),
                               TDM_OK, NULL);
    tdm__store_completions_destroy(outcomes);
    outcomes = NULL;
    (void)snprintf(expected, sizeof(expected),
                   "read %d the store was closed;commit %d the store was closed;", TDM_E_STORE,
                   TDM_E_STORE);
    assert_string_equal(told, expected);
}

static void callback_may_end_the_queue(void **state)
{
    char expected[TOLD_BYTES];

    (void)state;
    destroys = true;
    tdm__store_completions_add(outcomes, tdm__store_completion_of_read(on_read, "first"), TDM_OK,
                               NULL);
    tdm__store_completions_add(outcomes, tdm__store_completion_of_commit(on_commit, "second"),
                               TDM_OK, NULL);
    round_of_loop();
    (void)snprintf(expected, sizeof(expected), "first 0 nothing;second %d the store was closed;",
                   TDM_E_STORE);
    assert_string_equal(told, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replies_come_later_and_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failure_keeps_its_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lost_commit_tells_its_losers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waiting_operations_fail_at_the_end_and_changes_are_dropped,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(callback_may_end_the_queue, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
