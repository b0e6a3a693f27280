/* store_snapshot_test.c - the cluster's Redis comes back with an older state, while the nodes and
 * their actors go on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include "runtime/clock.h"
#include "runtime/redis/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { SETTLE_MS = 2000, PATH_BYTES = 512 };

static struct two_nodes cluster;
static tdm_runtime *runtime; /* Runtime of a driver on the first node. */

/* ---- snapshots -------------------------------------------------------------------------- */

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    ssize_t got;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(in >= 0 && out >= 0);
    while ((got = read(in, bytes, sizeof(bytes))) > 0) {
        assert_int_equal(write(out, bytes, (size_t)got), got);
    }
    assert_int_equal(got, 0);
    (void)close(in);
    (void)close(out);
}

/* Copies the files of a directory into another, which is emptied first. */
static void copy_files(const char *from, const char *to)
{
    DIR *files;
    struct dirent *file;

    remove_tree(to);
    assert_int_equal(mkdir(to, 0700), 0);
    files = opendir(from);
    assert_non_null(files);
    while ((file = readdir(files)) != NULL) {
        char source[PATH_BYTES];
        char target[PATH_BYTES];

        if (file->d_name[0] != '.') {
            (void)snprintf(source, sizeof(source), "%s/%s", from, file->d_name);
            (void)snprintf(target, sizeof(target), "%s/%s", to, file->d_name);
            copy_file(source, target);
        }
    }
    (void)closedir(files);
}

/* The server writes its file before it replies, so the files have everything that was replied to.
 */
static void take_snapshot(void)
{
    char data[PATH_BYTES];
    char copy[PATH_BYTES];

    (void)snprintf(data, sizeof(data), "%s/redis/appendonlydir", cluster.redis.directory);
    (void)snprintf(copy, sizeof(copy), "%s/snapshot", cluster.redis.directory);
    copy_files(data, copy);
}

/* Kills the server, which is started again at once by the loop of this process. */
static void restart_server(void (*change)(void))
{
    pid_t pid = tdm__redis_embedded_pid(cluster.redis.server);

    assert_int_equal(kill(pid, SIGSTOP), 0);
    if (change != NULL) {
        change();
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (store_read(&cluster.redis.base, "node/*").status != TDM_OK ||
           tdm__redis_embedded_pid(cluster.redis.server) == pid) {
        store_run_for(&cluster.redis.base, 10);
    }
}

static void put_snapshot_back(void)
{
    char data[PATH_BYTES];
    char copy[PATH_BYTES];

    (void)snprintf(data, sizeof(data), "%s/redis/appendonlydir", cluster.redis.directory);
    (void)snprintf(copy, sizeof(copy), "%s/snapshot", cluster.redis.directory);
    copy_files(copy, data);
}

static void delete_data(void)
{
    char data[PATH_BYTES];

    (void)snprintf(data, sizeof(data), "%s/redis/appendonlydir", cluster.redis.directory);
    remove_tree(data);
}

/* ---- tests ------------------------------------------------------------------------------ */

static tdm_actor *on_first_node(const char *name, double gpus)
{
    tdm_actor *actor;

    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){
                                          .name = name, .num_gpus = gpus, .labels = {"side=first"}},
                                      &actor, ""),
                     TDM_OK);
    return actor;
}

static void expect_ready(tdm_actor *actor)
{
    tdm_status status = tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS);

    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

