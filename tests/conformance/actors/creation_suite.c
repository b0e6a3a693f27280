/* creation_suite.c - conformance: actors made, their options, what they are given. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* The driver's own node. */
static const char *home(void)
{
    struct tdm_runtime_info info;

    tdm_runtime_describe(stage_runtime(), &info);
    return info.node_id;
}

/* The same options, on the driver's own node. */
static struct tdm_actor_options at_owner_node(struct tdm_actor_options options)
{
    options.scheduling = TDM_SCHEDULE_NODE;
    options.node_id = home();
    return options;
}

/* Reads what the constructor writes. */
static void open_gate(const char *path)
{
    char text[16] = "";
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    assert_string_equal(text, "born ");
}

/* ---- making ----------------------------------------------------------------------------- */

static void creating_an_actor_does_not_block(void **state)
{
    char path[96];
    tdm_actor *actor;
    tdm_ref *ref;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/gate", getenv("TMPDIR"));
    assert_int_equal(mkfifo(path, 0600), 0);
    /* The constructor opens the pipe for writing and blocks until a reader opens it. */
    MUST(tdm_actor_create(stage_runtime(), "mortal", NULL, &actor, "s", path));
    ref = stage_call_int(actor, "perish", 0);
    assert_int_equal(tdm_actor_wait_ready(actor, 50), TDM_E_TIMEOUT);
    open_gate(path);
    MUST(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    assert_int_equal(stage_int(ref), 0);
    stage_end(actor);
    (void)unlink(path);
}

static void the_constructor_gets_its_arguments(void **state)
{
    tdm_actor *actor;
    char path[96];
    FILE *diary;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/arguments", getenv("TMPDIR"));
    actor = stage_make("mortal", NULL, path);
    diary = fopen(path, "r");
    assert_non_null(diary);
    (void)fclose(diary);
    stage_end(actor);
    (void)unlink(path);
}

static void constructor_gets_references_and_handles(void **state)
{
    const struct tdm_actor_options options = {.max_restarts = 1};
    tdm_actor *employee = stage_make("tester", NULL, NULL);
    int64_t employee_pid = stage_pid(employee);
    tdm_actor *holder;
    int64_t pid;
    tdm_ref *ref;

    (void)state;
    MUST(tdm_put(stage_runtime(), &ref, "i", (int64_t)41));
    MUST(tdm_actor_create(stage_runtime(), "holder", &options, &holder, "Rh", ref, employee));
    tdm_ref_release(ref);
    tdm_actor_destroy(employee);
    assert_int_equal(stage_int(stage_call(holder, "read")), 41);
    assert_int_equal(stage_int(stage_call_int(holder, "ask", 1)), 1);
    pid = stage_pid(holder);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_equal(stage_int_of_next_life(holder, "read"), 41); /* Its arguments were kept. */
    assert_int_equal(stage_int(stage_call_int(holder, "ask", 1)), 2);
    stage_end(holder);
    /* No process has a handle now. */
    assert_true(wait_process_exit(employee_pid, TEST_TIMEOUT_MS));
}

static void constructor_gets_the_values_of_references(void **state)
{
    char path[96];
    tdm_actor *actor;
    tdm_ref *ref;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/value", getenv("TMPDIR"));
    MUST(tdm_put(stage_runtime(), &ref, "s", path));
    MUST(tdm_actor_create(stage_runtime(), "mortal", NULL, &actor, "r", ref));
    tdm_ref_release(ref);
    MUST(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    stage_end(actor);
    assert_int_equal(unlink(path), 0); /* The actor wrote there. */
}

/* One whose constructor needs the answer to the desk's next question. */
static tdm_actor *expectant(tdm_actor *desk, const struct tdm_actor_options *options)
{
    tdm_ref *question = stage_call(desk, "ask");
    tdm_actor *actor;

    MUST(tdm_actor_create(stage_runtime(), "stumbler", options, &actor, "r", question));
    tdm_ref_release(question);
    assert_int_equal(tdm_actor_wait_ready(actor, 20), TDM_E_TIMEOUT);
    stage_detail_has("among its constructor's arguments is not there yet");
    return actor;
}

static void constructor_waits_for_the_values_of_its_references(void **state)
{
    const struct tdm_actor_options options = {.max_restarts = 1};
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *actor = expectant(desk, &options);
    tdm_ref *runs = stage_call(actor, "runs");
    int64_t pid;

    (void)state;
    MUST(stage_status(stage_call_int(desk, "answer", 41)));
    assert_int_equal(stage_int(runs), 41);
    pid = stage_pid(actor);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_equal(stage_int_of_next_life(actor, "runs"), 41); /* Its arguments were kept. */
    stage_end(actor);
    stage_end(desk);
}

static void failed_reference_fails_the_creation(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *early = expectant(desk, NULL);
    tdm_ref *failed = stage_call(desk, "ask");
    tdm_actor *late;
    uint8_t done;

    (void)state;
    MUST(stage_status(stage_call(desk, "refuse")));
    assert_int_equal(stage_try(early, "runs"), TDM_E_ACTOR_DIED);
    stage_detail_has("question 0 is not for us");
    assert_int_equal(tdm_actor_wait_ready(early, TEST_TIMEOUT_MS), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(early);
    MUST(tdm_wait(&failed, 1, 1, TEST_TIMEOUT_MS, &done));
    MUST(tdm_actor_create(stage_runtime(), "stumbler", NULL, &late, "r", failed));
    assert_int_equal(stage_try(late, "runs"), TDM_E_ACTOR_DIED);
    stage_detail_has("question 1 is not for us");
    tdm_actor_destroy(late);
    tdm_ref_release(failed);
    stage_end(desk);
}

/* The employee lives as long as the arguments do. */
static void actor_that_waits_for_a_value_can_be_killed_or_released(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);

    (void)state;
    for (int is_killed = 0; is_killed < 2; is_killed++) {
        tdm_actor *employee = stage_make("tester", NULL, NULL);
        int64_t pid = stage_pid(employee);
        tdm_ref *question = stage_call(desk, "ask");
        tdm_actor *actor;

        MUST(tdm_actor_create(stage_runtime(), "stumbler", NULL, &actor, "rh", question, employee));
        tdm_ref_release(question);
        tdm_actor_destroy(employee);
        assert_int_equal(tdm_actor_wait_ready(actor, 20), TDM_E_TIMEOUT);
        assert_int_equal(kill((pid_t)pid, 0), 0);
        if (is_killed) {
            MUST(tdm_actor_kill(actor, TEST_TIMEOUT_MS));
            assert_int_equal(stage_try(actor, "runs"), TDM_E_ACTOR_DIED);
        }
        tdm_actor_destroy(actor);
        assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    }
    stage_end(desk);
}

static void detached_actor_ends_with_the_owner_of_its_missing_argument(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *parent = stage_make("mortal", NULL, "");
    tdm_ref *question = stage_call(desk, "ask");
    tdm_actor *child;
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call(parent, "expect", &ref, "R", question));
    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "h", &child));
    tdm_ref_release(ref);
    tdm_ref_release(question);
    stage_end(parent);
    assert_int_equal(stage_try(child, "runs"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(child);
    stage_end(desk);
}

static void failure_of_the_constructor_reaches_the_first_call(void **state)
{
    tdm_actor *actor;

    (void)state;
    MUST(tdm_actor_create(stage_runtime(), "tester", NULL, &actor, "s", "broken"));
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    stage_detail_has("the engine has no fuel");
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
}

static void unknown_class_reaches_the_first_call(void **state)
{
    tdm_actor *actor;

    (void)state;
    MUST(tdm_actor_create(stage_runtime(), "nobody", NULL, &actor, ""));
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    stage_detail_has("no class \"nobody\"");
    tdm_actor_destroy(actor);
}

static void invalid_options_fail_at_once(void **state)
{
    const struct tdm_actor_options mistakes[] = {
        {.num_gpus = 1.5},
        {.num_cpus = -1},
        {.environment = {"NONSENSE"}},
        {.get_if_exists = 1},
        {.max_restarts = -2},
        {.scheduling = TDM_SCHEDULE_NODE},
        {.labels = {"nonsense"}},
        {.labels = {"side=in(a,)"}},
    };
    tdm_actor *actor;

    (void)state;
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        if (tdm_actor_create(stage_runtime(), "tester", &mistakes[i], &actor, "") != TDM_E_INVAL) {
            fail_msg("mistake %zu was not told", i);
        }
        assert_string_not_equal(tdm_error_detail(), "");
    }
}

