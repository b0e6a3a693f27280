/* lifetimes_test.c - actors restarted, released, stopped; seen from their node's daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/actor_spec.h"
#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "runtime/messages/messages.h"
#include "tests/support/actor_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEALTH_MS = 1500 };

static tdm_runtime *runtime;

/* ---- an actor that comes back ----------------------------------------------------------- */

static tdm_status phoenix_construct(tdm_call *call, void *self)
{
    const char *word = tdm_value_string(tdm_value_at(tdm_call_arguments(call), 0), "");
    struct tdm_runtime_info info;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    if (strcmp(word, "once") == 0 && info.restarts_count > 0) {
        return tdm_fail(TDM_E_METHOD, "no second life");
    }
    return TDM_OK;
}

/* (restarts so far, job, class) */
static tdm_status phoenix_about(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    return tdm_call_reply(call, "iss", (int64_t)info.restarts_count, info.job_id, info.class_name);
}

/* A background process that nothing in its environment connects with this actor. */
static tdm_status phoenix_hide(tdm_call *call, void *self)
{
    static char *const nothing[] = {NULL};
    int report[2];
    pid_t pid;

    (void)self;
    if (pipe(report) < 0) {
        return tdm_fail(TDM_E_IO, "pipe");
    }
    pid = fork();
    if (pid == 0 && setsid() > 0 && fork() == 0) {
        pid = getpid();
        (void)!write(report[1], &pid, sizeof(pid));
        (void)execle("/bin/sleep", "sleep", "1000", (char *)NULL, nothing);
    }
    if (pid == 0 || getpid() == pid) {
        _exit(0);
    }
    if (pid < 0 || read(report[0], &pid, sizeof(pid)) != (ssize_t)sizeof(pid)) {
        return tdm_fail(TDM_E_IO, "fork");
    }
    (void)close(report[0]);
    (void)close(report[1]);
    return tdm_call_reply(call, "i", (int64_t)pid);
}

TDM_ACTOR_CLASS(phoenix, .construct = phoenix_construct,
                .methods = {{"about", phoenix_about}, {"hide", phoenix_hide}});

/* ---- asking the daemon ------------------------------------------------------------------ */

struct life {
    struct tdm__id id;
    int64_t pid;
    uint64_t incarnation;
};

static tdm_actor *make(const struct tdm_actor_options *options, const char *word,
                       struct life *life_out)
{
    struct tdm_actor_info info;
    tdm_actor *actor = NULL;

    assert_int_equal(tdm_actor_create(runtime, "phoenix", options, &actor, "s", word), TDM_OK);
    if (tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm__id_parse(info.id, &life_out->id), TDM_OK);
    life_out->pid = info.pid;
    life_out->incarnation = 0;
    return actor;
}

static tdm_status ask(const char *method, const struct tdm__id *id, int may_restart,
                      tdm_document **document_out)
{
    const struct tdm__actor_query_message query = {.actor = *id, .may_restart = may_restart != 0};
    tdm_writer *writer;
    tdm_status status;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__actor_query_encode(&query, writer), TDM_OK);
    status = tdm__runtime_call_daemon(runtime, method, tdm_writer_bytes(writer), TEST_TIMEOUT_MS,
                                      document_out);
    tdm_writer_destroy(writer);
    return status;
}

/* Asks for its description, as one whose connection to it was cut. */
static tdm_status fate(struct life *life)
{
    tdm_document *document = NULL;

    TDM_TRY(ask("actor.fate", &life->id, 0, &document));
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 8);
    life->pid = tdm_value_int(tdm_value_at(tdm_document_root(document), 0), 0);
    life->incarnation = tdm_value_uint(tdm_value_at(tdm_document_root(document), 5), 0);
    tdm_document_destroy(document);
    return TDM_OK;
}

