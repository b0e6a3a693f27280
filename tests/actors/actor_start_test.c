/* actor_start_test.c - the environment of a new worker, and the report of its constructor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_actions.h"
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_start.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* Copies the value of a variable, "NAME=", with which the process was started. */
static void read_variable(pid_t pid, const char *name, char *value, size_t room)
{
    static char all[1 << 20];
    char path[64];
    size_t got;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    file = fopen(path, "re");
    assert_non_null(file);
    got = fread(all, 1, sizeof(all) - 1, file);
    (void)fclose(file);
    all[got] = '\0';
    for (size_t at = 0; at < got; at += strlen(all + at) + 1) {
        if (strncmp(all + at, name, strlen(name)) == 0) {
            (void)snprintf(value, room, "%s", all + at + strlen(name));
            return;
        }
    }
    fail_msg("process %d has no %s", (int)pid, name);
}

/* ---- descriptors ------------------------------------------------------------------------ */

/* Without this check actors died of various failures when the daemon had no descriptors left. */
static void actor_is_refused_with_the_number_that_is_possible(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *first = node_fixture_add(scene, ACTOR_STARTING);
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    struct remote_reply reply;
    struct rlimit before;
    struct rlimit tight;
    int next;

    node_fixture_start(first);
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &reply));
    next = dup(STDERR_FILENO);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)next + 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    tdm__actor_entry_start(entry);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(reply.detail, "the node can run 1 actors at a time"));
    assert_non_null(strstr(reply.detail, "ulimit -n"));
    tdm__actor_entry_end(first, true);
    node_fixture_run_out(scene);
}

/* ---- its devices ------------------------------------------------------------------------ */

/* What a process with these GPUs reads in CUDA_VISIBLE_DEVICES, where the daemon reads
 * `visible`. */
static void expect_devices(struct node_fixture *scene, const char *visible, const uint32_t *indices,
                           uint32_t count, const char *expected)
{
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    char text[512];

    if (visible == NULL) {
        (void)unsetenv("CUDA_VISIBLE_DEVICES");
    } else {
        (void)setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    }
    entry->record.grant.gpus_count = count;
    for (uint32_t i = 0; i < count; i++) {
        entry->record.grant.gpu_indices[i] = indices[i];
    }
    node_fixture_start(entry);
    read_variable(entry->worker->pid, "CUDA_VISIBLE_DEVICES=", text, sizeof(text));
    assert_string_equal(text, expected);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    tdm__actor_entry_end(entry, true);
    node_fixture_run_out(scene);
}

static void worker_sees_only_its_devices(void **state)
{
    const uint32_t two[] = {1, 0};
    const uint32_t far[] = {0, 5};

    expect_devices(*state, NULL, two, 2, "1,0");
    /* An actor without GPUs sees no device instead of all. */
    expect_devices(*state, NULL, NULL, 0, "");
    expect_devices(*state, "GPU-77,GPU-3f2a", two, 2, "GPU-3f2a,GPU-77");
    expect_devices(*state, "GPU-77,GPU-3f2a", NULL, 0, "");
    /* The list of visible devices is shorter than the index. */
    expect_devices(*state, "7,", far, 2, "7,5");
    expect_devices(*state, "", two, 1, "1");
}

/* Goal: CUDA sees no device in a list that names one twice, so that an actor with several GPUs that
 * share a real one is given that one once. */
static void worker_sees_a_shared_gpu_once(void **state)
{
    const uint32_t first_and_third[] = {0, 2};
    const uint32_t all[] = {0, 1, 2, 3};

    (void)setenv("TANDEM_GPU_UUIDS", "GPU-7,GPU-77,GPU-7,GPU-77", 1);
    expect_devices(*state, "GPU-7,GPU-77", first_and_third, 2, "GPU-7");
    expect_devices(*state, "GPU-7,GPU-77", all, 4, "GPU-7,GPU-77");
    expect_devices(*state, "GPU-7,GPU-77", all + 3, 1, "GPU-77");
    (void)setenv("TANDEM_GPU_UUIDS", "GPU-77,GPU-7", 1);
    expect_devices(*state, "GPU-77,GPU-7", all, 2, "GPU-77,GPU-7");
    (void)unsetenv("TANDEM_GPU_UUIDS");
}

static void worker_may_keep_the_visible_devices_of_its_node(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    char text[64];

    (void)setenv("CUDA_VISIBLE_DEVICES", "GPU-77,GPU-3f2a", 1);
    entry->spec->keep_visible_devices = true;
    node_fixture_start(entry);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    read_variable(entry->worker->pid, "CUDA_VISIBLE_DEVICES=", text, sizeof(text));
    assert_string_equal(text, "GPU-77,GPU-3f2a");
}

