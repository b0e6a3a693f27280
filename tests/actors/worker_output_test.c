/* worker_output_test.c - a driver takes the output of its job's workers, each line once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_runtime *runtime;

/* ---- an actor that prints --------------------------------------------------------------- */

/* say(text): writes the text, which may be a part of a line, to stdout and a line to stderr. */
static tdm_status talker_say(tdm_call *call, void *self)
{
    const char *text;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &text));
    (void)printf("%s", text);
    (void)fflush(stdout);
    (void)fprintf(stderr, "aside\n");
    return TDM_OK;
}

static tdm_status talker_flood(tdm_call *call, void *self)
{
    int64_t count;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &count));
    for (int64_t i = 0; i < count; i++) {
        (void)printf("flood %lld of lines that are about as long as the lines of others\n",
                     (long long)i);
    }
    return TDM_OK;
}

TDM_ACTOR_CLASS(talker, .state_bytes = 1,
                .methods = {{"say", talker_say}, {"flood", talker_flood}});

static tdm_actor *make_talker(const char *name)
{
    const struct tdm_actor_options options = {.name = name};
    tdm_actor *actor = NULL;

    assert_int_equal(tdm_actor_create(runtime, "talker", &options, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    return actor;
}

/* ---- what is taken ---------------------------------------------------------------------- */

/* Everything that was taken of one stream: "(origin) text" for each piece. */
struct seen {
    int is_error;       /* Which stream is collected. */
    char text[1 << 20]; /* The collected text. */
    size_t bytes;       /* Length of `text`. */
    uint32_t lines;     /* Number of newlines in the pieces. */
};

static struct seen seen;

static void collect(void *arg, const struct tdm_worker_output *output)
{
    struct seen *into = arg;
    int written;

    if (output->is_error != into->is_error) {
        return;
    }
    for (size_t i = 0; i < output->text_bytes; i++) {
        into->lines += output->text[i] == '\n' ? 1 : 0;
    }
    written = snprintf(into->text + into->bytes, sizeof(into->text) - into->bytes, "(%s) %.*s",
                       output->origin, (int)output->text_bytes, output->text);
    assert_true(written > 0);
    into->bytes += (size_t)written;
    if (into->bytes > sizeof(into->text) / 2) {
        into->bytes = 0; /* Only the count matters for a flood. */
    }
}

/* Takes what is there; collects one stream. */
static void take(int is_error)
{
    seen = (struct seen){.is_error = is_error};
    assert_int_equal(tdm_take_worker_output(runtime, NULL, TEST_TIMEOUT_MS, collect, &seen),
                     TDM_OK);
}

static void each_line_is_taken_once_with_its_origin(void **state)
{
    tdm_actor *actor = make_talker("speaker");
    struct tdm_actor_info info;
    char words[128];

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(actor_fixture_call(actor, "say", "one\ntwo\nhalf a "), TDM_OK);
    take(0);
    (void)snprintf(words, sizeof(words), "(speaker pid=%lld) one\ntwo\n", (long long)info.pid);
    assert_string_equal(seen.text, words);
    take(0);
    assert_string_equal(seen.text, "");
    assert_int_equal(actor_fixture_call(actor, "say", "line\n"), TDM_OK);
    take(0);
    (void)snprintf(words, sizeof(words), "(speaker pid=%lld) half a line\n", (long long)info.pid);
    assert_string_equal(seen.text, words);
    tdm_actor_destroy(actor);
}

static void stderr_is_marked(void **state)
{
    tdm_actor *actor = make_talker("complainer");

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "say", ""), TDM_OK);
    take(1);
    assert_non_null(strstr(seen.text, "(complainer pid="));
    assert_non_null(strstr(seen.text, "aside\n"));
    tdm_actor_destroy(actor);
}

static void labels_name_the_lines_behind_them(void **state)
{
    tdm_actor *actor = make_talker("labelled");

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "say",
                                        "\033]tandem-label;load\007one\n"
                                        "\033]tandem-label;store\007two\nthree\n"),
                     TDM_OK);
    take(0);
    assert_non_null(strstr(seen.text, "(load pid="));
    assert_non_null(strstr(seen.text, ") one\n(store pid="));
    assert_non_null(strstr(seen.text, ") two\nthree\n"));
    assert_int_equal(seen.lines, 3);
    tdm_actor_destroy(actor);
}

static void end_of_a_dead_actors_output_is_taken(void **state)
{
    tdm_actor *actor = make_talker("last");

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "say", "no newline"), TDM_OK);
    take(0);
    assert_string_equal(seen.text, "");
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    for (int i = 0; i < 1000 && seen.bytes == 0; i++) {
        (void)usleep(5000);
        take(0);
    }
    assert_non_null(strstr(seen.text, ") no newline"));
    tdm_actor_destroy(actor);
}

static void flood_is_taken_completely(void **state)
{
    enum { LINES = 20000 }; /* 1.5 MB, more than one reply. */
    tdm_actor *actor = make_talker("flooder");

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "flood", NULL, "i", (int64_t)LINES), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "say", ""), TDM_OK);
    take(0);
    assert_int_equal(seen.lines, LINES);
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_line_is_taken_once_with_its_origin),
        cmocka_unit_test(stderr_is_marked),
        cmocka_unit_test(labels_name_the_lines_behind_them),
        cmocka_unit_test(end_of_a_dead_actors_output_is_taken),
        cmocka_unit_test(flood_is_taken_completely),
    };
    int failed;

    (void)setenv("TANDEM_LOG_TO_DRIVER", "0", 1);
    runtime = one_node_start(64 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
