/* store_watchers_test.c - each changed key is reported to all watchers of its prefixes, once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/watchers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__loop *loop;
static struct tdm__store_completions *completions;
static struct tdm__watchers watchers;
/* "WATCHER(KEY)" for each notification, in the order in which they ran. */
static char notified[512];

static int set_up(void **state)
{
    (void)state;
    notified[0] = '\0';
    watchers = (struct tdm__watchers){NULL};
    return tdm__loop_create(&loop) != TDM_OK ||
           tdm__store_completions_create(loop, &completions) != TDM_OK;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__watchers_fini(&watchers);
    tdm__store_completions_destroy(completions);
    tdm__loop_destroy(loop);
    return 0;
}

/* Notes the watcher `arg` and the key. */
static void on_change(void *arg, const char *key)
{
    size_t used = strlen(notified);

    (void)snprintf(notified + used, sizeof(notified) - used, "%s(%s)", (const char *)arg, key);
}

static tdm_status watch(const char *prefix, const char *name)
{
    return tdm__watchers_add(&watchers, prefix, on_change, (void *)(uintptr_t)name);
}

/* Runs the queued notifications. */
static void settle(void)
{
    for (int i = 0; i < 5; i++) {
        (void)tdm__loop_run(loop, NULL, NULL, 0);
    }
}

static void change(const char *key)
{
    tdm__watchers_notify_key(&watchers, completions, key);
    settle();
}

static void key_is_reported_to_the_watchers_of_its_prefixes(void **state)
{
    (void)state;
    assert_int_equal(watch("node/", "node"), TDM_OK);
    assert_int_equal(watch("node/7", "seven"), TDM_OK);
    assert_int_equal(watch("group/", "group"), TDM_OK);
    change("node/71");
    /* The order among the watchers of a key is not promised. */
    assert_int_equal(strlen(notified), strlen("node(node/71)seven(node/71)"));
    assert_non_null(strstr(notified, "node(node/71)"));
    assert_non_null(strstr(notified, "seven(node/71)"));
    notified[0] = '\0';
    change("node/");
    assert_string_equal(notified, "node(node/)");
}

static void key_that_only_begins_like_a_prefix_is_not_reported(void **state)
{
    (void)state;
    assert_int_equal(watch("node/7", "seven"), TDM_OK);
    change("node/");
    change("node/8");
    change("a/node/7");
    assert_string_equal(notified, "");
}

static void empty_prefix_watches_every_key(void **state)
{
    (void)state;
    assert_int_equal(watch("", "all"), TDM_OK);
    change("a");
    change("node/7");
    assert_string_equal(notified, "all(a)all(node/7)");
}

static void watched_prefix_keeps_its_first_watcher(void **state)
{
    (void)state;
    assert_int_equal(watch("node/", "first"), TDM_OK);
    assert_int_equal(watch("group/", "group"), TDM_OK);
    assert_int_equal(watch("node/", "second"), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), "node/"));
    change("node/1");
    assert_string_equal(notified, "first(node/1)");
}

static void invalid_prefix_is_not_watched(void **state)
{
    (void)state;
    assert_int_equal(watch("node/*", "pattern"), TDM_E_INVAL);
    assert_int_equal(watch("node\n", "line"), TDM_E_INVAL);
    assert_null(watchers.first);
}

static void prefix_may_be_overwritten_once_it_is_watched(void **state)
{
    char prefix[] = "node/";

    (void)state;
    assert_int_equal(watch(prefix, "node"), TDM_OK);
    memset(prefix, 'x', strlen(prefix));
    change("node/1");
    change("xxxxx1");
    assert_string_equal(notified, "node(node/1)");
}

static void missed_changes_are_reported_with_the_prefixes(void **state)
{
    (void)state;
    assert_int_equal(watch("", "all"), TDM_OK);
    assert_int_equal(watch("node/", "node"), TDM_OK);
    tdm__watchers_notify_all(&watchers, completions);
    assert_string_equal(notified, ""); /* A watcher runs in a later round of the loop. */
    settle();
    assert_int_equal(strlen(notified), strlen("all()node(node/)"));
    assert_non_null(strstr(notified, "all()"));
    assert_non_null(strstr(notified, "node(node/)"));
}

static void freed_list_is_empty(void **state)
{
    (void)state;
    assert_int_equal(watch("a", "a"), TDM_OK);
    assert_int_equal(watch("b", "b"), TDM_OK);
    tdm__watchers_fini(&watchers);
    change("a");
    assert_string_equal(notified, "");
    assert_int_equal(watch("a", "again"), TDM_OK);
    change("a");
    assert_string_equal(notified, "again(a)");
}

#define WATCHERS_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WATCHERS_TEST(key_is_reported_to_the_watchers_of_its_prefixes),
        WATCHERS_TEST(key_that_only_begins_like_a_prefix_is_not_reported),
        WATCHERS_TEST(empty_prefix_watches_every_key),
        WATCHERS_TEST(watched_prefix_keeps_its_first_watcher),
        WATCHERS_TEST(invalid_prefix_is_not_watched),
        WATCHERS_TEST(prefix_may_be_overwritten_once_it_is_watched),
        WATCHERS_TEST(missed_changes_are_reported_with_the_prefixes),
        WATCHERS_TEST(freed_list_is_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
