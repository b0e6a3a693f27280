/* worker_group_test.c - of many failures, the one that explains the others is told. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/worker_group.h"

#include "runtime/clock.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { RANKS = 3, LONG_MS = 20000, PROMPT_MS = 5000, SOON_MS = 1200 };

/* ---- the ranks -------------------------------------------------------------------------- */

struct member {
    int64_t calls;
};

/* (what each rank does, in order of their numbers; this one's number is its name) */
static tdm_status member_act(tdm_call *call, void *self)
{
    struct member *member = self;
    struct tdm_runtime_info info;
    const char *orders;
    char order;

    TDM_TRY(tdm_call_unpack(call, "s", &orders));
    member->calls++;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    order = orders[info.actor_name[0] - '0'];
    switch (order) {
    case 'a':
        return tdm_fail(TDM_E_ABORTED, "somebody else was lost");
    case 'i':
        return tdm_fail(TDM_E_INVAL, "a reason of its own");
    case 'd':
        (void)raise(SIGKILL);
        return TDM_OK;
    case 's': {
        const struct timespec pause = {.tv_nsec = 300000000};

        (void)nanosleep(&pause, NULL); /* A step takes a while. */
        return tdm_fail(TDM_E_INVAL, "a reason that comes late");
    }
    case 'l': {
        const struct timespec pause = {.tv_nsec = 300000000};

        (void)nanosleep(&pause, NULL);
        (void)raise(SIGKILL);
        return TDM_OK;
    }
    case 'h': {
        const struct timespec pause = {.tv_sec = 60};

        (void)nanosleep(&pause, NULL); /* The call lasts longer than the caller waits. */
        return TDM_OK;
    }
    default:
        return tdm_call_reply(call, "i", member->calls);
    }
}

TDM_ACTOR_CLASS(member, .state_bytes = sizeof(struct member), .methods = {{"act", member_act}});

/* ---- the tests -------------------------------------------------------------------------- */

static tdm_runtime *runtime;

struct fixture {
    struct tdm__worker_group workers;
    tdm_actor *actors[RANKS];
};

static int set_up(void **state)
{
    static struct fixture fixture;
    static const char *const names[RANKS] = {"0", "1", "2"};

    fixture.workers = (struct tdm__worker_group){.runtime = runtime};
    for (uint32_t i = 0; i < RANKS; i++) {
        fixture.actors[i] = one_node_actor(runtime, "member", names[i], 0);
    }
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    for (uint32_t i = 0; i < RANKS; i++) {
        (void)tdm_actor_kill(fixture->actors[i], LONG_MS);
        tdm_actor_destroy(fixture->actors[i]);
    }
    return 0;
}

static tdm_status order(struct fixture *fixture, const char *orders, int64_t timeout_ms)
{
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "s", orders));
    status = tdm__worker_group_call(&fixture->workers, fixture->actors, RANKS, "act",
                                    tdm_writer_bytes(writer), timeout_ms);
    tdm_writer_destroy(writer);
    return status;
}

static void assert_told(const char *words)
{
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

static void all_answer(void **state)
{
    TRY(order(*state, "...", LONG_MS));
    TRY(order(*state, "...", LONG_MS));
}

static void cause_explains_more_than_what_it_tore_down(void **state)
{
    assert_int_equal(order(*state, "aia", LONG_MS), TDM_E_INVAL);
    assert_told("a reason of its own");
    assert_told("act");
    /* The cause is reported although it arrives last. */
    assert_int_equal(order(*state, "aas", LONG_MS), TDM_E_INVAL);
    assert_told("a reason that comes late");
    assert_int_equal(order(*state, ".a.", LONG_MS), TDM_E_ABORTED);
}

static void death_explains_everything_else(void **state)
{
    assert_int_equal(order(*state, "iad", LONG_MS), TDM_E_ACTOR_DIED);
    assert_told("2");
}

static void one_failure_is_enough_to_stop_waiting(void **state)
{
    int64_t begin_ms = tdm__clock_ms();

    assert_int_equal(order(*state, "hi.", LONG_MS), TDM_E_INVAL);
    assert_true(tdm__clock_ms() - begin_ms < PROMPT_MS);
}

/* What came first waits a while for an explanation, but no longer than until there is one. */
static void no_reply_is_awaited_after_a_known_death(void **state)
{
    int64_t begin_ms = tdm__clock_ms();

    assert_int_equal(order(*state, "hil", LONG_MS), TDM_E_ACTOR_DIED);
    assert_told("2");
    assert_true(tdm__clock_ms() - begin_ms < SOON_MS);
}

static void the_silent_are_counted_at_the_deadline(void **state)
{
    assert_int_equal(order(*state, "hh.", 300), TDM_E_TIMEOUT);
    assert_told("2 of 3 ranks");
}

static void second_interrupt_ends_the_wait(void **state)
{
    static volatile sig_atomic_t interrupts = 2;
    struct fixture *fixture = *state;
    int64_t begin_ms = tdm__clock_ms();

    fixture->workers.interrupts = &interrupts;
    assert_int_equal(order(fixture, "h..", LONG_MS), TDM_E_CANCELED);
    assert_true(tdm__clock_ms() - begin_ms < PROMPT_MS);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(all_answer),
        EACH(cause_explains_more_than_what_it_tore_down),
        EACH(death_explains_everything_else),
        EACH(one_failure_is_enough_to_stop_waiting),
        EACH(no_reply_is_awaited_after_a_known_death),
        EACH(the_silent_are_counted_at_the_deadline),
        EACH(second_interrupt_ends_the_wait),
    };
    int failed;

    runtime = one_node_start(32 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
