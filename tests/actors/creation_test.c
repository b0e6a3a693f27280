/* creation_test.c - every option of an actor, on the creator's node and on another. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RACES = 12 };

static struct two_nodes cluster;
static tdm_runtime *runtime; /* Runtime of a driver on the first node. */

/* ---- another driver --------------------------------------------------------------------- */

static tdm_runtime *join(const char *address)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *joined = NULL;

    options.address = address;
    TDM_CHECK(tdm_runtime_start(&options, &joined));
    return joined;
}

/* Makes one that stays and one that does not, and leaves. */
static int leave_one_behind(const char *address)
{
    tdm_runtime *own = join(address);
    tdm_actor *actors[2];

    for (int detached = 0; detached < 2; detached++) {
        struct tdm_actor_options options = {
            .name = detached ? "stays" : "goes", .detached = detached, .labels = {"side=second"}};

        TDM_CHECK(tdm_actor_create(own, "tester", &options, &actors[detached], ""));
        TDM_CHECK(tdm_actor_wait_ready(actors[detached], TEST_TIMEOUT_MS));
    }
    tdm_actor_destroy(actors[0]);
    tdm_actor_destroy(actors[1]);
    tdm_runtime_stop(own);
    return 0;
}

/* What came of one side of a race. */
struct finish {
    tdm_status status;
    struct tdm_actor_info winner;
};

static struct finish race(tdm_runtime *own, int round, int get_if_exists, tdm_actor **actor)
{
    struct finish finish = {.status = TDM_OK};
    char name[32];

    (void)snprintf(name, sizeof(name), "race/%d", round);
    finish.status = tdm_actor_create(
        own, "tester", &(struct tdm_actor_options){.name = name, .get_if_exists = get_if_exists},
        actor, "");
    if (finish.status == TDM_OK) {
        finish.status = tdm_actor_wait_ready(*actor, TEST_TIMEOUT_MS);
    }
    if (finish.status == TDM_OK) {
        finish.status = actor_fixture_call(*actor, "pid", NULL);
        tdm_actor_describe(*actor, &finish.winner);
    }
    return finish;
}

/* A byte on stdin begins a round, the next one ends it; its finish goes to stdout. */
static int run_races(const char *address)
{
    tdm_runtime *own = join(address);
    char byte;

    for (int round = 0; read(STDIN_FILENO, &byte, 1) == 1; round++) {
        tdm_actor *actor = NULL;
        struct finish finish = race(own, round, byte == 'g', &actor);

        if (write(STDOUT_FILENO, &finish, sizeof(finish)) != (ssize_t)sizeof(finish) ||
            read(STDIN_FILENO, &byte, 1) != 1) {
            return 1;
        }
        tdm_actor_destroy(actor);
    }
    tdm_runtime_stop(own);
    return 0;
}

static pid_t start_driver(const char *role, const char *address, int *input, int *output)
{
    int to_child[2];
    int from_child[2];
    pid_t child;

    assert_int_equal(pipe2(to_child, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from_child, O_CLOEXEC), 0);
    child = fork();
    if (child == 0) {
        (void)dup2(to_child[0], STDIN_FILENO);
        (void)dup2(from_child[1], STDOUT_FILENO);
        (void)execl("/proc/self/exe", "creation_test", role, address, (char *)NULL);
        _exit(127);
    }
    (void)close(to_child[0]);
    (void)close(from_child[1]);
    *input = to_child[1];
    *output = from_child[0];
    return child;
}

static void end_driver(pid_t child, int input, int output)
{
    int wait_status;

    (void)close(input);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(wait_status, 0);
    (void)close(output);
}

/* ---- the tests -------------------------------------------------------------------------- */

static void expect_text(tdm_actor *actor, const char *method, const char *argument,
                        const char *wanted)
{
    char text[256];

    actor_fixture_call_text(actor, method, argument, text, sizeof(text));
    assert_string_equal(text, wanted);
}

static const char *node_of(tdm_actor *actor)
{
    static char node_id[33];
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    (void)snprintf(node_id, sizeof(node_id), "%s", info.node_id);
    return node_id;
}

