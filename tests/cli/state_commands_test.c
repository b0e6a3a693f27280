/* state_commands_test.c - tests the commands `tandem status`, `list` and `logs` on a running node.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/shell_run.h"

#include <jansson.h>
#include <poll.h>
#include <pthread.h>
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

static tdm_status speaker_say(tdm_call *call, void *self)
{
    const char *text;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &text));
    (void)printf("%s\n", text);
    (void)fprintf(stderr, "aside: %s\n", text);
    return TDM_OK;
}

static tdm_status speaker_hang(tdm_call *call, void *self)
{
    (void)self;
    while (tdm_call_is_canceled(call) == 0) {
        (void)poll(NULL, 0, 5);
    }
    return TDM_OK;
}

TDM_ACTOR_CLASS(speaker, .state_bytes = 1,
                .methods = {{"say", speaker_say}, {"hang", speaker_hang}});

/* Runs `tandem` with these arguments. Returns the exit code, and stores the output in `said`. */
static int tandem(const char *args)
{
    char line[1024];
    struct tdm_runtime_info node;

    tdm_runtime_describe(runtime, &node);
    (void)snprintf(line, sizeof(line), "TANDEM_ADDRESS=%s %s/tandem %s", node.address,
                   TDM_TEST_BUILD_DIR, args);
    return shell_run(NULL, line);
}

