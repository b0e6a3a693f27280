/* node_lease_test.c - a node that cannot renew its lease stops what others may take over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/runtime.h"
#include "runtime/messages/messages.h"
#include "runtime/redis/embedded.h"
#include "tests/support/actor_fixture.h"
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

#include <cmocka.h>

static struct two_nodes cluster;
static tdm_runtime *runtime;

static tdm_status fate(tdm_actor *actor, uint64_t *incarnation)
{
    struct tdm_actor_info info;
    tdm_document *document = NULL;
    struct tdm__actor_query_message query = {.may_restart = false};
    tdm_writer *writer;
    tdm_status status;

    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm__id_parse(info.id, &query.actor), TDM_OK);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__actor_query_encode(&query, writer), TDM_OK);
    status = tdm__runtime_call_daemon(runtime, "actor.await", tdm_writer_bytes(writer),
                                      TEST_TIMEOUT_MS, &document);
    tdm_writer_destroy(writer);
    if (status == TDM_OK) {
        *incarnation = tdm_value_uint(tdm_value_at(tdm_document_root(document), 5), 0);
        tdm_document_destroy(document);
    }
    return status;
}

/* Returns the fate of an actor whose process has ended. The daemon learns of the end a moment
 * later, from the actor's reaper. */
static tdm_status fate_of_ended(tdm_actor *actor, uint64_t *incarnation)
{
    tdm_status status = fate(actor, incarnation);

    for (int64_t waited_ms = 0; status == TDM_OK && waited_ms < TEST_TIMEOUT_MS; waited_ms += 5) {
        (void)poll(NULL, 0, 5);
        status = fate(actor, incarnation);
    }
    return status;
}

static int64_t pid_of(tdm_actor *actor)
{
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    return info.pid;
}

static void only_what_others_may_take_over_is_stopped(void **state)
{
    tdm_actor *plain = actor_fixture_create(runtime, NULL);
    tdm_actor *named = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "named"});
    tdm_actor *with_gpu = actor_fixture_create(runtime, &(struct tdm_actor_options){.num_gpus = 1});
    tdm_actor *returning = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.name = "back", .num_gpus = 1, .max_restarts = 1});
    pid_t redis = tdm__redis_embedded_pid(cluster.redis.server);
    uint64_t incarnation = 0;

    (void)state;
    assert_int_equal(kill(redis, SIGSTOP), 0);
    assert_true(wait_process_exit(pid_of(named), TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(pid_of(with_gpu), TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(pid_of(returning), TEST_TIMEOUT_MS));
    assert_int_equal(actor_fixture_call(plain, "pid", NULL), TDM_OK);
    assert_int_equal(fate_of_ended(named, &incarnation), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "lost its lease"));
    assert_int_equal(kill(redis, SIGCONT), 0);
    if (fate(returning, &incarnation) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    assert_int_equal(incarnation, 1);
    assert_int_equal(actor_fixture_call(plain, "pid", NULL), TDM_OK);
    tdm_actor_destroy(named);
    named =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "named", .num_gpus = 1});
    tdm_actor_destroy(returning);
    tdm_actor_destroy(with_gpu);
    tdm_actor_destroy(named);
    tdm_actor_destroy(plain);
}

/* The supervisor does it alone, while the daemon is stopped. */
static void supervisor_of_a_stopped_daemon_stops_what_others_may_take_over(void **state)
{
    struct tdm_actor_options options = {.labels = {"side=second"}};
    tdm_actor *plain = actor_fixture_create(runtime, &options);
    tdm_actor *actors[3];

    (void)state;
    options.name = "there";
    actors[0] = actor_fixture_create(runtime, &options);
    options.name = NULL;
    options.num_gpus = 1;
    actors[1] = actor_fixture_create(runtime, &options);
    options.num_gpus = 0;
    options.max_restarts = 1;
    actors[2] = actor_fixture_create(runtime, &options);
    assert_int_equal(kill(cluster.second.daemon, SIGSTOP), 0);
    for (int i = 0; i < 3; i++) {
        assert_true(wait_process_exit(pid_of(actors[i]), TEST_TIMEOUT_MS));
    }
    assert_int_equal(kill((pid_t)pid_of(plain), 0), 0);
    assert_int_equal(kill(cluster.second.daemon, SIGCONT), 0);
    for (int i = 0; i < 3; i++) {
        tdm_actor_destroy(actors[i]);
    }
    tdm_actor_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_others_may_take_over_is_stopped),
        cmocka_unit_test(supervisor_of_a_stopped_daemon_stops_what_others_may_take_over),
    };
    int failed = 1;

    if (getenv("TANDEM_WORKER") != NULL) {
        return tdm_runtime_start(NULL, &runtime) == TDM_OK; /* never returns */
    }
    actor_fixture_prepare();
    if (two_nodes_open(&cluster) == 0) {
        struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;

        options.address = cluster.first.address;
        if (tdm_runtime_start(&options, &runtime) == TDM_OK) {
            failed = cmocka_run_group_tests(tests, NULL, NULL);
        }
    }
    if (runtime == NULL) {
        (void)fprintf(stderr, "no cluster: %s\n", tdm_error_detail());
    }
    tdm_runtime_stop(runtime);
    two_nodes_close(&cluster);
    return failed + actor_fixture_clean_up();
}