static void end(tdm_actor *actor)
{
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void no_gpu_is_booked_twice(void **state)
{
    tdm_actor *holder;
    tdm_actor *second;
    int64_t pid;

    (void)state;
    take_snapshot();
    holder = on_first_node("holder", 2);
    expect_ready(holder);
    pid = actor_fixture_call_int(holder, "pid");
    restart_server(put_snapshot_back);
    second = on_first_node(NULL, 1);
    assert_int_equal(tdm_actor_wait_ready(second, SETTLE_MS), TDM_E_TIMEOUT);
    assert_int_equal(actor_fixture_call_int(holder, "pid"), pid);
    end(holder);
    expect_ready(second);
    end(second);
}

static void name_of_an_actor_that_has_ended_becomes_free(void **state)
{
    tdm_actor *actor = on_first_node("brief", 1);
    tdm_actor *next;

    (void)state;
    expect_ready(actor);
    take_snapshot();
    end(actor);
    restart_server(put_snapshot_back);
    next = on_first_node("brief", 2);
    expect_ready(next);
    end(next);
}

/* The snapshot says that the name belongs to an actor of the second node. */
static void actor_that_got_a_name_since_keeps_it(void **state)
{
    tdm_actor *before = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.name = "handed", .labels = {"side=second"}});
    tdm_actor *after;
    tdm_actor *other;
    int64_t pid;

    (void)state;
    take_snapshot();
    end(before);
    after = on_first_node("handed", 1);
    expect_ready(after);
    pid = actor_fixture_call_int(after, "pid");
    restart_server(put_snapshot_back);
    other = on_first_node("handed", 0);
    assert_int_equal(tdm_actor_wait_ready(other, TEST_TIMEOUT_MS), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), "\"handed\""));
    tdm_actor_destroy(other);
    assert_int_equal(actor_fixture_call_int(after, "pid"), pid);
    end(after);
}

/* The snapshot says that the actor runs on a node that has been lost since. */
static void actor_that_has_moved_since_stays_where_it_runs(void **state)
{
    struct test_node third = {.supervisor = 0};
    tdm_actor *fillers[2] = {on_first_node(NULL, 2), NULL};
    tdm_actor *actor;
    char said[1024];
    int64_t pid;
    int64_t moved_pid;

    (void)state;
    fillers[1] = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.num_gpus = 2, .labels = {"side=second"}});
    expect_ready(fillers[0]);
    assert_int_equal(test_node_start(&cluster, "third", &third, said), 0);
    actor = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.name = "mover", .num_gpus = 1, .max_restarts = 5});
    pid = actor_fixture_call_int(actor, "pid");
    end(fillers[0]);
    end(fillers[1]);
    take_snapshot();
    assert_int_equal(kill(third.daemon, SIGKILL), 0);
    assert_int_equal(wait_process_exit(pid, TEST_TIMEOUT_MS), 1);
    test_node_stop(&third);
    while (actor_fixture_call(actor, "pid", NULL) != TDM_OK) {
        (void)poll(NULL, 0, 100);
    }
    moved_pid = actor_fixture_call_int(actor, "pid");
    assert_int_not_equal(moved_pid, pid);
    restart_server(put_snapshot_back);
    for (int i = 0; i < 30; i++) {
        (void)poll(NULL, 0, 100);
        assert_int_equal(actor_fixture_call_int(actor, "pid"), moved_pid);
    }
    end(actor);
}

/* After a restart with and without data everything is as before. */
static void restarted_server_gets_the_records_again(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        tdm_actor *holder = on_first_node("holder", 2);
        tdm_actor *found;
        tdm_actor *second;
        int64_t pid;
        int64_t deadline_ms;
        tdm_status status;

        expect_ready(holder);
        pid = actor_fixture_call_int(holder, "pid");
        restart_server(i == 0 ? NULL : delete_data);
        second = on_first_node(NULL, 1);
        assert_int_equal(tdm_actor_wait_ready(second, SETTLE_MS), TDM_E_TIMEOUT);
        deadline_ms = tdm__deadline_after(TEST_TIMEOUT_MS);
        while ((status = tdm_actor_find(runtime, "holder", TEST_TIMEOUT_MS, &found)) != TDM_OK) {
            assert_int_equal(status, TDM_E_NOT_FOUND);
            assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
            (void)poll(NULL, 0, 50);
        }
        assert_int_equal(actor_fixture_call_int(found, "pid"), pid);
        tdm_actor_destroy(found);
        end(holder);
        expect_ready(second);
        end(second);
    }
}

