/* silent_node_test.c - a node all of whose processes stop: unreachable first, then lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/records.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/node_processes.h"
#include "tests/support/two_nodes.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    UNREACHABLE_MS = 1000,
    POKE_MS = 500 /* How long a poker waits for the reply of its target. */
};

static struct two_nodes cluster;
static tdm_runtime *runtime;

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* On the second node, by a label or, if it may move, by an affinity to the node `node_id`. */
static tdm_actor *make_there(const struct tdm_actor_options *wanted, const char *node_id)
{
    struct tdm_actor_options options = *wanted;

    if (node_id == NULL) {
        options.labels[0] = "side=second";
    } else {
        options.scheduling = TDM_SCHEDULE_NODE_SOFT;
        options.node_id = node_id;
    }
    return actor_fixture_create(runtime, &options);
}

/* Waits until a call without retries succeeds, and returns its result. */
static int64_t eventually(tdm_actor *actor, const char *method)
{
    int64_t deadline_ms = now_ms() + TEST_TIMEOUT_MS;
    int64_t result = -1;
    tdm_status status;

    do {
        tdm_ref *ref = NULL;

        status = tdm_actor_call(actor, method, &ref, "");
        if (status == TDM_OK) {
            status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &result);
        }
        tdm_ref_release(ref);
        (void)poll(NULL, 0, status == TDM_OK ? 0 : 50);
    } while (status != TDM_OK && now_ms() < deadline_ms);
    assert_int_equal(status, TDM_OK);
    return result;
}

