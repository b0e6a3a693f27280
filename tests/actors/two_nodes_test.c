/* two_nodes_test.c - two daemons on one machine, one Redis, TCP between them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/redis/embedded.h"
#include "runtime/token.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Soft limit of descriptors with which the nodes and this driver start. */
enum { SOFT_DESCRIPTORS = 512 };

static struct two_nodes cluster;
static tdm_runtime *runtime; /* Runtime of a driver on the first node. */

/* ---- the tests -------------------------------------------------------------------------- */

static tdm_placement_group *spread(void)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 1}, {.num_gpus = 1}};
    tdm_placement_group *group = NULL;
    tdm_status status =
        tdm_placement_group_create(runtime, bundles, 2, TDM_STRICT_SPREAD, TEST_TIMEOUT_MS, &group);

    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
    return group;
}

/* Which bundle lies on the node that is not the driver's. */
static uint32_t far_bundle(const tdm_placement_group *group)
{
    struct tdm_runtime_info node;
    struct tdm_bundle_placement place;

    tdm_runtime_describe(runtime, &node);
    assert_int_equal(tdm_placement_group_locate_bundle(group, 0, &place), TDM_OK);
    return strcmp(place.node_id, node.node_id) == 0 ? 1 : 0;
}

/* Returns the soft limit of descriptors of a process, and stores the hard one. */
static uint64_t descriptors_limit_of(int64_t pid, uint64_t *hard_out)
{
    uint64_t soft = 0;
    char line[256];
    FILE *file;

    (void)snprintf(line, sizeof(line), "/proc/%lld/limits", (long long)pid);
    file = fopen(line, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "Max open files %" SCNu64 " %" SCNu64, &soft, hard_out);
    }
    (void)fclose(file);
    return soft;
}

/* They were started with a soft limit of SOFT_DESCRIPTORS, see main(). */
static void each_process_may_have_as_many_descriptors_as_the_hard_limit_allows(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    const int64_t pids[] = {getpid(), cluster.first.daemon, cluster.second.daemon,
                            actor_fixture_call_int(actor, "pid")};

    (void)state;
    for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
        uint64_t hard = 0;

        assert_true(descriptors_limit_of(pids[i], &hard) == hard);
        assert_true(hard > SOFT_DESCRIPTORS);
    }
    tdm_actor_destroy(actor);
}

/* Sends one Redis command, a line, and returns the number in the reply, which may be a text. */
static long long redis_number(const char *command)
{
    struct sockaddr_un server = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char reply[64] = "";
    const char *number;

    (void)snprintf(server.sun_path, sizeof(server.sun_path), "%s",
                   tdm__redis_embedded_url(cluster.redis.server) + strlen("unix://"));
    assert_int_equal(connect(fd, (struct sockaddr *)&server, sizeof(server)), 0);
    assert_int_equal(dprintf(fd, "%s\r\n", command), strlen(command) + 2);
    assert_true(read(fd, reply, sizeof(reply) - 1) > 0);
    assert_true(reply[0] == ':' || reply[0] == '$');
    number = reply[0] == '$' ? strchr(reply, '\n') : reply;
    assert_non_null(number);
    (void)close(fd);
    return strtoll(number + 1, NULL, 10);
}

/* The Redis server behind a new connection may have lost changes, so a daemon renews its lease
 * then, which compares the generation, and not only once a second. */
static void each_new_connection_to_redis_renews_the_lease(void **state)
{
    enum { CONNECTIONS = 10, WITHOUT_MS = 7000 };
    struct tdm_runtime_info node;
    int64_t begun_ms = tdm__clock_ms();
    char count[96];

    (void)state;
    tdm_runtime_describe(runtime, &node);
    (void)snprintf(count, sizeof(count), "HGET tdm:{tandem}:r:node/%s n", node.node_id);
    for (int i = 0; i < CONNECTIONS; i++) {
        long long before = redis_number(count);

        (void)redis_number("CLIENT KILL TYPE normal SKIPME yes");
        while (redis_number(count) == before) {
            assert_true(tdm__clock_ms() < begun_ms + WITHOUT_MS);
            (void)poll(NULL, 0, 2);
        }
    }
}

static void lists_are_of_both_nodes(void **state)
{
    tdm_placement_group *group = spread();
    struct tdm_actor_options options = {.name = "far", .num_gpus = 1, .group = group};
    const struct tdm_actor_state *actors;
    const struct tdm_node_state *nodes;
    struct tdm_runtime_info node;
    tdm_actor *actor;
    uint32_t count;
    uint32_t missing;
    int found = 0;

    (void)state;
    options.bundle = far_bundle(group);
    actor = actor_fixture_create(runtime, &options);
    tdm_runtime_describe(runtime, &node);
    assert_int_equal(tdm_list_actors(runtime, TEST_TIMEOUT_MS, &actors, &count, &missing), TDM_OK);
    assert_int_equal(missing, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(actors[i].name, "far") == 0) {
            found++;
            assert_string_equal(actors[i].state, "ALIVE");
            assert_string_not_equal(actors[i].node_id, node.node_id);
        }
    }
    assert_int_equal(found, 1);
    tdm_list_free(actors);
    assert_int_equal(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &count), TDM_OK);
    assert_int_equal(count, 2);
    tdm_list_free(nodes);
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