static void die_and_return(struct life *life)
{
    uint64_t before = life->incarnation;
    int64_t pid = life->pid;

    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    if (fate(life) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    assert_int_equal(life->incarnation, before + 1);
    assert_int_not_equal(life->pid, pid);
}

/* ---- the tests -------------------------------------------------------------------------- */

static void living_actor_answers_for_itself(void **state)
{
    struct life life;
    tdm_actor *actor = make(NULL, "", &life);
    int64_t pid = life.pid;

    (void)state;
    assert_int_equal(fate(&life), TDM_OK);
    assert_int_equal(life.pid, pid);
    assert_int_equal(life.incarnation, 0);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void actor_is_restarted_up_to_max_restarts(void **state)
{
    struct tdm_runtime_info info;
    struct life life;
    tdm_actor *actor = make(
        &(struct tdm_actor_options){.name = "bird", .num_gpus = 1, .max_restarts = 2}, "", &life);
    tdm_actor *again;
    int64_t restarts;
    const char *job;
    const char *class_name;
    tdm_ref *ref;

    (void)state;
    die_and_return(&life);
    die_and_return(&life);
    assert_int_equal(tdm_actor_find(runtime, "bird", TEST_TIMEOUT_MS, &again), TDM_OK);
    assert_int_equal(tdm_actor_call(again, "about", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "iss", &restarts, &job, &class_name), TDM_OK);
    tdm_runtime_describe(runtime, &info);
    assert_int_equal(restarts, 2);
    assert_string_equal(job, info.job_id);
    assert_string_equal(class_name, "phoenix");
    tdm_ref_release(ref);
    assert_int_equal(kill((pid_t)life.pid, SIGKILL), 0);
    assert_int_equal(fate(&life), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "actor bird died"));
    tdm_actor_destroy(again);
    tdm_actor_destroy(actor);
}

static void storm_of_deaths_is_survived_and_slows_down(void **state)
{
    struct life life;
    tdm_actor *actor = make(&(struct tdm_actor_options){.max_restarts = -1}, "", &life);
    int64_t begun_ms = tdm__clock_ms();

    (void)state;
    for (int i = 0; i < 6; i++) {
        die_and_return(&life);
    }
    assert_true(tdm__clock_ms() - begun_ms >= 50 + 100 + 200 + 400);
    assert_int_equal(ask("actor.kill", &life.id, 0, NULL), TDM_OK);
    assert_true(wait_process_exit(life.pid, TEST_TIMEOUT_MS));
    assert_int_equal(fate(&life), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
}

static void kill_ends_also_what_is_being_restarted(void **state)
{
    struct life life;
    tdm_actor *actor =
        make(&(struct tdm_actor_options){.name = "late", .max_restarts = -1}, "", &life);

    (void)state;
    for (int i = 0; i < 4; i++) {
        die_and_return(&life);
    }
    assert_int_equal(kill((pid_t)life.pid, SIGKILL), 0);
    /* The next worker would start after 0.4 s. */
    assert_true(wait_process_exit(life.pid, TEST_TIMEOUT_MS));
    assert_int_equal(ask("actor.kill", &life.id, 0, NULL), TDM_OK);
    assert_int_equal(fate(&life), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
    for (int i = 0; i < 20; i++) { /* The name is free as soon as the kill returns. */
        actor = make(&(struct tdm_actor_options){.name = "late"}, "", &life);
        assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actor);
    }
}

static void kill_may_allow_the_restart(void **state)
{
    struct life life;
    tdm_actor *actor = make(&(struct tdm_actor_options){.max_restarts = 1}, "", &life);

    (void)state;
    assert_int_equal(ask("actor.kill", &life.id, 1, NULL), TDM_OK);
    assert_true(wait_process_exit(life.pid, TEST_TIMEOUT_MS));
    assert_int_equal(fate(&life), TDM_OK);
    assert_int_equal(life.incarnation, 1);
    assert_int_equal(ask("actor.kill", &life.id, 1, NULL), TDM_OK);
    assert_true(wait_process_exit(life.pid, TEST_TIMEOUT_MS));
    assert_int_equal(fate(&life), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
}

static void constructor_that_fails_again_is_the_death(void **state)
{
    struct life life;
    tdm_actor *actor = make(&(struct tdm_actor_options){.max_restarts = -1}, "once", &life);

    (void)state;
    assert_int_equal(kill((pid_t)life.pid, SIGKILL), 0);
    assert_int_equal(fate(&life), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "no second life"));
    tdm_actor_destroy(actor);
}

static void exit_of_its_own_is_no_accident(void **state)
{
    tdm_actor *actor =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.max_restarts = 1});
    struct tdm_actor_info info;
    struct life life;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm__id_parse(info.id, &life.id), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "exit", NULL, "i", (int64_t)0), TDM_OK);
    assert_true(wait_process_exit(info.pid, TEST_TIMEOUT_MS));
    assert_int_equal(fate(&life), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "exit code 0"));
    tdm_actor_destroy(actor);
}