static tdm_actor *make_speaker(const char *name)
{
    const struct tdm_actor_options options = {.name = name, .num_gpus = 0.5};
    tdm_actor *actor = NULL;

    assert_int_equal(tdm_actor_create(runtime, "speaker", &options, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    return actor;
}

static void status_counts(void **state)
{
    tdm_actor *actor = make_speaker("counted");
    json_t *root;
    double row[3];
    double used;

    (void)state;
    assert_int_equal(tandem("status"), 0);
    assert_non_null(strstr(said, "nodes   1\nactors  1 ALIVE\n"));
    assert_non_null(strstr(said, "\nGPU "));
    assert_int_equal(sscanf(strstr(said, "\nGPU "), " GPU %lf %lf %lf", &row[0], &row[1], &row[2]),
                     3);
    assert_true(row[0] == 0.5 && row[1] == 3.5 && row[2] == 4);
    assert_int_equal(tandem("status --json"), 0);
    root = json_loads(said, 0, NULL);
    assert_non_null(root);
    used = json_real_value(json_object_get(
               json_object_get(json_object_get(root, "resources"), "GPU"), "total")) -
           json_real_value(
               json_object_get(json_object_get(json_object_get(root, "resources"), "GPU"), "free"));
    assert_true(used == 0.5);
    json_decref(root);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

/* With two samples, the second one shows the calls made in between. */
static void top_shows_running_calls(void **state)
{
    tdm_actor *actor = make_speaker("busy");
    const char *second;
    tdm_ref *ref;

    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(tdm_actor_call(actor, "say", &ref, "s", "word"), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_OK);
        tdm_ref_release(ref);
    }
    assert_int_equal(tandem("top --every 1 --count 2"), 0);
    assert_null(strchr(said, '\033')); /* no terminal */
    second = strstr(said, "\ntandem top");
    assert_non_null(second);
    assert_non_null(strstr(said, "\nbusy   ALIVE  -        -"));
    assert_non_null(strstr(second, "\nbusy   ALIVE  0        0.0%"));
    assert_int_equal(tandem("top --every 0"), 2);
    assert_non_null(strstr(said, "--every: expected a number from 1 to 3600, got \"0\""));
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void actors_are_killed_by_name_or_id(void **state)
{
    tdm_actor *actors[2] = {make_speaker("prey/1"), make_speaker("prey/2")};
    struct tdm_actor_info info;
    const char *first;
    char args[80];
    tdm_ref *ref;

    (void)state;
    tdm_actor_describe(actors[1], &info);
    assert_int_equal(tandem("kill prey/1 nobody"), 1);
    assert_non_null(strstr(said, "no actor has the name \"nobody\""));
    assert_int_equal(tdm_actor_call(actors[0], "say", &ref, "s", "I live"), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_OK);
    tdm_ref_release(ref);
    (void)snprintf(args, sizeof(args), "kill prey/1 %.8s prey/1", info.id);
    assert_int_equal(tandem(args), 0);
    first = strstr(said, "killed prey/1 (");
    assert_non_null(first);
    /* An actor that is named twice is killed once. */
    assert_null(strstr(first + 1, "killed prey/1 ("));
    assert_non_null(strstr(said, "killed prey/2 ("));
    for (int i = 0; i < 2; i++) {
        tdm_status status = tdm_actor_call(actors[i], "say", &ref, "s", "word");

        if (status == TDM_OK) {
            status = tdm_get(ref, TEST_TIMEOUT_MS, "");
            tdm_ref_release(ref);
        }
        assert_int_equal(status, TDM_E_ACTOR_DIED);
        tdm_actor_destroy(actors[i]);
    }
    assert_int_equal(tandem("kill prey/1"), 1);
    assert_non_null(strstr(said, "actor prey/1 died: node "));
    assert_int_equal(tandem("kill"), 2);
}

static void wrong_arguments_print_the_help_of_their_command(void **state)
{
    (void)state;
    /* The option must not be accepted without an effect. */
    assert_int_equal(tandem("list nodes --live"), 2);
    assert_non_null(strstr(said, "--live applies to the list of actors"));
    assert_int_equal(tandem("list actors --each"), 2);
    assert_non_null(strstr(said, "--each applies to the list of calls"));
    assert_int_equal(tandem("list actors --nonsense"), 2);
    assert_non_null(strstr(said, "see: tandem list --help\n"));
    assert_int_equal(tandem("list actors nodes"), 2);
    assert_non_null(strstr(said, "see: tandem list --help\n"));
    assert_int_equal(tandem("logs"), 2);
    assert_non_null(strstr(said, "see: tandem logs --help\n"));
    assert_int_equal(tandem("kill"), 2);
    assert_non_null(strstr(said, "usage: tandem kill ACTOR"));
    assert_non_null(strstr(said, "see: tandem kill --help\n"));
    /* An empty address does not start a private node. */
    assert_int_equal(tandem("status --address ''"), 2);
    assert_non_null(strstr(said, "a value is missing after \"--address\""));
}

#define TANDEMD "version >/dev/null; " TDM_TEST_BUILD_DIR "/tandemd "

/* The error is on stderr, and does not mention a token. */
static void daemon_that_cannot_start_says_why(void **state)
{
    (void)state;
    assert_int_equal(tandem(TANDEMD "--directory /tmp"), 1);
    assert_string_equal(
        said, "tandemd: /tmp must be a directory of your own that nobody else may write\n");
    assert_int_equal(tandem(TANDEMD "--metrics-address nowhere 2>/dev/null"), 1);
    assert_string_equal(said, "");
    assert_int_equal(tandem(TANDEMD "--metrics-address nowhere"), 1);
    assert_memory_equal(said, "tandemd: \"nowhere\" is neither", 29);
    assert_int_equal(tandem(TANDEMD "--nonsense"), 2);
    assert_memory_equal(said, "tandemd: ", 9);
    /* If two options are wrong, the error names the one that can be checked without waiting. */
    assert_int_equal(tandem(TANDEMD "--redis redis://127.0.0.1:1"), 1);
    assert_memory_equal(
        said, "tandemd: starting the daemon failed: a node of a cluster needs TANDEM_TOKEN_FILE",
        80);
}

/* Shell script that starts a daemon, ends it by the signal, and starts it again in the same
 * directory. The supervisor may hold the directory's lock until it has ended the remaining
 * processes. */
#define TWICE(signal)                                                                              \
    "version >/dev/null; D=$(mktemp -d); "                                                         \
    "run() { : >$D/out; " TDM_TEST_BUILD_DIR "/tandemd --directory $D/node >$D/out 2>&1 & P=$!; "  \
    "until grep -q ^ready $D/out || ! kill -0 $P 2>/dev/null; do sleep 0.01; done; "               \
    "cat $D/out; kill -$1 $P; wait $P 2>/dev/null; }; "                                            \
    "run " signal "; cp $D/node/token $D/first; flock -w 20 $D/node/lock true; run TERM; "         \
    "cmp $D/first $D/node/token && echo same token; rm -r $D"

static void daemon_starts_again_where_one_was(void **state)
{
    static const char *const twice[] = {TWICE("TERM"), TWICE("KILL")};

    (void)state;
    for (size_t i = 0; i < sizeof(twice) / sizeof(twice[0]); i++) {
        const char *first;

        assert_int_equal(tandem(twice[i]), 0);
        first = strstr(said, "ready ");
        assert_non_null(first);
        assert_non_null(strstr(first + 1, "ready "));
        assert_non_null(strstr(said, "same token\n"));
    }
}

#define FAKE                                                                                       \
    "version >/dev/null; D=$(mktemp -d); trap 'rm -r $D' EXIT; FAKE_CUDA_DIRECTORY=$D "            \
    "FAKE_CUDA_DEVICES=2 TANDEM_CUDA_LIBRARY="
#define INFO " " TDM_TEST_BUILD_DIR "/tandem info"

/* The command uses the same driver library as a daemon, and prints the reason if that fails. */
static void info_lists_the_gpus_that_a_daemon_can_offer(void **state)
{
    (void)state;
    if (getenv("TANDEM_TEST_REAL_GPU") == NULL) {
        assert_int_equal(tandem(FAKE TDM_TEST_BUILD_DIR "/tests/cuda_fake.so" INFO), 0);
        assert_non_null(strstr(said, "cuda         2 GPUs of 0.2 GiB\n"));
    }
    assert_int_equal(tandem(FAKE "/no/such/libcuda.so" INFO), 0);
    assert_non_null(strstr(said, "cuda         none: no CUDA driver: /no/such/libcuda.so"));
    assert_int_equal(tandem(FAKE "/no/such/libcuda.so" INFO " --json"), 0);
    assert_non_null(strstr(said, "\"cuda_gpus\":0"));
}

static void failed_output_is_reported(void **state)
{
    (void)state;
    assert_int_equal(tandem("list nodes > /dev/full"), 1);
    assert_non_null(strstr(said, "tandem: writing to stdout failed: No space left on device"));
    assert_int_equal(tandem("list nodes --json | true"), 0);
    assert_string_equal(said, "");
}

static void living_actors_are_listed_first(void **state)
{
    tdm_actor *dead = make_speaker("dead");
    tdm_actor *actor;

    (void)state;
    assert_int_equal(tdm_actor_kill(dead, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(dead);
    actor = make_speaker("alive");
    assert_int_equal(tandem("list actors"), 0);
    assert_non_null(strstr(said, " signal 9 (killed)\n"));
    /* The other columns show this. */
    assert_null(strstr(said, "died: node"));
    assert_true(strstr(said, "alive") < strstr(said, "dead "));
    assert_int_equal(tandem("list actors --live"), 0);
    assert_non_null(strstr(said, "alive"));
    assert_null(strstr(said, "DEAD"));
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void lists_are_for_people_and_programs(void **state)
{
    tdm_actor *actor = make_speaker("listed");
    struct tdm_actor_info info;
    const char *id = NULL;
    json_t *rows;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(tandem("list actors"), 0);
    assert_non_null(strstr(said, "listed   ALIVE"));
    assert_int_equal(tandem("list actors --json"), 0);
    rows = json_loads(said, 0, NULL);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);

        if (strcmp(json_string_value(json_object_get(row, "name")), "listed") == 0) {
            id = json_string_value(json_object_get(row, "id"));
            assert_true(json_integer_value(json_object_get(row, "pid")) == info.pid);
            assert_true(json_is_false(json_object_get(row, "detached")));
            assert_true(json_is_object(json_object_get(row, "resources")));
            assert_null(json_object_get(row, "amounts")); /* These are "resources". */
        }
    }
    assert_non_null(id);
    assert_string_equal(id, info.id);
    json_decref(rows);
    assert_int_equal(tandem("list nodes"), 0);
    assert_non_null(strstr(said, "GPU 3.5/4"));
    assert_int_equal(tandem("list groups"), 0);
    assert_int_equal(tandem("list planets"), 2);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

/* Returns the row of a JSON list whose name is `name`, borrowed; NULL if there is none. */
static const json_t *row_named(const json_t *rows, const char *name)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);

        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) {
            return row;
        }
    }
    return NULL;
}

/* Returns a text of the row `name` of the list that the command prints as JSON; "" without it. */
static const char *listed_text(const char *command, const char *name, const char *key)
{
    static char text[1024];
    json_t *rows;
    const json_t *row;

    assert_int_equal(tandem(command), 0);
    rows = json_loads(said, 0, NULL);
    assert_non_null(rows);
    row = row_named(rows, name);
    (void)snprintf(text, sizeof(text), "%s",
                   row == NULL ? "" : json_string_value(json_object_get(row, key)));
    json_decref(rows);
    return text;
}

/* Returns a number of the summary in JSON. */
static int status_number(const char *key)
{
    json_t *root;
    int number;

    assert_int_equal(tandem("status --json"), 0);
    root = json_loads(said, 0, NULL);
    assert_non_null(root);
    number = (int)json_integer_value(json_object_get(root, key));
    json_decref(root);
    return number;
}

static void actor_that_waits_is_listed_with_the_reason(void **state)
{
    tdm_actor *busy = make_speaker("busy");
    const struct tdm_actor_options options = {.name = "greedy", .num_gpus = 4};
    int64_t deadline_ms = tdm__clock_ms() + TEST_TIMEOUT_MS;
    tdm_actor *actor;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "speaker", &options, &actor, ""), TDM_OK);
    while (listed_text("list actors --json", "greedy", "death_cause")[0] == '\0' &&
           tdm__clock_ms() < deadline_ms) {
        (void)usleep(10000);
    }
    assert_string_equal(listed_text("list actors --json", "greedy", "state"), "PENDING");
    assert_non_null(strstr(listed_text("list actors --json", "greedy", "death_cause"),
                           "not enough is free now: "));
    assert_int_equal(tandem("list actors --live"), 0);
    assert_non_null(strstr(said, "greedy  PENDING"));
    assert_non_null(strstr(strstr(said, "greedy  PENDING"), "not enough is free now: "));
    assert_int_equal(status_number("waiting_actors"), 1);
    assert_int_equal(tandem("status"), 0);
    assert_non_null(strstr(said, "\nwaiting 1 requests: 1 actors, 0 groups\n"));
    assert_int_equal(tdm_actor_kill(busy, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(busy);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    assert_string_equal(listed_text("list actors --json", "greedy", "death_cause"), "");
    assert_int_equal(status_number("waiting_actors"), 0);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

/* Thread that creates a group of four GPUs, which waits while another group has one of them. */
static void *create_waiting_group(void *group_out)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 2}, {.num_gpus = 2}};
    const struct tdm_placement_group_options options = {.name = "synchronous"};
    tdm_status status =
        tdm_placement_group_create_with(runtime, bundles, 2, &options, TEST_TIMEOUT_MS, group_out);

    return (void *)(uintptr_t)status;
}