static void wrong_token_is_refused(void **state)
{
    char path[160];
    uint8_t token[TDM__TOKEN_BYTES];
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *own;
    pid_t child;
    int wait_status;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/wrong-token", cluster.redis.directory);
    assert_int_equal(tdm__token_create(path, token), TDM_OK);
    child = fork();
    if (child == 0) {
        (void)setenv("TANDEM_TOKEN_FILE", path, 1);
        options.address = cluster.first.address;
        _exit(tdm_runtime_start(&options, &own) == TDM_OK ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(wait_status, 0);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(setenv("TANDEM_TOKEN_FILE", path, 1), 0);
    options.address = cluster.first.address;
    assert_int_equal(tdm__token_for_address(cluster.first.address, token), TDM_E_AUTH);
    assert_non_null(strstr(tdm_error_detail(), "chmod 600"));
    assert_int_equal(setenv("TANDEM_TOKEN_FILE", cluster.token_path, 1), 0);
}

static void actors_lie_on_both_and_call_across(void **state)
{
    tdm_placement_group *group = spread();
    struct tdm_actor_info info[2];
    tdm_actor *actors[2];
    tdm_ref *ref;
    int64_t total;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        actors[i] = actor_fixture_create(
            runtime,
            &(struct tdm_actor_options){
                .num_gpus = 1, .group = group, .bundle = i, .name = i == 0 ? "left" : "right"});
        tdm_actor_describe(actors[i], &info[i]);
    }
    assert_string_not_equal(info[0].node_id, info[1].node_id);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_actor_call(actors[i], "relay", &ref, "s", i == 0 ? "right" : "left"),
                         TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
        assert_int_equal(total, 1);
        tdm_ref_release(ref);
    }
    assert_int_equal(
        tdm_actor_call(actors[far_bundle(group)], "blob", &ref, "u", UINT64_C(5000000)), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "v", &(const tdm_value *){NULL}), TDM_OK);
    tdm_ref_release(ref);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_actor_kill(actors[i], TEST_TIMEOUT_MS), TDM_OK);
        assert_int_equal(actor_fixture_call(actors[i], "pid", NULL), TDM_E_ACTOR_DIED);
        assert_true(wait_process_exit(info[i].pid, TEST_TIMEOUT_MS));
        tdm_actor_destroy(actors[i]);
    }
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

static tdm_status ask(tdm_call *call, void *self)
{
    tdm_actor *other;
    tdm_ref *ref = NULL;
    int64_t total = 0;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "h", &other));
    status = tdm_actor_call(other, "add", &ref, "i", (int64_t)5);
    if (status == TDM_OK) {
        status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &total);
    }
    tdm_ref_release(ref);
    tdm_actor_destroy(other);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", total);
}

TDM_ACTOR_CLASS(asker, .methods = {{"ask", ask}});

/* Its handle arrives on a node whose daemon, like the store, has never heard of it. */
static void handle_may_be_faster_than_its_actor(void **state)
{
    const struct tdm_actor_options whole = {.resources = {{"disk", 2}}};
    struct tdm_runtime_info here;
    struct tdm_actor_options there = {.scheduling = TDM_SCHEDULE_NODE};
    tdm_actor *holders[2] = {actor_fixture_create(runtime, &whole),
                             actor_fixture_create(runtime, &whole)};
    tdm_actor *waiting;
    tdm_actor *asker;
    tdm_ref *ref;
    struct tdm_actor_info info;
    int64_t total;

    (void)state;
    tdm_runtime_describe(runtime, &here);
    tdm_actor_describe(holders[0], &info);
    if (strcmp(info.node_id, here.node_id) == 0) {
        tdm_actor_describe(holders[1], &info);
    }
    there.node_id = info.node_id;
    assert_int_equal(tdm_actor_create(runtime, "asker", &there, &asker, ""), TDM_OK);
    assert_int_equal(tdm_actor_create(runtime, "tester", &whole, &waiting, ""), TDM_OK);
    assert_int_equal(tdm_actor_call(asker, "ask", &ref, "h", waiting), TDM_OK);
    assert_int_equal(tdm_get(ref, 100, ""), TDM_E_TIMEOUT); /* No resources are free yet. */
    assert_int_equal(tdm_actor_kill(holders[0], TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    assert_int_equal(total, 5);
    tdm_ref_release(ref);
    tdm_actor_destroy(holders[0]);
    tdm_actor_destroy(holders[1]);
    tdm_actor_destroy(waiting);
    tdm_actor_destroy(asker);
}

static void failing_constructor_on_another_node_reports_its_text(void **state)
{
    tdm_placement_group *group = spread();
    tdm_actor *actor;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.group = group,
                                                                  .bundle = far_bundle(group),
                                                                  .name = "stillborn"},
                                      &actor, "s", "broken"),
                     TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "node second"));
    assert_non_null(strstr(tdm_error_detail(), "no fuel"));
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_actor_find(runtime, "stillborn", TEST_TIMEOUT_MS, &actor),
                     TDM_E_NOT_FOUND);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