static void actor_creates_actors(void **state)
{
    tdm_actor *parent = stage_make("mortal", NULL, "");
    tdm_actor *child;
    tdm_ref *ref;
    int64_t pid;

    (void)state;
    MUST(tdm_actor_call(parent, "breed", &ref, "s?", "child", 0));
    pid = stage_int(ref);
    MUST(tdm_actor_find(stage_runtime(), "child", TEST_TIMEOUT_MS, &child));
    assert_int_equal(stage_pid(child), pid);
    tdm_actor_destroy(child);
    stage_end(parent);
}

static void class_may_come_from_a_library(void **state)
{
    struct tdm_actor_options options = {.library = TDM_TEST_BUILD_DIR "/tests/tester_library.so"};
    tdm_actor *actor = stage_make("librarian", &options, NULL);

    (void)state;
    MUST(stage_try(actor, "answer"));
    stage_end(actor);
}

/* ---- names ------------------------------------------------------------------------------ */

static void name_finds_its_actor(void **state)
{
    tdm_actor *actor = stage_make("tester", &(struct tdm_actor_options){.name = "one"}, NULL);
    tdm_actor *found;

    (void)state;
    MUST(tdm_actor_find(stage_runtime(), "one", TEST_TIMEOUT_MS, &found));
    assert_int_equal(stage_int(stage_call_int(found, "add", 2)), 2);
    assert_int_equal(stage_int(stage_call_int(actor, "add", 2)), 4);
    tdm_actor_destroy(found);
    stage_end(actor);
    assert_int_equal(tdm_actor_find(stage_runtime(), "one", TEST_TIMEOUT_MS, &found),
                     TDM_E_NOT_FOUND);
}