/* Its creator waits for the one, and not for the other. */
static void group_that_waits_is_listed_with_reason_time_and_ticket(void **state)
{
    static const struct tdm_bundle one = {.num_gpus = 1};
    static const struct tdm_bundle five = {.num_gpus = 5};
    const struct tdm_placement_group_options asynchronous = {.name = "asynchronous",
                                                             .asynchronous = 1};
    int64_t deadline_ms = tdm__clock_ms() + TEST_TIMEOUT_MS;
    tdm_placement_group *groups[3];
    pthread_t thread;
    json_t *rows;
    const json_t *row;
    void *failed;

    (void)state;
    assert_int_equal(
        tdm_placement_group_create(runtime, &one, 1, TDM_PACK, TEST_TIMEOUT_MS, &groups[0]),
        TDM_OK);
    assert_int_equal(tdm_placement_group_create_with(runtime, &five, 1, &asynchronous,
                                                     TEST_TIMEOUT_MS, &groups[1]),
                     TDM_OK);
    assert_int_equal(pthread_create(&thread, NULL, create_waiting_group, &groups[2]), 0);
    do {
        (void)usleep(100000);
        assert_int_equal(tandem("list groups --json"), 0);
        rows = json_loads(said, 0, NULL);
        assert_non_null(rows);
        row = row_named(rows, "synchronous");
        if (row != NULL && json_integer_value(json_object_get(row, "ticket")) > 0 &&
            json_integer_value(json_object_get(row, "waited_ms")) > 0) {
            break;
        }
        json_decref(rows);
        row = NULL;
    } while (tdm__clock_ms() < deadline_ms);
    assert_non_null(row);
    assert_int_equal(json_array_size(json_object_get(row, "bundles")), 2);
    json_decref(rows);
    assert_string_equal(listed_text("list groups --json", "synchronous", "state"), "PENDING");
    assert_non_null(strstr(listed_text("list groups --json", "synchronous", "waits_for"),
                           "not enough is free now: "));
    assert_string_equal(listed_text("list groups --json", "asynchronous", "state"), "PENDING");
    assert_non_null(strstr(listed_text("list groups --json", "asynchronous", "waits_for"),
                           "can never hold it"));
    assert_int_equal(tandem("list groups"), 0);
    assert_non_null(strstr(said, "WAITED"));
    assert_non_null(strstr(strstr(said, "synchronous"), "not enough is free now: "));
    assert_int_equal(status_number("groups"), 3);
    assert_int_equal(status_number("waiting_groups"), 2);
    assert_int_equal(tdm_placement_group_remove(groups[1], TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_placement_group_remove(groups[0], TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_string_equal(listed_text("list groups --json", "synchronous", "state"), "CREATED");
    assert_string_equal(listed_text("list groups --json", "synchronous", "waits_for"), "");
    assert_int_equal(status_number("waiting_groups"), 0);
    assert_int_equal(tdm_placement_group_remove(groups[2], TEST_TIMEOUT_MS), TDM_OK);
}

static void objects_are_for_people_and_programs(void **state)
{
    static char bytes[1 << 20];
    const json_t *row;
    json_t *rows;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_put(runtime, &ref, "b", (const void *)bytes, sizeof(bytes)), TDM_OK);
    assert_int_equal(tandem("list objects"), 0);
    assert_non_null(strstr(said, "BORROWERS"));
    assert_non_null(strstr(said, "SHARED"));
    assert_int_equal(tandem("list objects --json"), 0);
    rows = json_loads(said, 0, NULL);
    assert_int_equal(json_array_size(rows), 1);
    row = json_array_get(rows, 0);
    assert_true(json_integer_value(json_object_get(row, "pid")) == getpid());
    assert_true(json_integer_value(json_object_get(row, "size_bytes")) > (1 << 20));
    assert_true(json_integer_value(json_object_get(row, "borrowers_count")) == 0);
    json_decref(rows);
    tdm_ref_release(ref);
    assert_int_equal(tandem("list objects --json"), 0);
    assert_string_equal(said, "[]\n");
}

static void calls_are_for_people_and_programs(void **state)
{
    tdm_actor *actor = make_speaker("counted");
    const json_t *row = NULL;
    json_t *rows;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(actor_fixture_call(actor, "say", "something"), TDM_OK);
    }
    assert_int_equal(tandem("list calls"), 0);
    assert_non_null(strstr(said, "METHOD  WAITING  RUNNING  FINISHED  FAILED"));
    assert_int_equal(tandem("list calls --json"), 0);
    rows = json_loads(said, 0, NULL);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *at = json_array_get(rows, i);

        if (strcmp(json_string_value(json_object_get(at, "actor_name")), "counted") == 0) {
            row = at;
        }
    }
    assert_non_null(row);
    assert_string_equal(json_string_value(json_object_get(row, "method")), "say");
    assert_true(json_integer_value(json_object_get(row, "finished")) == 3);
    assert_true(json_integer_value(json_object_get(row, "waiting")) == 0);
    json_decref(rows);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void each_call_is_for_people_and_programs(void **state)
{
    tdm_actor *actor = make_speaker("slow");
    json_t *rows;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    do {
        assert_int_equal(tandem("list calls --each"), 0);
    } while (strstr(said, "RUNNING") == NULL);
    assert_non_null(strstr(said, "CALLER"));
    assert_int_equal(tandem("list calls --each --json"), 0);
    rows = json_loads(said, 0, NULL);
    assert_int_equal(json_array_size(rows), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "actor_name")),
                        "slow");
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "method")),
                        "hang");
    json_decref(rows);
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void logs_are_read_by_name_and_by_id(void **state)
{
    tdm_actor *actor = make_speaker("talkative");
    struct tdm_actor_info info;
    char args[96];

    (void)state;
    tdm_actor_describe(actor, &info);
    for (int i = 0; i < 20; i++) {
        char text[32];

        (void)snprintf(text, sizeof(text), "line %d", i);
        assert_int_equal(actor_fixture_call(actor, "say", text), TDM_OK);
    }
    assert_int_equal(tandem("logs talkative --tail 2"), 0);
    assert_string_equal(said, "line 18\nline 19\n");
    (void)snprintf(args, sizeof(args), "logs %.8s --err", info.id);
    assert_int_equal(tandem(args), 0);
    assert_int_equal(strncmp(said, "aside: line 0\n", 14), 0);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    /* The actor has ended. */
    assert_int_equal(tandem("logs talkative --follow --tail 1"), 0);
    assert_string_equal(said, "line 19\n");
    assert_int_equal(tandem("logs nobody"), 1);
    assert_non_null(strstr(said, "no actor has the name \"nobody\""));
    assert_int_equal(tandem("logs --node"), 0);
    assert_int_equal(tandem("logs"), 2);
    assert_int_equal(tandem("logs talkative --tail few"), 2);
    tdm_actor_destroy(actor);
}