static void far_actor_is_found_while_its_constructor_runs(void **state)
{
    tdm_placement_group *group = spread();
    struct tdm_actor_options options = {
        .group = group, .bundle = far_bundle(group), .name = "far and slow"};
    char gate[160];
    tdm_actor *actor;
    tdm_actor *found;

    (void)state;
    (void)snprintf(gate, sizeof(gate), "%s/gate", cluster.redis.directory);
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, "ss", "gate", gate),
                     TDM_OK);
    assert_int_equal(tdm_actor_find(runtime, "far and slow", 5000, &found), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(found, 0), TDM_E_TIMEOUT);
    assert_int_equal(close(open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    assert_int_equal(actor_fixture_call_int(found, "pid"), actor_fixture_call_int(actor, "pid"));
    tdm_actor_destroy(found);
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

static void far_actor_can_be_killed_while_it_starts(void **state)
{
    tdm_placement_group *group = spread();

    (void)state;
    for (int i = 0; i < 5; i++) {
        tdm_actor *actor;

        assert_int_equal(tdm_actor_create(runtime, "tester",
                                          &(struct tdm_actor_options){.group = group,
                                                                      .num_gpus = 1,
                                                                      .bundle = far_bundle(group)},
                                          &actor, ""),
                         TDM_OK);
        if (i % 2 == 0) {
            (void)tdm_actor_wait_ready(actor, i); /* The creation is more or less advanced. */
        }
        assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
        assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
        tdm_actor_destroy(actor);
    }
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

/* The last test: the second node is gone afterwards. */
static void killed_daemon_is_noticed_and_named(void **state)
{
    tdm_placement_group *group = spread();
    tdm_actor *actor = actor_fixture_create(
        runtime, &(struct tdm_actor_options){
                     .num_gpus = 1, .group = group, .bundle = far_bundle(group), .name = "far"});
    tdm_actor *heir;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, 50, ""), TDM_E_TIMEOUT);
    assert_int_equal(kill(cluster.second.daemon, SIGKILL), 0);
    assert_int_equal(tdm_get(ref, 10000, ""), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "node second"));
    tdm_ref_release(ref);
    (void)waitpid(cluster.second.supervisor, NULL, 0);
    cluster.second.supervisor = 0;
    /* Its lease runs out, and then its names are free. */
    for (int i = 0;; i++) {
        tdm_status status;

        assert_int_equal(tdm_actor_create(runtime, "tester",
                                          &(struct tdm_actor_options){.name = "far"}, &heir, ""),
                         TDM_OK);
        status = tdm_actor_wait_ready(heir, TEST_TIMEOUT_MS);
        if (status == TDM_OK) {
            break;
        }
        assert_int_equal(status, TDM_E_EXISTS);
        assert_true(i < 200);
        tdm_actor_destroy(heir);
        (void)poll(NULL, 0, 100);
    }
    tdm_actor_destroy(heir);
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_process_may_have_as_many_descriptors_as_the_hard_limit_allows),
        cmocka_unit_test(each_new_connection_to_redis_renews_the_lease),
        cmocka_unit_test(lists_are_of_both_nodes),
        cmocka_unit_test(wrong_token_is_refused),
        cmocka_unit_test(actors_lie_on_both_and_call_across),
        cmocka_unit_test(handle_may_be_faster_than_its_actor),
        cmocka_unit_test(failing_constructor_on_another_node_reports_its_text),
        cmocka_unit_test(far_actor_is_found_while_its_constructor_runs),
        cmocka_unit_test(far_actor_can_be_killed_while_it_starts),
        cmocka_unit_test(killed_daemon_is_noticed_and_named),
    };
    struct rlimit limit;
    int failed = 1;

    if (getenv("TANDEM_WORKER") == NULL && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = SOFT_DESCRIPTORS;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    runtime = two_nodes_join(&cluster);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed + two_nodes_leave(&cluster, runtime);
}