static void taken_name_is_refused_and_free_after_a_kill(void **state)
{
    const struct tdm_actor_options options = {.name = "only"};
    tdm_actor *second;

    (void)state;
    for (int i = 0; i < 3; i++) {
        tdm_actor *first = stage_make("tester", &options, NULL);

        MUST(tdm_actor_create(stage_runtime(), "tester", &options, &second, ""));
        assert_int_equal(tdm_actor_wait_ready(second, TEST_TIMEOUT_MS), TDM_E_EXISTS);
        tdm_actor_destroy(second);
        stage_end(first);
    }
}

static void names_may_be_long_and_of_any_language(void **state)
{
    char longest[TDM_NAME_BYTES_MAX + 2];
    const char *const names[] = {"größe / 1:2", "日本語 😀", "100%/*", "a/b%2Fc", longest + 1};
    struct tdm_actor_info info;
    tdm_actor *actor;
    tdm_actor *second;
    tdm_actor *found;

    (void)state;
    memset(longest, '*', sizeof(longest) - 1); /* Each byte of it takes three of a key. */
    longest[sizeof(longest) - 1] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct tdm_actor_options options = {.name = names[i], .name_space = names[i]};

        actor = stage_make("tester", &options, NULL);
        tdm_actor_describe(actor, &info);
        assert_string_equal(info.name, names[i]);
        MUST(tdm_actor_find_in(stage_runtime(), names[i], names[i], TEST_TIMEOUT_MS, &found));
        assert_int_equal(stage_pid(found), stage_pid(actor));
        tdm_actor_destroy(found);
        assert_int_equal(tdm_actor_find(stage_runtime(), names[i], TEST_TIMEOUT_MS, &found),
                         TDM_E_NOT_FOUND);
        MUST(tdm_actor_create(stage_runtime(), "tester", &options, &second, ""));
        assert_int_equal(tdm_actor_wait_ready(second, TEST_TIMEOUT_MS), TDM_E_EXISTS);
        tdm_actor_destroy(second);
        stage_end(actor);
    }
    assert_int_equal(tdm_actor_create(stage_runtime(), "tester",
                                      &(struct tdm_actor_options){.name = longest}, &actor, ""),
                     TDM_E_INVAL);
    stage_detail_has("actor name of 256 bytes, at most 255");
}