/* ---- no start --------------------------------------------------------------------------- */

static void failed_start_fails_all_waiting_calls(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_RESTARTING);
    struct remote_reply life;
    struct remote_reply end;

    (void)snprintf(entry->spec->program, sizeof(entry->spec->program), "/does/not/exist");
    entry->spec->max_restarts = -1; /* A restart would fail again. */
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &life));
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_END, node_fixture_incoming(scene, &end));
    tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_TIMER});
    node_fixture_run_out(scene); /* The resources have been given back. */
    assert_int_equal(remote_peer_wait(&scene->driver, &life), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(life.detail, "cannot be started on node this"));
    assert_non_null(strstr(life.detail, "/does/not/exist"));
    assert_int_equal(remote_peer_wait(&scene->driver, &end), TDM_OK);
    remote_reply_free(&end);
}

/* ---- its first words -------------------------------------------------------------------- */

static void start_clears_the_state_of_the_last_incarnation(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_RESTARTING);

    entry->lifecycle.incarnation = 2;
    entry->lifecycle.kill = ACTOR_KILLED;
    entry->ping = (const struct ping *)entry; /* only compared */
    (void)snprintf(entry->failure, sizeof(entry->failure), "of the life before");
    node_fixture_start(entry);
    assert_int_equal(entry->lifecycle.kill, ACTOR_NOT_KILLED);
    assert_null(entry->ping);
    assert_string_equal(entry->failure, "");
}

static void waiting_call_gets_the_address_of_the_started_actor(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    char node[TDM__ID_TEXT_BYTES];
    struct remote_reply reply;
    const tdm_value *value;

    entry->lifecycle.incarnation = 4;
    entry->record.grant.gpus_count = 1;
    entry->record.grant.gpu_indices[0] = 6;
    node_fixture_start(entry);
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &reply));
    tdm__actor_entry_constructed(entry, 4711, TDM_OK, "", "unix:/here", NULL);
    assert_int_equal(entry->lifecycle.state, ACTOR_ALIVE);
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_OK);
    value = remote_reply_value(&reply);
    assert_int_equal(tdm_value_count(value), 8);
    assert_int_equal(tdm_value_int(tdm_value_at(value, 0), 0), 4711);
    assert_string_equal(tdm_value_string(tdm_value_at(value, 1), ""),
                        tdm__id_text(&scene->node.record.id, node));
    assert_int_equal(tdm_value_int(tdm_value_at(tdm_value_at(value, 2), 0), -1), 6);
    assert_string_equal(tdm_value_string(tdm_value_at(value, 3), ""), "unix:/here");
    assert_int_equal(tdm_value_kind_of(tdm_value_at(value, 4)), TDM_NIL);
    assert_int_equal(tdm_value_uint(tdm_value_at(value, 5), 0), 4);
    remote_reply_free(&reply);
}

/* It was asked to leave while it was made. */
static void ending_actor_does_not_become_alive(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);

    node_fixture_start(entry);
    tdm__actor_entry_end(entry, false);
    node_fixture_construct(entry);
    assert_int_equal(entry->lifecycle.state, ACTOR_ENDING);
}

static void failed_constructor_is_reported_with_the_end(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    struct remote_reply reply;

    entry->spec->max_restarts = -1;
    node_fixture_start(entry);
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &reply));
    tdm__actor_entry_constructed(entry, entry->worker->pid, TDM_E_INVAL, "no such model", NULL,
                                 NULL);
    node_fixture_settle(scene);
    assert_int_equal(reply.count, 0); /* The death is reported after the process has ended. */
    assert_int_equal(kill(entry->worker->pid, SIGKILL), 0);
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(reply.detail, "no such model"));
    node_fixture_run_out(scene); /* The actor is not restarted. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(actor_is_refused_with_the_number_that_is_possible),
        NODE_FIXTURE_TEST(worker_sees_only_its_devices),
        NODE_FIXTURE_TEST(worker_sees_a_shared_gpu_once),
        NODE_FIXTURE_TEST(worker_may_keep_the_visible_devices_of_its_node),
        NODE_FIXTURE_TEST(failed_start_fails_all_waiting_calls),
        NODE_FIXTURE_TEST(start_clears_the_state_of_the_last_incarnation),
        NODE_FIXTURE_TEST(waiting_call_gets_the_address_of_the_started_actor),
        NODE_FIXTURE_TEST(ending_actor_does_not_become_alive),
        NODE_FIXTURE_TEST(failed_constructor_is_reported_with_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