static void released_actor_ends_gracefully(void **state)
{
    struct life life;
    tdm_actor *actor = make(&(struct tdm_actor_options){.max_restarts = -1}, "", &life);
    struct life kept;
    tdm_actor *detached =
        make(&(struct tdm_actor_options){.detached = 1, .name = "stays"}, "", &kept);

    (void)state;
    assert_int_equal(ask("actor.release", &life.id, 0, NULL), TDM_OK);
    assert_true(wait_process_exit(life.pid, TEST_TIMEOUT_MS));
    assert_int_equal(fate(&life), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "its last handle is gone"));
    assert_int_equal(ask("actor.release", &kept.id, 0, NULL), TDM_OK);
    assert_int_equal(fate(&kept), TDM_OK);
    assert_int_equal(tdm_actor_kill(detached, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(detached);
    tdm_actor_destroy(actor);
}

/* By hand, since the answer is the daemon's. */
static tdm_status create_or_get(const char *name, tdm_document **document_out)
{
    struct tdm__actor_spec *spec;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__actor_spec_create("phoenix",
                                   &(struct tdm_actor_options){.name = name, .get_if_exists = 1},
                                   (struct tdm_bytes){"\x90", 1}, &spec));
    (void)snprintf(spec->name_space, sizeof(spec->name_space), "default");
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__actor_spec_write(writer, spec);
    status = tdm__runtime_call_daemon(runtime, "actor.create", tdm_writer_bytes(writer),
                                      TEST_TIMEOUT_MS, document_out);
    tdm_writer_destroy(writer);
    tdm__actor_spec_destroy(spec);
    return status;
}

static void get_if_exists_returns_the_holder_of_the_name(void **state)
{
    struct life life;
    tdm_actor *actor = make(&(struct tdm_actor_options){.name = "only"}, "", &life);
    char id[TDM__ID_TEXT_BYTES];
    tdm_document *document;

    (void)state;
    assert_int_equal(create_or_get("only", &document), TDM_OK);
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 5);
    assert_string_equal(tdm_value_string(tdm_value_at(tdm_document_root(document), 0), ""),
                        tdm__id_text(&life.id, id));
    tdm_document_destroy(document);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
    assert_int_equal(create_or_get("only", &document), TDM_OK);
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 8);
    tdm_document_destroy(document);
}

/* Calls made before anybody knows which actor it is reach the one there is. */
static void shared_name_is_one_actor_in_one_process(void **state)
{
    enum { HANDLES = 3, CALLS = 10 };
    struct tdm_actor_options options = {.name = "shared", .get_if_exists = 1};
    tdm_actor *actors[HANDLES];
    tdm_ref *refs[HANDLES][CALLS];
    int64_t most = 0;

    (void)state;
    for (int i = 0; i < HANDLES; i++) {
        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actors[i], ""), TDM_OK);
        for (int k = 0; k < CALLS; k++) {
            assert_int_equal(tdm_actor_call(actors[i], "add", &refs[i][k], "i", (int64_t)1),
                             TDM_OK);
        }
    }
    for (int i = 0; i < HANDLES * CALLS; i++) {
        int64_t total = 0;

        assert_int_equal(tdm_get(refs[i / CALLS][i % CALLS], TEST_TIMEOUT_MS, "i", &total), TDM_OK);
        most = total > most ? total : most;
        tdm_ref_release(refs[i / CALLS][i % CALLS]);
    }
    assert_int_equal(most, HANDLES * CALLS);
    for (int i = HANDLES - 1; i > 0; i--) { /* Handles found by name do not count. */
        assert_int_equal(actor_fixture_call_int(actors[i], "pid"),
                         actor_fixture_call_int(actors[0], "pid"));
        tdm_actor_destroy(actors[i]);
    }
    assert_int_equal(actor_fixture_call(actors[0], "pid", NULL), TDM_OK);
    assert_int_equal(tdm_actor_kill(actors[0], TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actors[0]);
}