static void same_name_may_exist_in_two_name_spaces(void **state)
{
    struct tdm_actor_options options = {.name = "same"};
    tdm_actor *mine = stage_make("mortal", &options, "");
    tdm_actor *theirs;
    tdm_actor *found;

    (void)state;
    options.name_space = "elsewhere";
    theirs = stage_make("mortal", &options, "");
    MUST(tdm_actor_find(stage_runtime(), "same", TEST_TIMEOUT_MS, &found));
    assert_int_equal(stage_pid(found), stage_pid(mine));
    tdm_actor_destroy(found);
    stage_end(mine);
    assert_int_equal(tdm_actor_find(stage_runtime(), "same", TEST_TIMEOUT_MS, &found),
                     TDM_E_NOT_FOUND);
    MUST(tdm_actor_find_in(stage_runtime(), "elsewhere", "same", TEST_TIMEOUT_MS, &found));
    assert_int_equal(stage_pid(found), stage_pid(theirs));
    tdm_actor_destroy(found);
    stage_end(theirs);
}

static void get_if_exists_returns_the_actor_with_the_name(void **state)
{
    const struct tdm_actor_options options = {.name = "shared", .get_if_exists = 1};
    tdm_actor *first = stage_make("tester", &options, NULL);
    tdm_actor *second = stage_make("tester", &options, NULL);

    (void)state;
    assert_int_equal(stage_int(stage_call_int(first, "add", 2)), 2);
    assert_int_equal(stage_int(stage_call_int(second, "add", 2)), 4);
    assert_int_equal(stage_pid(first), stage_pid(second));
    tdm_actor_destroy(second);
    stage_end(first);
}

/* ---- resources -------------------------------------------------------------------------- */

static void cpus_are_held_while_the_actor_lives_and_none_by_default(void **state)
{
    tdm_actor *idle;
    tdm_actor *busy;

    (void)state;
    stage_await_free("CPU", 8);
    idle = stage_make("tester", NULL, NULL);
    busy = stage_make("tester", &(struct tdm_actor_options){.num_cpus = 2.5}, NULL);
    assert_true(stage_free("CPU") == 5.5);
    stage_end(busy);
    stage_await_free("CPU", 8);
    stage_end(idle);
}

static void fractional_requests_share_a_gpu_and_whole_ones_do_not(void **state)
{
    struct tdm_actor_options part = at_owner_node((struct tdm_actor_options){.num_gpus = 0.5});
    struct tdm_actor_options whole = at_owner_node((struct tdm_actor_options){.num_gpus = 1});
    tdm_actor *actors[3];
    char gpus[3][16];

    (void)state;
    stage_await_free("GPU", 4);
    for (int i = 0; i < 3; i++) {
        actors[i] = stage_make("tester", i < 2 ? &part : &whole, NULL);
        actor_fixture_call_text(actors[i], "gpus", "", gpus[i], sizeof(gpus[i]));
    }
    assert_string_equal(gpus[0], gpus[1]);
    assert_string_not_equal(gpus[0], gpus[2]);
    for (int i = 0; i < 3; i++) {
        stage_end(actors[i]);
    }
}

static void gpu_ids_ascend_and_are_in_the_environment(void **state)
{
    struct tdm_actor_options options = at_owner_node((struct tdm_actor_options){.num_gpus = 2});
    tdm_actor *actor;
    char text[64];

    (void)state;
    stage_await_free("GPU", 4);
    actor = stage_make("tester", &options, NULL);
    actor_fixture_call_text(actor, "gpus", "", text, sizeof(text));
    assert_string_equal(text, "0,1");
    actor_fixture_call_text(actor, "variable", "CUDA_VISIBLE_DEVICES", text, sizeof(text));
    assert_string_equal(text, "GPU-a,GPU-b");
    stage_end(actor);
}

static void visible_devices_can_be_left_as_they_are(void **state)
{
    struct tdm_actor_options options = {
        .num_gpus = 1, .keep_visible_devices = 1, .environment = {"CUDA_VISIBLE_DEVICES=mine"}};
    tdm_actor *actor = stage_make("tester", &options, NULL);
    char text[64];

    (void)state;
    actor_fixture_call_text(actor, "variable", "CUDA_VISIBLE_DEVICES", text, sizeof(text));
    assert_string_equal(text, "mine");
    stage_end(actor);
}

