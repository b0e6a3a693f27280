/* worker_replies_test.c - the replies of all actors that were called are kept until they are
 * released. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/worker_replies.h"

#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { RANKS = 3, LONG_MS = 20000 };

/* Replies the first letter of the actor's name, nothing if that is "-", or fails if it is "!". */
static tdm_status rank_name(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    switch (info.actor_name[0]) {
    case '-':
        return TDM_OK;
    case '!':
        return tdm_fail(TDM_E_INVAL, "a reason of its own");
    default:
        return tdm_call_reply(call, "i", (int64_t)info.actor_name[0]);
    }
}

TDM_ACTOR_CLASS(rank, .state_bytes = 1, .methods = {{"name", rank_name}});

static tdm_runtime *runtime;
static struct tdm__worker_group workers;
static tdm_actor *actors[RANKS];
static struct tdm__worker_replies replies;

/* Calls the first and the last of three actors. */
static tdm_status call_first_and_last(const char *first, const char *last)
{
    workers = (struct tdm__worker_group){.runtime = runtime};
    actors[0] = one_node_actor(runtime, "rank", first, 0);
    actors[2] = one_node_actor(runtime, "rank", last, 0);
    return tdm__worker_replies_collect(&workers, actors, RANKS, "name",
                                       (struct tdm_bytes){"\x90", 1}, LONG_MS, &replies);
}

static int end_actors(void **state)
{
    (void)state;
    tdm__worker_replies_fini(&replies);
    for (uint32_t i = 0; i < RANKS; i++) {
        if (actors[i] != NULL) {
            (void)tdm_actor_kill(actors[i], LONG_MS);
            tdm_actor_destroy(actors[i]);
            actors[i] = NULL;
        }
    }
    return 0;
}

/* Returns the first number of what actor `index` replied. */
static int64_t reply_of(uint32_t index)
{
    return tdm_value_int(tdm_value_at(tdm__worker_replies_value(&replies, index), 0), 0);
}

static void reply_has_the_index_of_its_actor(void **state)
{
    (void)state;
    TRY(call_first_and_last("a", "c"));
    assert_int_equal(replies.count, RANKS);
    assert_int_equal(reply_of(0), 'a');
    assert_null(replies.refs[1]);
    assert_int_equal(reply_of(2), 'c');
}

static void failure_of_one_actor_is_returned(void **state)
{
    (void)state;
    assert_int_equal(call_first_and_last("a", "!"), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "a reason of its own"));
}

static void released_replies_are_empty(void **state)
{
    (void)state;
    TRY(call_first_and_last("a", "-"));
    tdm__worker_replies_fini(&replies);
    assert_null(replies.refs);
    assert_int_equal(replies.count, 0);
    tdm__worker_replies_fini(&replies);
}

#define EACH(test) cmocka_unit_test_teardown(test, end_actors)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(reply_has_the_index_of_its_actor),
        EACH(failure_of_one_actor_is_returned),
        EACH(released_replies_are_empty),
    };
    int failed;

    runtime = one_node_start(32 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
