/* chosen_program_test.c - actors whose program, arguments and environment the creator chooses. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>

#include <cmocka.h>

enum { WAIT_MS = 30000, VARIABLES = 100 };

static const char *const program = TDM_TEST_BUILD_DIR "/tests/any_class_program";

static tdm_runtime *runtime;

static int set_up(void **state)
{
    (void)state;
    return tdm_runtime_start(NULL, &runtime) == TDM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tdm_runtime_stop(runtime);
    return 0;
}

/* Creates an actor of the class and compares what its method "describe" replies. */
static void expect_description(const char *class_name, const struct tdm_actor_options *options,
                               const char *argument, int64_t variables_count)
{
    tdm_actor *actor = NULL;
    tdm_ref *ref;
    const char *class_of_actor;
    const char *argument_of_actor;
    int64_t count;

    assert_int_equal(tdm_actor_create(runtime, class_name, options, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "describe", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, WAIT_MS, "ssi", &class_of_actor, &argument_of_actor, &count),
                     TDM_OK);
    assert_string_equal(class_of_actor, class_name);
    assert_string_equal(argument_of_actor, argument);
    assert_int_equal(count, variables_count);
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

/* The third worker of each kind comes from a fork server, which has the same arguments. */
static void program_and_arguments_reach_executed_and_forked_workers(void **state)
{
    static const char *const red[] = {"red", "unused", NULL};
    static const char *const blue[] = {"blue", "unused", NULL};
    struct tdm_actor_options options = {.program = program};

    (void)state;
    for (int i = 0; i < 3; i++) {
        options.program_arguments = red;
        expect_description("painter", &options, "red", 0);
        options.program_arguments = blue;
        expect_description("printer", &options, "blue", 0);
    }
    options.program_arguments = NULL;
    expect_description("painter", &options, "", 0);
}

static void any_number_of_variables_can_be_set(void **state)
{
    static char texts[VARIABLES][160];
    const char *variables[VARIABLES + 1] = {NULL};
    struct tdm_actor_options options = {
        .program = program, .environment = {"MORE_0=1"}, .more_environment = variables};

    (void)state;
    for (int i = 0; i < VARIABLES; i++) {
        /* The names are longer than those of actors may be. */
        (void)snprintf(texts[i], sizeof(texts[i]), "MORE_%0100d=value", i + 1);
        variables[i] = texts[i];
    }
    expect_description("many", &options, "", VARIABLES + 1);
}

/* An interpreter may need long to start on a busy machine. */
static void worker_may_join_its_node_late(void **state)
{
    static const char *const late[] = {"late", NULL};
    struct tdm_actor_options options = {.program = program, .program_arguments = late};

    (void)state;
    expect_description("late", &options, "late", 0);
}

static void taken_arguments_outlive_their_method(void **state)
{
    struct tdm_actor_options options = {.program = program};
    tdm_actor *actor = NULL;
    tdm_ref *ref;
    const char *text;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "keeper", &options, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "keep", NULL, "s", "kept text"), TDM_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(tdm_actor_call(actor, "describe", NULL, ""), TDM_OK);
    }
    assert_int_equal(tdm_actor_call(actor, "kept", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, WAIT_MS, "s", &text), TDM_OK);
    assert_string_equal(text, "kept text");
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

static void taken_arguments_outlive_their_constructor(void **state)
{
    struct tdm_actor_options options = {.program = program};
    tdm_actor *actor = NULL;
    tdm_ref *ref;
    const char *text;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "keeper", &options, &actor, "s", "text of old"),
                     TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "kept", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, WAIT_MS, "s", &text), TDM_OK);
    assert_string_equal(text, "text of old");
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_and_arguments_reach_executed_and_forked_workers),
        cmocka_unit_test(any_number_of_variables_can_be_set),
        cmocka_unit_test(worker_may_join_its_node_late),
        cmocka_unit_test(taken_arguments_outlive_their_method),
        cmocka_unit_test(taken_arguments_outlive_their_constructor),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