/* The lease outlives the stop, so nothing is lost. */
static void calls_to_a_silent_node_end_in_time_and_retried_ones_wait(void **state)
{
    const struct tdm_call_options once_more = {.max_retries = 1};
    tdm_actor *actor = make_there(&(struct tdm_actor_options){0}, NULL);
    int64_t began_ms = now_ms();
    tdm_ref *plain;
    tdm_ref *retried;
    tdm_ref *late;
    int64_t total = 0;

    (void)state;
    node_processes_signal(cluster.second.supervisor, SIGSTOP);
    assert_int_equal(tdm_actor_call(actor, "pid", &plain, ""), TDM_OK);
    assert_int_equal(tdm_actor_call_with(actor, "add", &once_more, &retried, "i", (int64_t)3),
                     TDM_OK);
    assert_int_equal(tdm_get(plain, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_UNAVAILABLE);
    assert_in_range(now_ms() - began_ms, UNREACHABLE_MS / 2, UNREACHABLE_MS * 12 / 10 + 1000);
    assert_non_null(strstr(tdm_error_detail(), "node second has not answered node first for"));
    assert_non_null(strstr(tdm_error_detail(), "it counts as lost when"));
    tdm_ref_release(plain);
    assert_int_equal(tdm_actor_call(actor, "pid", &late, ""), TDM_E_ACTOR_UNAVAILABLE);
    assert_int_equal(tdm_get(retried, 50, ""), TDM_E_TIMEOUT);
    node_processes_signal(cluster.second.supervisor, SIGCONT);
    assert_int_equal(tdm_get(retried, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    assert_int_equal(total, 3);
    tdm_ref_release(retried);
    (void)eventually(actor, "pid");
    tdm_actor_destroy(actor);
}

/* Returns whether the list of actors has the actor once, DEAD, with a cause that names the node. */
static bool is_listed_as_lost(const char *id)
{
    const struct tdm_actor_state *actors;
    uint32_t actors_count;
    uint32_t found_count = 0;

    assert_int_equal(tdm_list_actors(runtime, TEST_TIMEOUT_MS, &actors, &actors_count, NULL),
                     TDM_OK);
    for (uint32_t i = 0; i < actors_count; i++) {
        if (strcmp(actors[i].id, id) == 0 && strcmp(actors[i].state, "DEAD") == 0) {
            assert_string_equal(actors[i].node_name, "second");
            assert_non_null(strstr(actors[i].death_cause, "is lost with its node second"));
            found_count++;
        }
    }
    tdm_list_free(actors);
    return found_count == 1;
}

/* Waits until that is so: the node itself may list the actor as ENDING when it goes on. */
static void wait_until_listed_as_lost(const char *id)
{
    int64_t deadline_ms = now_ms() + TEST_TIMEOUT_MS;

    while (!is_listed_as_lost(id)) {
        assert_true(now_ms() < deadline_ms);
        (void)poll(NULL, 0, 20);
    }
}

/* ---- a class that acts on another actor when it is allowed to ---------------------------- */

struct poker {
    tdm_actor *target; /* owned */
};

static tdm_status poke(const struct poker *poker, int64_t by, int64_t timeout_ms)
{
    tdm_ref *ref = NULL;
    tdm_status status = tdm_actor_call(poker->target, "add", &ref, "i", by);
    int64_t total;

    if (status == TDM_OK) {
        status = tdm_get(ref, timeout_ms, "i", &total);
    }
    tdm_ref_release(ref);
    return status;
}

/* Method hold (name): finds the actor of that name, and calls it once. */
static tdm_status poker_hold(tdm_call *call, void *self)
{
    struct poker *poker = self;
    const char *name;

    TDM_TRY(tdm_call_unpack(call, "s", &name));
    TDM_TRY(tdm_actor_find(tdm_runtime_current(), name, TEST_TIMEOUT_MS, &poker->target));
    return poke(poker, 0, TEST_TIMEOUT_MS);
}

/* Method poke (gate, done): waits for the file `gate`, adds 1 to the total of the actor that is
 * held, over the connection that is open, and then makes the file `done`. */
static tdm_status poker_poke(tdm_call *call, void *self)
{
    const char *gate;
    const char *done;
    FILE *file;

    TDM_TRY(tdm_call_unpack(call, "ss", &gate, &done));
    while (access(gate, F_OK) != 0) {
        (void)poll(NULL, 0, 5);
    }
    (void)poke(self, 1, POKE_MS);
    file = fopen(done, "we");
    return file != NULL && fclose(file) == 0 ? TDM_OK : tdm_fail(TDM_E_IO, "%s", done);
}

static void poker_destruct(void *self)
{
    tdm_actor_destroy(((struct poker *)self)->target);
}

TDM_ACTOR_CLASS(poker, .state_bytes = sizeof(struct poker), .destruct = poker_destruct,
                .methods = {{"hold", poker_hold}, {"poke", poker_poke}});

/* Creates a poker on the second node, which holds the actor "target" and waits for the file `gate`.
 */
static tdm_actor *make_poker(const char *gate, const char *done)
{
    const struct tdm_actor_options options = {.labels = {"side=second"}};
    tdm_actor *actor;
    tdm_ref *ref;

    assert_int_equal(tdm_actor_create(runtime, "poker", &options, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "hold", &ref, "s", "target"), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_OK);
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_call(actor, "poke", &ref, "ss", gate, done), TDM_OK);
    assert_int_equal(tdm_get(ref, 50, ""), TDM_E_TIMEOUT);
    tdm_ref_release(ref);
    return actor;
}

/* Makes the file `gate`, continues the poker's process, and waits for the file `done`. */
static void let_poke(tdm_actor *poker, const char *gate, const char *done)
{
    int64_t deadline_ms = now_ms() + TEST_TIMEOUT_MS;
    FILE *file = fopen(gate, "we");
    struct tdm_actor_info info;

    assert_non_null(file);
    (void)fclose(file);
    tdm_actor_describe(poker, &info);
    assert_int_equal(kill((pid_t)info.pid, SIGCONT), 0);
    while (access(done, F_OK) != 0) {
        assert_true(now_ms() < deadline_ms);
        (void)poll(NULL, 0, 5);
    }
}

static int64_t total_of(tdm_actor *actor)
{
    tdm_ref *ref;
    int64_t total = -1;

    assert_int_equal(tdm_actor_call(actor, "add", &ref, "i", (int64_t)0), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    tdm_ref_release(ref);
    return total;
}

/* Two leases; a request lies in a worker's socket meanwhile. What the worker does with it when it
 * goes on must have no effect on another node. Nor must a call of another worker over a connection
 * that it had before, while its own daemon and supervisor still stand still. */
static void lost_node_has_no_effect_on_others_when_it_goes_on(void **state)
{
    tdm_actor *target = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.name = "target", .labels = {"side=first"}});
    tdm_actor *scout = make_there(&(struct tdm_actor_options){0}, NULL);
    struct tdm_actor_info there;
    struct tdm_actor_info mortal_info;
    tdm_actor *mortal;
    tdm_actor *soft;
    tdm_ref *relayed;
    int64_t soft_pid;
    tdm_actor *poker;
    char gate[128];
    char done[128];

    (void)state;
    (void)snprintf(gate, sizeof(gate), "%s/gate", cluster.redis.directory);
    (void)snprintf(done, sizeof(done), "%s/done", cluster.redis.directory);
    poker = make_poker(gate, done);
    tdm_actor_describe(scout, &there);
    mortal = make_there(&(struct tdm_actor_options){0}, NULL);
    tdm_actor_describe(mortal, &mortal_info);
    soft = make_there(&(struct tdm_actor_options){.max_restarts = -1}, there.node_id);
    soft_pid = actor_fixture_call_int(soft, "pid");
    node_processes_signal(cluster.second.supervisor, SIGSTOP);
    assert_int_equal(tdm_actor_call(mortal, "relay", &relayed, "s", "target"), TDM_OK);
    assert_int_equal(tdm_get(relayed, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_UNAVAILABLE);
    tdm_ref_release(relayed);
    /* A handle to an actor that was restarted on another node reaches it. */
    assert_int_not_equal(eventually(soft, "pid"), soft_pid);
    assert_int_equal(actor_fixture_call(mortal, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "is lost with its node second"));
    assert_true(is_listed_as_lost(mortal_info.id));
    let_poke(poker, gate, done);
    assert_int_equal(total_of(target), 0);
    tdm_actor_destroy(poker);
    (void)poll(NULL, 0, TDM__NODE_LEASE_MS_MIN);
    node_processes_signal(cluster.second.supervisor, SIGCONT);
    assert_true(wait_process_exit(mortal_info.pid, TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(soft_pid, TEST_TIMEOUT_MS));
    assert_int_equal(total_of(target), 0);
    wait_until_listed_as_lost(mortal_info.id);
    tdm_actor_destroy(soft);
    tdm_actor_destroy(mortal);
    tdm_actor_destroy(scout);
    tdm_actor_destroy(target);
    /* The node has joined again, in a higher epoch. */
    scout = make_there(&(struct tdm_actor_options){0}, NULL);
    (void)actor_fixture_call_int(scout, "pid");
    tdm_actor_destroy(scout);
}

/* ---- a class that notes its end ---------------------------------------------------------- */

/* Writes a file, whose path is in the actor's environment. */
static void noter_destruct(void *self)
{
    FILE *file = fopen(getenv("NOTE"), "we");

    (void)self;
    if (file != NULL) {
        (void)fclose(file);
    }
}

static tdm_status noter_nothing(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "");
}

TDM_ACTOR_CLASS(noter, .destruct = noter_destruct, .methods = {{"nothing", noter_nothing}});

enum { NOTERS = 6 };

static void note_path(int index, char path[96])
{
    (void)snprintf(path, 96, "%s/note-%d", cluster.redis.directory, index);
}

/* Half of the handles are destroyed before the driver stops, the others are not. Ends the
 * runtime. */
static int stop_driver_and_count_notes(void)
{
    tdm_actor *actors[NOTERS];
    int notes_count = 0;

    for (int i = 0; i < NOTERS; i++) {
        struct tdm_actor_options options = {.labels = {i % 3 == 0 ? "side=first" : "side=second"}};
        char variable[128] = "NOTE=";

        note_path(i, variable + strlen("NOTE="));
        options.environment[0] = variable;
        tdm_check(tdm_actor_create(runtime, "noter", &options, &actors[i], ""), "create");
        tdm_check(tdm_actor_wait_ready(actors[i], TEST_TIMEOUT_MS), "noter");
    }
    for (int i = 0; i < NOTERS; i += 2) {
        tdm_actor_destroy(actors[i]);
    }
    tdm_runtime_stop(runtime);
    runtime = NULL;
    for (int i = 1; i < NOTERS; i += 2) {
        tdm_actor_destroy(actors[i]);
    }
    for (int i = 0; i < NOTERS; i++) {
        char path[96];

        note_path(i, path);
        notes_count += access(path, F_OK) == 0 ? 1 : 0;
    }
    return notes_count;
}

/* As a test of its own, because the runtime ends with it. */
static void destructors_run_on_both_nodes_when_the_driver_stops(void **state)
{
    (void)state;
    assert_int_equal(stop_driver_and_count_notes(), NOTERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_to_a_silent_node_end_in_time_and_retried_ones_wait),
        cmocka_unit_test(lost_node_has_no_effect_on_others_when_it_goes_on),
        cmocka_unit_test(destructors_run_on_both_nodes_when_the_driver_stops),
    };
    char text[16];
    int failed = 1;

    (void)snprintf(text, sizeof(text), "%d", (int)UNREACHABLE_MS);
    (void)setenv("TANDEM_UNREACHABLE_MS", text, 1);
    runtime = two_nodes_join(&cluster);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    node_processes_signal(cluster.second.supervisor, SIGCONT);
    return failed + two_nodes_leave(&cluster, runtime);
}