/* Returns the name of a process in the trace; "" if it has none. */
static const char *label_of(const json_t *events, json_int_t number)
{
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);

        if (strcmp(json_string_value(json_object_get(event, "name")), "process_name") == 0 &&
            json_integer_value(json_object_get(event, "pid")) == number) {
            return json_string_value(json_object_get(json_object_get(event, "args"), "name"));
        }
    }
    return "";
}

static void timeline_is_a_trace_of_the_calls(void **state)
{
    tdm_actor *actor = make_speaker("traced");
    struct tdm_actor_info info;
    char args[128];
    char path[64];
    uint32_t spans = 0;
    json_int_t number = 0;
    const char *label;
    json_t *events;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(actor_fixture_call(actor, "say", "one"), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "say", "two"), TDM_OK);
    (void)snprintf(path, sizeof(path), "/tmp/tdt-timeline-%d.json", (int)getpid());
    (void)snprintf(args, sizeof(args), "timeline -o %s", path);
    assert_int_equal(tandem(args), 0);
    events = json_load_file(path, 0, NULL);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);

        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") == 0) {
            assert_string_equal(json_string_value(json_object_get(event, "name")), "say");
            number = json_integer_value(json_object_get(event, "pid"));
            assert_true(json_number_value(json_object_get(event, "ts")) >= 0);
            assert_true(json_number_value(json_object_get(event, "dur")) > 0);
            spans++;
        }
    }
    assert_int_equal(spans, 2);
    /* Two machines may use the same pids. So actors are numbered, and the pid is in the name. */
    assert_int_equal(number, 1);
    (void)snprintf(args, sizeof(args), ", pid %lld", (long long)info.pid);
    label = label_of(events, number);
    assert_memory_equal(label, "traced on ", strlen("traced on "));
    assert_non_null(strstr(label, args));
    json_decref(events);
    (void)unlink(path);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
    assert_int_equal(tandem("timeline -o /nowhere/x.json"), 1);
    assert_non_null(strstr(said, "no actor has recorded a call"));
}