/* Deletes the records of an actor and of its name, so that the name can be given once more. */
static void forget_actor(const char *id, const char *name)
{
    struct store_fixture own = {.loop = cluster.redis.base.loop};
    struct store_reply names;
    char key[64];
    uint32_t deleted_count = 0;

    assert_int_equal(tdm__store_redis_open(own.loop, tdm__redis_embedded_url(cluster.redis.server),
                                           "tandem", TEST_TIMEOUT_MS, &own.store),
                     TDM_OK);
    names = store_read(&own, "name/*");
    for (uint32_t i = 0; i < names.count; i++) {
        const char *last = strrchr(names.records[i].key, '/');

        if (last != NULL && strcmp(last + 1, name) == 0) {
            assert_int_equal(store_delete(&own, names.records[i].key, TDM__VERSION_ANY), TDM_OK);
            deleted_count++;
        }
    }
    assert_int_equal(deleted_count, 1);
    (void)snprintf(key, sizeof(key), "actor/%s", id);
    assert_int_equal(store_delete(&own, key, TDM__VERSION_ANY), TDM_OK);
    own.store->ops->close(own.store);
}

/* Creates an actor with the name that the actor `holder` of the second node has. That node may
 * write its records once more just after they were deleted. */
static tdm_actor *give_name_again(const char *holder, const char *name)
{
    for (int i = 0; i < 3; i++) {
        tdm_actor *actor;

        forget_actor(holder, name);
        actor = on_first_node(name, 0);
        if (tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS) == TDM_OK) {
            return actor;
        }
        assert_non_null(strstr(tdm_error_detail(), "is taken by actor"));
        tdm_actor_destroy(actor);
    }
    fail_msg("the name \"%s\" is not given again", name);
    return NULL;
}

/* Two nodes have given the name away, as with two Redis masters: the older grant stays. */
static void younger_holder_of_a_name_ends_with_the_reason(void **state)
{
    tdm_actor *older = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.name = "twice", .labels = {"side=second"}});
    int64_t pid = actor_fixture_call_int(older, "pid");
    int64_t deadline_ms = tdm__deadline_after(TEST_TIMEOUT_MS);
    struct tdm_actor_info info;
    char taken[128];
    tdm_actor *other;
    tdm_actor *younger;

    (void)state;
    tdm_actor_describe(older, &info);
    restart_server(NULL);
    other = on_first_node("other", 0);
    expect_ready(other); /* All names are written in the new generation. */
    younger = give_name_again(info.id, "twice");
    restart_server(NULL);
    while (actor_fixture_call(younger, "pid", NULL) == TDM_OK) {
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
        (void)poll(NULL, 0, 50);
    }
    (void)snprintf(taken, sizeof(taken), "the name \"twice\" is taken by actor %s", info.id);
    if (strstr(tdm_error_detail(), taken) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), taken);
    }
    assert_int_equal(actor_fixture_call_int(older, "pid"), pid);
    tdm_actor_destroy(younger);
    assert_int_equal(tdm_actor_find(runtime, "twice", TEST_TIMEOUT_MS, &younger), TDM_OK);
    assert_int_equal(actor_fixture_call_int(younger, "pid"), pid);
    tdm_actor_destroy(younger);
    end(older);
    end(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_gpu_is_booked_twice),
        cmocka_unit_test(name_of_an_actor_that_has_ended_becomes_free),
        cmocka_unit_test(actor_that_got_a_name_since_keeps_it),
        cmocka_unit_test(actor_that_has_moved_since_stays_where_it_runs),
        cmocka_unit_test(restarted_server_gets_the_records_again),
        cmocka_unit_test(younger_holder_of_a_name_ends_with_the_reason),
    };
    int failed = 1;

    (void)setenv("TANDEM_LEASE_MS", "5000", 1);
    runtime = two_nodes_join(&cluster);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed + two_nodes_leave(&cluster, runtime);
}