static void handle_is_passed_on_after_get_if_exists_is_decided(void **state)
{
    tdm_actor *all = actor_fixture_create(runtime, &(struct tdm_actor_options){.num_gpus = 4});
    tdm_actor *waits;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){
                                          .name = "later", .get_if_exists = 1, .num_gpus = 1},
                                      &waits, ""),
                     TDM_OK);
    assert_int_equal(tdm_actor_call(all, "echo", &ref, "h", waits), TDM_E_STATE);
    assert_int_equal(tdm_actor_kill(all, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(all);
    assert_int_equal(tdm_actor_wait_ready(waits, TEST_TIMEOUT_MS), TDM_OK);
    all = actor_fixture_create(runtime, NULL);
    assert_int_equal(tdm_actor_call(all, "echo", &ref, "h", waits), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "v", &(const tdm_value *){NULL}), TDM_OK);
    tdm_ref_release(ref);
    tdm_actor_destroy(all);
    assert_int_equal(tdm_actor_kill(waits, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(waits);
}

/* A creator that asks for the name while its holder ends gets a new actor, not a failure. */
static void name_that_is_just_given_up_is_taken(void **state)
{
    struct tdm_actor_options options = {.name = "relay race", .get_if_exists = 1};

    (void)state;
    for (int i = 0; i < 20; i++) {
        tdm_actor *first = actor_fixture_create(runtime, &options);
        tdm_actor *second;
        struct tdm_actor_info info;
        tdm_status status;

        tdm_actor_describe(first, &info);
        assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &second, ""), TDM_OK);
        status = tdm_actor_wait_ready(second, TEST_TIMEOUT_MS);
        /* The found actor may be the dying one. */
        if (status != TDM_OK && status != TDM_E_ACTOR_DIED) {
            fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
        }
        if (actor_fixture_call(second, "pid", NULL) == TDM_OK) {
            assert_int_equal(tdm_actor_kill(second, TEST_TIMEOUT_MS), TDM_OK);
        }
        tdm_actor_destroy(first);
        tdm_actor_destroy(second);
    }
}

static void unresponsive_actor_is_killed(void **state)
{
    struct life life;
    tdm_actor *actor = make(&(struct tdm_actor_options){.max_restarts = 1}, "", &life);
    int64_t pid = life.pid;

    (void)state;
    assert_true(stop_process(pid, TEST_TIMEOUT_MS));
    assert_int_equal(fate(&life), TDM_OK); /* The reply comes from the next worker. */
    assert_int_equal(life.incarnation, 1);
    assert_true(stop_process(life.pid, TEST_TIMEOUT_MS));
    assert_int_equal(fate(&life), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "it had not answered for 1500 ms"));
    tdm_actor_destroy(actor);
}

/* A background process of the actor, by fork alone or with exec. */
static int64_t stray_of(tdm_actor *actor, int with_exec)
{
    int64_t pid = 0;
    tdm_ref *ref;

    assert_int_equal(tdm_actor_call(actor, "stray", &ref, "?", with_exec), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid), TDM_OK);
    tdm_ref_release(ref);
    return pid;
}