static void memory_is_counted(void **state)
{
    double before = stage_free("memory");
    tdm_actor *actor =
        stage_make("tester", &(struct tdm_actor_options){.memory_bytes = 1 << 20}, NULL);
    tdm_actor *giant;

    (void)state;
    assert_true(stage_free("memory") == before - (1 << 20));
    MUST(tdm_actor_create(stage_runtime(), "tester",
                          &(struct tdm_actor_options){.memory_bytes = UINT64_C(1) << 43}, &giant,
                          ""));
    assert_int_equal(tdm_actor_wait_ready(giant, TEST_TIMEOUT_MS), TDM_E_NO_RESOURCES);
    tdm_actor_destroy(giant);
    stage_end(actor);
}

static void custom_resources_are_held(void **state)
{
    const struct tdm_actor_options options = {.resources = {{"licence", 1.5}}};
    double all = 2 * stage_nodes();
    tdm_actor *actor;

    (void)state;
    stage_await_free("licence", all);
    actor = stage_make("tester", &options, NULL);
    assert_true(stage_free("licence") == all - 1.5);
    stage_end(actor);
    stage_await_free("licence", all);
}

static void actor_waits_for_what_others_hold(void **state)
{
    struct tdm_actor_options all = at_owner_node((struct tdm_actor_options){.num_gpus = 2});
    struct tdm_actor_options none = at_owner_node((struct tdm_actor_options){.num_gpus = 0});
    tdm_actor *second;
    tdm_actor *first;
    tdm_actor *other;

    (void)state;
    all.resources[0] = (struct tdm_resource){"licence", 2};
    first = stage_make("tester", &all, NULL);
    MUST(tdm_actor_create(stage_runtime(), "tester", &all, &second, ""));
    assert_int_equal(tdm_actor_wait_ready(second, 50), TDM_E_TIMEOUT);
    /* Actors that do not need the resource do not wait. */
    other = stage_make("tester", &none, NULL);
    stage_end(first);
    MUST(tdm_actor_wait_ready(second, TEST_TIMEOUT_MS));
    stage_end(second);
    stage_end(other);
}

static void request_larger_than_any_node_fails(void **state)
{
    const struct tdm_actor_options impossible[] = {
        {.num_gpus = 5}, {.num_cpus = 9}, {.resources = {{"unicorn", 1}}}};
    tdm_actor *actor;

    (void)state;
    for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++) {
        MUST(tdm_actor_create(stage_runtime(), "tester", &impossible[i], &actor, ""));
        assert_int_equal(stage_try(actor, "pid"), TDM_E_NO_RESOURCES);
        tdm_actor_destroy(actor);
    }
}

/* ---- the process ------------------------------------------------------------------------ */

static void environment_variables_are_set_as_requested(void **state)
{
    const struct tdm_actor_options options = {.environment = {"GIVEN=yes", "EMPTY="}};
    tdm_actor *actor = stage_make("tester", &options, NULL);
    char text[64];

    (void)state;
    actor_fixture_call_text(actor, "variable", "GIVEN", text, sizeof(text));
    assert_string_equal(text, "yes");
    actor_fixture_call_text(actor, "variable", "EMPTY", text, sizeof(text));
    assert_string_equal(text, "");
    stage_end(actor);
}

/* What tests find there was not set when the node was started: stage.c. */
static void omp_threads_are_as_many_as_cpus_unless_set(void **state)
{
    static const struct {
        struct tdm_actor_options options;
        const char *threads;
    } cases[] = {
        {{.num_cpus = 2.5}, "2"},
        {{.num_cpus = 0.5}, "1"},
        {{.num_cpus = 0}, "1"},
        {{.num_cpus = 2, .environment = {"OMP_NUM_THREADS=7"}}, "7"},
        {{.environment = {"OMP_NUM_THREADS="}}, ""},
    };
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tdm_actor *actor = stage_make("tester", &cases[i].options, NULL);

        actor_fixture_call_text(actor, "variable", "OMP_NUM_THREADS", text, sizeof(text));
        assert_string_equal(text, cases[i].threads);
        stage_end(actor);
    }
}

