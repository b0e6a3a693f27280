/* worker_logs_test.c - the output of actors: kept in files and printed by the driver, without loss.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"
#include "tests/support/one_node.h"

#include <fcntl.h>
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

static tdm_runtime *runtime;
static FILE *shown; /* Reads stdout and stderr of this process, where the node prints. */

/* ---- an actor that prints --------------------------------------------------------------- */

static tdm_status talker_say(tdm_call *call, void *self)
{
    const char *text;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &text));
    (void)printf("%s\n", text);
    (void)fprintf(stderr, "aside: %s\n", text);
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

static tdm_status talker_crash(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    (void)printf("famous last words");
    (void)fflush(stdout);
    (void)kill(getpid(), SIGKILL);
    return TDM_OK;
}

static tdm_status talker_nothing(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    return TDM_OK;
}

TDM_ACTOR_CLASS(talker, .state_bytes = 1,
                .methods = {{"say", talker_say},
                            {"flood", talker_flood},
                            {"crash", talker_crash},
                            {"nothing", talker_nothing}});

/* ---- what is seen ----------------------------------------------------------------------- */

static tdm_actor *make_talker(const char *name)
{
    const struct tdm_actor_options options = {.name = name};
    tdm_actor *actor = NULL;

    assert_int_equal(tdm_actor_create(runtime, "talker", &options, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    return actor;
}

static int64_t pid_of(tdm_actor *actor)
{
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    return info.pid;
}

/* Waits until a line of what was shown holds `words`; -1 where none does in time. */
static long count_shown(const char *words, long wanted)
{
    for (int waited_ms = 0; waited_ms < TEST_TIMEOUT_MS; waited_ms += 5) {
        char line[512];
        long count = 0;

        rewind(shown);
        while (fgets(line, sizeof(line), shown) != NULL) {
            count += strstr(line, words) != NULL ? 1 : 0;
        }
        if (count >= wanted) {
            return count;
        }
        (void)usleep(5000);
    }
    return -1;
}

static void lines_are_shown_with_their_origin(void **state)
{
    tdm_actor *actor = make_talker("trainer/2");
    char words[80];

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "say", "good morning"), TDM_OK);
    (void)snprintf(words, sizeof(words), "(trainer/2 pid=%lld) good morning",
                   (long long)pid_of(actor));
    assert_int_equal(count_shown(words, 1), 1);
    (void)snprintf(words, sizeof(words), "(trainer/2 pid=%lld) aside: good morning",
                   (long long)pid_of(actor));
    assert_int_equal(count_shown(words, 1), 1);
    tdm_actor_destroy(actor);
}

static void label_in_the_output_replaces_the_name(void **state)
{
    tdm_actor *actor = make_talker("labelled");
    char words[80];

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "say", "\033]tandem-label;load\007first"), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "say", "second"), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "say", "\033]tandem-label;\007third"), TDM_OK);
    (void)snprintf(words, sizeof(words), "(load pid=%lld) first", (long long)pid_of(actor));
    /* On stderr the label stands behind "aside: " and ends that line. */
    assert_int_equal(count_shown(words, 2), 2);
    (void)snprintf(words, sizeof(words), "(load pid=%lld) second", (long long)pid_of(actor));
    assert_int_equal(count_shown(words, 1), 1);
    (void)snprintf(words, sizeof(words), "(labelled pid=%lld) third", (long long)pid_of(actor));
    assert_int_equal(count_shown(words, 2), 2);
    tdm_actor_destroy(actor);
}

static void the_last_words_of_a_killed_actor_are_shown(void **state)
{
    tdm_actor *actor = make_talker(NULL);
    char words[80];

    (void)state;
    (void)snprintf(words, sizeof(words), "(talker pid=%lld) famous last words",
                   (long long)pid_of(actor));
    assert_int_equal(actor_fixture_call(actor, "crash", NULL), TDM_E_ACTOR_DIED);
    assert_int_equal(count_shown(words, 1), 1);
    tdm_actor_destroy(actor);
}

static void flood_of_output_blocks_no_worker_and_loses_nothing(void **state)
{
    enum { LINES = 50000 }; /* 4 MB */
    tdm_actor *actor = make_talker("flooder");
    tdm_actor *other = make_talker("other");
    tdm_ref *ref = NULL;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "flood", &ref, "i", (int64_t)LINES), TDM_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(actor_fixture_call(other, "nothing", NULL), TDM_OK);
    }
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_OK);
    tdm_ref_release(ref);
    assert_int_equal(count_shown("flood ", LINES), LINES);
    tdm_actor_destroy(actor);
    tdm_actor_destroy(other);
}

/* The node prints where this process does: into a file that the tests read.  What cmocka has to
 * say of failures goes to stderr. */
static int redirect(void)
{
    FILE *writing = tmpfile();
    char path[64];

    if (writing == NULL || fcntl(fileno(writing), F_SETFL, O_APPEND) < 0) {
        return 0;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(writing));
    shown = fopen(path, "re"); /* The second descriptor has its own file offset. */
    return shown != NULL && dup2(fileno(writing), STDOUT_FILENO) >= 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_shown_with_their_origin),
        cmocka_unit_test(label_in_the_output_replaces_the_name),
        cmocka_unit_test(the_last_words_of_a_killed_actor_are_shown),
        cmocka_unit_test(flood_of_output_blocks_no_worker_and_loses_nothing),
    };
    int failed;
    int terminal = dup(STDERR_FILENO);

    if (getenv("TANDEM_WORKER") == NULL) {
        if (!redirect() || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) {
            return 1;
        }
    }
    runtime = actor_fixture_open(NULL);
    (void)dup2(terminal, STDERR_FILENO);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