/* An actor with a background process comes and goes; the processes of others are spared. */
static void end_another_with_background_process(void)
{
    tdm_actor *other = actor_fixture_create(runtime, NULL);
    int64_t stray = stray_of(other, 1);

    assert_int_equal(tdm_actor_kill(other, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(kill((pid_t)stray, 0), -1); /* It has ended before the actor's end is known. */
    tdm_actor_destroy(other);
}

static void background_processes_live_as_long_as_their_actor(void **state)
{
    (void)state;
    for (int forked = 0; forked < 2; forked++) { /* executed, then from a fork_server */
        tdm_actor *owner = actor_fixture_create(runtime, NULL);
        int64_t strays[2];

        for (int with_exec = 0; with_exec < 2; with_exec++) {
            strays[with_exec] = stray_of(owner, with_exec);
            end_another_with_background_process();
        }
        assert_int_equal(kill((pid_t)strays[0], 0), 0);
        assert_int_equal(kill((pid_t)strays[1], 0), 0);
        assert_int_equal(tdm_actor_kill(owner, TEST_TIMEOUT_MS), TDM_OK);
        assert_true(wait_process_exit(strays[0], TEST_TIMEOUT_MS));
        assert_true(wait_process_exit(strays[1], TEST_TIMEOUT_MS));
        tdm_actor_destroy(owner);
    }
}

static void restart_ends_background_processes_of_the_last_incarnation(void **state)
{
    tdm_actor *actor = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.max_restarts = 1, .max_task_retries = -1});
    struct tdm_actor_info info;
    struct life life = {.incarnation = 0};
    int64_t first = stray_of(actor, 1);
    int64_t second;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm__id_parse(info.id, &life.id), TDM_OK);
    life.pid = info.pid;
    die_and_return(&life);
    second = stray_of(actor, 1);
    assert_true(wait_process_exit(first, TEST_TIMEOUT_MS));
    end_another_with_background_process();
    assert_int_equal(kill((pid_t)second, 0), 0);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    assert_true(wait_process_exit(second, TEST_TIMEOUT_MS));
    tdm_actor_destroy(actor);
}

static void hidden_process_ends_with_its_actor_and_not_before(void **state)
{
    tdm_actor *older = actor_fixture_create(runtime, NULL);
    struct life life;
    tdm_actor *actor = make(NULL, "", &life);
    int64_t hidden = 0;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "hide", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &hidden), TDM_OK);
    tdm_ref_release(ref);
    end_another_with_background_process();
    assert_int_equal(kill((pid_t)hidden, 0), 0);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(kill((pid_t)hidden, 0), -1);
    assert_true(actor_fixture_call_int(older, "pid") > 1);
    tdm_actor_destroy(actor);
    tdm_actor_destroy(older);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(living_actor_answers_for_itself),
        cmocka_unit_test(actor_is_restarted_up_to_max_restarts),
        cmocka_unit_test(storm_of_deaths_is_survived_and_slows_down),
        cmocka_unit_test(kill_ends_also_what_is_being_restarted),
        cmocka_unit_test(kill_may_allow_the_restart),
        cmocka_unit_test(constructor_that_fails_again_is_the_death),
        cmocka_unit_test(exit_of_its_own_is_no_accident),
        cmocka_unit_test(released_actor_ends_gracefully),
        cmocka_unit_test(get_if_exists_returns_the_holder_of_the_name),
        cmocka_unit_test(shared_name_is_one_actor_in_one_process),
        cmocka_unit_test(handle_is_passed_on_after_get_if_exists_is_decided),
        cmocka_unit_test(name_that_is_just_given_up_is_taken),
        cmocka_unit_test(unresponsive_actor_is_killed),
        cmocka_unit_test(background_processes_live_as_long_as_their_actor),
        cmocka_unit_test(restart_ends_background_processes_of_the_last_incarnation),
        cmocka_unit_test(hidden_process_ends_with_its_actor_and_not_before),
    };
    char health[16];
    int failed;

    (void)snprintf(health, sizeof(health), "%d", (int)HEALTH_MS);
    (void)setenv("TANDEM_HEALTH_TIMEOUT_MS", health, 1);
    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