/* The library that is loaded first brings a class, which this program does not have. */
static void ld_preload_is_in_force_before_the_program(void **state)
{
    const struct tdm_actor_options options = {
        .environment = {"LD_PRELOAD=" TDM_TEST_BUILD_DIR "/tests/tester_library.so"}};
    tdm_actor *actor;

    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)printf("skipped: the sanitizer's library wants to be the first\n");
    skip();
#endif
    actor = stage_make("librarian", &options, NULL);
    MUST(stage_try(actor, "answer"));
    stage_end(actor);
}

static void working_directory_is_set_as_requested(void **state)
{
    const struct tdm_actor_options there = {.working_directory = "/usr"};
    const struct tdm_actor_options nowhere = {.working_directory = "/no/such"};
    tdm_actor *actor = stage_make("tester", &there, NULL);
    char own[256];
    char text[256];

    (void)state;
    actor_fixture_call_text(actor, "place", "", text, sizeof(text));
    assert_string_equal(text, "/usr");
    stage_end(actor);
    actor = stage_make("tester", NULL, NULL);
    actor_fixture_call_text(actor, "place", "", text, sizeof(text));
    assert_non_null(getcwd(own, sizeof(own)));
    assert_string_equal(text, own);
    stage_end(actor);
    MUST(tdm_actor_create(stage_runtime(), "tester", &nowhere, &actor, ""));
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    stage_detail_has("/no/such");
    tdm_actor_destroy(actor);
}

static void arguments_for_a_class_without_constructor_are_refused(void **state)
{
    tdm_actor *actor;

    (void)state;
    MUST(tdm_actor_create(stage_runtime(), "grouped_crowd", NULL, &actor, "is", (int64_t)1, "two"));
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_E_ACTOR_DIED);
    stage_detail_has("class grouped_crowd has no constructor (.construct), but was given 2 ");
    tdm_actor_destroy(actor);
}

int conformance_creation(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_for_a_class_without_constructor_are_refused),
        cmocka_unit_test(creating_an_actor_does_not_block),
        cmocka_unit_test(the_constructor_gets_its_arguments),
        cmocka_unit_test(constructor_gets_references_and_handles),
        cmocka_unit_test(constructor_gets_the_values_of_references),
        cmocka_unit_test(constructor_waits_for_the_values_of_its_references),
        cmocka_unit_test(failed_reference_fails_the_creation),
        cmocka_unit_test(actor_that_waits_for_a_value_can_be_killed_or_released),
        cmocka_unit_test(detached_actor_ends_with_the_owner_of_its_missing_argument),
        cmocka_unit_test(failure_of_the_constructor_reaches_the_first_call),
        cmocka_unit_test(unknown_class_reaches_the_first_call),
        cmocka_unit_test(invalid_options_fail_at_once),
        cmocka_unit_test(actor_creates_actors),
        cmocka_unit_test(class_may_come_from_a_library),
        cmocka_unit_test(name_finds_its_actor),
        cmocka_unit_test(taken_name_is_refused_and_free_after_a_kill),
        cmocka_unit_test(names_may_be_long_and_of_any_language),
        cmocka_unit_test(same_name_may_exist_in_two_name_spaces),
        cmocka_unit_test(get_if_exists_returns_the_actor_with_the_name),
        cmocka_unit_test(cpus_are_held_while_the_actor_lives_and_none_by_default),
        cmocka_unit_test(fractional_requests_share_a_gpu_and_whole_ones_do_not),
        cmocka_unit_test(gpu_ids_ascend_and_are_in_the_environment),
        cmocka_unit_test(visible_devices_can_be_left_as_they_are),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(custom_resources_are_held),
        cmocka_unit_test(actor_waits_for_what_others_hold),
        cmocka_unit_test(request_larger_than_any_node_fails),
        cmocka_unit_test(environment_variables_are_set_as_requested),
        cmocka_unit_test(omp_threads_are_as_many_as_cpus_unless_set),
        cmocka_unit_test(ld_preload_is_in_force_before_the_program),
        cmocka_unit_test(working_directory_is_set_as_requested),
    };

    return cmocka_run_group_tests_name("creation", tests, NULL, NULL);
}