static void missing_node_is_reported_with_the_way_to_name_one(void **state)
{
    (void)state;
    assert_int_equal(tandem("status --address unix:/nowhere/tandemd.sock"), 1);
    assert_int_equal(tandem("status; env -u TANDEM_ADDRESS TMPDIR=/nowhere " TDM_TEST_BUILD_DIR
                            "/tandem status"),
                     1);
    assert_non_null(strstr(said, "no node of yours runs on this machine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_counts),
        cmocka_unit_test(top_shows_running_calls),
        cmocka_unit_test(living_actors_are_listed_first),
        cmocka_unit_test(wrong_arguments_print_the_help_of_their_command),
        cmocka_unit_test(daemon_that_cannot_start_says_why),
        cmocka_unit_test(daemon_starts_again_where_one_was),
        cmocka_unit_test(info_lists_the_gpus_that_a_daemon_can_offer),
        cmocka_unit_test(failed_output_is_reported),
        cmocka_unit_test(actors_are_killed_by_name_or_id),
        cmocka_unit_test(lists_are_for_people_and_programs),
        cmocka_unit_test(actor_that_waits_is_listed_with_the_reason),
        cmocka_unit_test(group_that_waits_is_listed_with_reason_time_and_ticket),
        cmocka_unit_test(objects_are_for_people_and_programs),
        cmocka_unit_test(calls_are_for_people_and_programs),
        cmocka_unit_test(each_call_is_for_people_and_programs),
        cmocka_unit_test(logs_are_read_by_name_and_by_id),
        cmocka_unit_test(timeline_is_a_trace_of_the_calls),
        cmocka_unit_test(missing_node_is_reported_with_the_way_to_name_one),
    };
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    int failed;

    options.log_to_driver = -1;
    (void)setenv("TANDEM_TIMELINE", "1", 1);
    runtime = actor_fixture_open(&options);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