static void every_option_works_on_both_nodes(void **state)
{
    struct tdm_runtime_info here;

    (void)state;
    tdm_runtime_describe(runtime, &here);
    for (int there = 0; there < 2; there++) {
        struct tdm_actor_options options = {
            .num_cpus = 3.5,
            .num_gpus = 0.25,
            .memory_bytes = 600000000,
            .resources = {{"disk", 1.5}},
            .name = "all of it",
            .name_space = "lab",
            .max_restarts = 2,
            .max_task_retries = 1,
            .max_concurrency = 3,
            .environment = {"COLOUR=red", "LD_LIBRARY_PATH=/usr/lib/none"},
            .working_directory = "/usr",
            .labels = {there ? "side=second" : "side!=second"}};
        tdm_actor *actor = actor_fixture_create(runtime, &options);
        struct tdm_actor_info info;
        struct tdm_actor_info same;
        tdm_actor *found;

        assert_int_equal(strcmp(node_of(actor), here.node_id) != 0, there);
        expect_text(actor, "variable", "COLOUR", "red");
        expect_text(actor, "variable", "LD_LIBRARY_PATH", "/usr/lib/none");
        expect_text(actor, "place", "", "/usr");
        tdm_actor_describe(actor, &info);
        assert_int_equal(info.gpus_count, 1);
        assert_int_equal(tdm_actor_find(runtime, "all of it", TEST_TIMEOUT_MS, &found),
                         TDM_E_NOT_FOUND); /* The name exists in another name space only. */
        options.get_if_exists = 1;
        found = actor_fixture_create(runtime, &options);
        assert_int_equal(actor_fixture_call(found, "pid", NULL), TDM_OK);
        tdm_actor_describe(found, &same);
        assert_string_equal(same.id, info.id);
        tdm_actor_destroy(found);
        assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actor);
    }
}

/* Each of the resources alone keeps the second from the node until the first has left. */
static void each_resource_is_held_and_given_back(void **state)
{
    static const struct tdm_actor_options wishes[] = {{.num_cpus = 2.5},
                                                      {.num_gpus = 2},
                                                      {.memory_bytes = 600000000},
                                                      {.resources = {{"disk", 1.5}}}};

    (void)state;
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        struct tdm_actor_options options = wishes[i];
        tdm_actor *first;
        tdm_actor *second;

        options.labels[0] = "side=second";
        first = actor_fixture_create(runtime, &options);
        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &second, ""), TDM_OK);
        assert_int_equal(tdm_actor_wait_ready(second, 50), TDM_E_TIMEOUT);
        assert_int_equal(tdm_actor_kill(first, TEST_TIMEOUT_MS), TDM_OK);
        assert_int_equal(tdm_actor_wait_ready(second, TEST_TIMEOUT_MS), TDM_OK);
        assert_int_equal(tdm_actor_kill(second, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(first);
        tdm_actor_destroy(second);
    }
}

static void resources_that_no_node_has_are_refused_with_a_text(void **state)
{
    static const struct {
        struct tdm_actor_options options;
        const char *words;
    } wishes[] = {
        {{.num_cpus = 5}, "CPU"},
        {{.memory_bytes = UINT64_C(2000000000)}, "memory"},
        {{.resources = {{"disk", 3}}}, "disk"},
        {{.resources = {{"licence", 1}}}, "licence"},
        {{.labels = {"side=third"}}, "side=third"},
        {{.scheduling = TDM_SCHEDULE_NODE, .node_id = "00112233445566778899aabbccddeeff"},
         "00112233445566778899aabbccddeeff"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        tdm_actor *actor;

        assert_int_equal(tdm_actor_create(runtime, "tester", &wishes[i].options, &actor, ""),
                         TDM_OK);
        assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_NO_RESOURCES);
        if (strstr(tdm_error_detail(), wishes[i].words) == NULL) {
            fail_msg("\"%s\" does not speak of %s", tdm_error_detail(), wishes[i].words);
        }
        tdm_actor_destroy(actor);
    }
}

static void the_nodes_are_chosen_as_asked(void **state)
{
    struct tdm_actor_options options = {.num_gpus = 0};
    struct tdm_runtime_info here;
    tdm_actor *actors[6];
    char other[33];
    int at_owner_node = 0;

    (void)state;
    tdm_runtime_describe(runtime, &here);
    for (int i = 0; i < 2; i++) {
        actors[i] = actor_fixture_create(runtime, &options);
        /* The creator's node is the default. */
        assert_string_equal(node_of(actors[i]), here.node_id);
    }
    options.scheduling = TDM_SCHEDULE_SPREAD;
    for (int i = 2; i < 6; i++) {
        actors[i] = actor_fixture_create(runtime, &options);
        at_owner_node += strcmp(node_of(actors[i]), here.node_id) == 0;
    }
    assert_int_equal(at_owner_node, 1); /* 3 on each then */
    (void)snprintf(other, sizeof(other), "%s", node_of(actors[2]));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tdm_actor_kill(actors[i], TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actors[i]);
    }
    options = (struct tdm_actor_options){
        .scheduling = TDM_SCHEDULE_NODE, .node_id = other, .num_gpus = 2};
    actors[0] = actor_fixture_create(runtime, &options);
    assert_string_equal(node_of(actors[0]), other);
    options.scheduling = TDM_SCHEDULE_NODE_SOFT; /* The preferred node has no free resources. */
    actors[1] = actor_fixture_create(runtime, &options);
    assert_string_equal(node_of(actors[1]), here.node_id);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_actor_kill(actors[i], TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actors[i]);
    }
}

static void detached_actor_stays_when_its_driver_leaves(void **state)
{
    int input;
    int output;
    pid_t child = start_driver("detached", cluster.first.address, &input, &output);
    tdm_actor *actor;

    (void)state;
    end_driver(child, input, output);
    assert_int_equal(tdm_actor_find(runtime, "goes", TEST_TIMEOUT_MS, &actor), TDM_E_NOT_FOUND);
    assert_int_equal(tdm_actor_find(runtime, "stays", TEST_TIMEOUT_MS, &actor), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_OK);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_actor_find(runtime, "stays", TEST_TIMEOUT_MS, &actor), TDM_E_NOT_FOUND);
}

/* Two drivers, each with its own node, ask for the same name at the same moment. */
static void name_is_taken_once_by_two_nodes_at_once(void **state)
{
    int input;
    int output;
    pid_t child = start_driver("race", cluster.second.address, &input, &output);

    (void)state;
    for (int round = 0; round < RACES; round++) {
        int shared = round % 2; /* In every other round both processes use get_if_exists. */
        tdm_actor *actor = NULL;
        struct finish own;
        struct finish other;

        assert_int_equal(write(input, shared ? "g" : "n", 1), 1);
        own = race(runtime, round, shared, &actor);
        assert_int_equal(read(output, &other, sizeof(other)), sizeof(other));
        if (shared) {
            assert_int_equal(own.status, TDM_OK);
            assert_int_equal(other.status, TDM_OK);
            assert_string_equal(own.winner.id, other.winner.id);
        } else if (own.status == TDM_OK) {
            assert_int_equal(other.status, TDM_E_EXISTS);
        } else {
            assert_int_equal(own.status, TDM_E_EXISTS);
            assert_int_equal(other.status, TDM_OK);
        }
        assert_int_equal(write(input, "e", 1), 1);
        tdm_actor_destroy(actor);
    }
    end_driver(child, input, output);
}

static int play(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nodes_are_chosen_as_asked),
        cmocka_unit_test(every_option_works_on_both_nodes),
        cmocka_unit_test(each_resource_is_held_and_given_back),
        cmocka_unit_test(resources_that_no_node_has_are_refused_with_a_text),
        cmocka_unit_test(detached_actor_stays_when_its_driver_leaves),
        cmocka_unit_test(name_is_taken_once_by_two_nodes_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    int failed = 1;

    if (getenv("TANDEM_WORKER") != NULL) {
        return tdm_runtime_start(NULL, &runtime) == TDM_OK; /* never returns */
    }
    if (argc == 3) {
        return strcmp(argv[1], "race") == 0 ? run_races(argv[2]) : leave_one_behind(argv[2]);
    }
    actor_fixture_prepare();
    if (two_nodes_open(&cluster) == 0) {
        runtime = join(cluster.first.address);
        failed = play();
    } else {
        (void)fprintf(stderr, "no cluster: %s\n", tdm_error_detail());
    }
    tdm_runtime_stop(runtime);
    two_nodes_close(&cluster);
    return failed + actor_fixture_clean_up();
}
