/* checkpoint_test.c - a checkpoint is whole, or not there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/checkpoint.h"

#include "colocate/job/checkpoint_manifest.h"
#include "runtime/failpoint.h"
#include "tests/support/disk_log.h"
#include "tests/support/redis_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static char out[64];
static const struct tdm__job_spec no_job;
static struct tdm__worker_group nobody = {.spec =
                                              /* There are no ranks, so that only Tandem's own
                                               * files are written. */
                                          &no_job};

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(out, sizeof(out), "/tmp/tandem-checkpoint-XXXXXX");
    return mkdtemp(out) == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_tree(out);
    return 0;
}

static const char *path(const char *name)
{
    static char whole[128];

    (void)snprintf(whole, sizeof(whole), "%s/%s", out, name);
    return whole;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path(name), "w");

    assert_non_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
}

static bool is_there(const char *name)
{
    return access(path(name), F_OK) == 0;
}

static void assert_round_trip(struct tdm__checkpoint_state sent)
{
    struct tdm__checkpoint_state got;
    struct tdm__checkpoint_origin origin;

    TRY(tdm__checkpoint_save(&nobody, out, &sent));
    TRY(tdm__checkpoint_read_state(path("checkpoint"), &got));
    TRY(tdm__checkpoint_manifest_verify(path("checkpoint"), &origin));
    assert_int_equal(origin.step, sent.step);
    assert_string_equal(origin.run, sent.run);
    assert_int_equal(got.step, sent.step);
    assert_true(got.version == sent.version);
    assert_string_equal(got.run, sent.run);
    assert_true(isnan(sent.score_before) ? isnan(got.score_before)
                                         : got.score_before == sent.score_before);
}

static void state_comes_back_as_it_was_saved(void **state)
{
    (void)state;
    assert_round_trip((struct tdm__checkpoint_state){.score_before = NAN, .run = ""});
    assert_round_trip((struct tdm__checkpoint_state){
        .step = UINT32_MAX, .version = INT64_MAX, .score_before = 1.0 / 3, .run = ""});
    assert_round_trip(
        (struct tdm__checkpoint_state){.step = 7, .version = 9, .score_before = 0, .run = "5f3a"});
}

static void later_one_takes_the_place_of_the_one_before(void **state)
{
    const struct tdm__checkpoint_state first = {
        .step = 1, .version = 2, .score_before = 0.5, .run = "a"};
    const struct tdm__checkpoint_state second = {
        .step = 3, .version = 4, .score_before = 0.5, .run = "a"};
    struct tdm__checkpoint_state got;
    char target[64] = "";

    (void)state;
    TRY(tdm__checkpoint_save(&nobody, out, &first));
    write_file("checkpoint/of-the-first", "x");
    TRY(tdm__checkpoint_save(&nobody, out, &second));
    TRY(tdm__checkpoint_read_state(path("checkpoint"), &got));
    assert_int_equal(got.step, 3);
    assert_false(is_there("checkpoint/of-the-first"));
    assert_false(is_there("checkpoint.new"));
    assert_false(is_there("checkpoint.old"));
    assert_true(readlink(path("hf"), target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "checkpoint/hf");
}

/* The new checkpoint is on disk before it takes its name, and so is the name. */
static void saved_checkpoint_outlives_a_power_failure(void **state)
{
    const struct tdm__checkpoint_state saved = {
        .step = 1, .version = 2, .score_before = 0.5, .run = "a"};
    char written[128];
    char renamed[128];
    char synced[128];

    (void)state;
    (void)snprintf(written, sizeof(written), "fsync %s/checkpoint.new\n", out);
    (void)snprintf(renamed, sizeof(renamed), "rename %s/checkpoint\n", out);
    (void)snprintf(synced, sizeof(synced), "fsync %s\n", out);
    for (int i = 0; i < 2; i++) { /* The second one is exchanged with the first one. */
        disk_log_clear();
        TRY(tdm__checkpoint_save(&nobody, out, &saved));
        disk_log_expect(written, renamed);
        disk_log_expect(renamed, synced);
    }
}

/* A job that was killed half way leaves these. */
static void leftovers_of_an_interrupted_save_do_no_harm(void **state)
{
    const struct tdm__checkpoint_state first = {
        .step = 1, .version = 2, .score_before = 0.5, .run = "a"};
    const struct tdm__checkpoint_state second = {
        .step = 3, .version = 4, .score_before = 0.5, .run = "a"};
    struct tdm__checkpoint_state got;

    (void)state;
    TRY(tdm__checkpoint_save(&nobody, out, &first));
    assert_int_equal(mkdir(path("checkpoint.new"), 0777), 0);
    write_file("checkpoint.new/rank-0", "half");
    assert_int_equal(mkdir(path("checkpoint.old"), 0777), 0);
    write_file("checkpoint.old/rank-0", "older");
    TRY(tdm__checkpoint_read_state(path("checkpoint"), &got));
    assert_int_equal(got.step, 1);
    TRY(tdm__checkpoint_save(&nobody, out, &second));
    TRY(tdm__checkpoint_read_state(path("checkpoint"), &got));
    assert_int_equal(got.step, 3);
    assert_false(is_there("checkpoint/rank-0"));
    assert_false(is_there("checkpoint.old"));
}

/* Saves twice where the call is missing that exchanges two names. Runs in a process of its own,
 * because failpoints are read once. */
static void file_system_that_cannot_exchange_names_has_checkpoints(void **state)
{
    const struct tdm__checkpoint_state first = {.step = 1};
    const struct tdm__checkpoint_state second = {.step = 2};
    struct tdm__checkpoint_choice choice;
    pid_t child = fork();
    int status;

    (void)state;
    if (child == 0) {
        (void)setenv("TANDEM_FAILPOINT", "driver checkpoint.exchange 1 skip /none", 1);
        _exit(tdm__checkpoint_save(&nobody, out, &first) == TDM_OK &&
                      tdm__failpoint_skips("checkpoint.exchange") &&
                      tdm__checkpoint_save(&nobody, out, &second) == TDM_OK
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    TRY(tdm__checkpoint_find(out, &choice));
    assert_int_equal(choice.state.step, 2);
    assert_string_equal(choice.directory, path("checkpoint"));
    assert_false(is_there("checkpoint.new"));
    assert_false(is_there("checkpoint.old"));
}

static void the_highest_number_given_comes_back(void **state)
{
    uint64_t noted = 1;

    (void)state;
    assert_int_equal(tdm__checkpoint_read_version(out, &noted), TDM_OK);
    assert_true(noted == 0);
    assert_int_equal(tdm__checkpoint_write_version(out, UINT64_MAX), TDM_OK);
    assert_int_equal(tdm__checkpoint_read_version(out, &noted), TDM_OK);
    assert_true(noted == UINT64_MAX);
    /* The shorter number leaves no digits of the former one. */
    assert_int_equal(tdm__checkpoint_write_version(out, 7), TDM_OK);
    assert_int_equal(tdm__checkpoint_read_version(out, &noted), TDM_OK);
    assert_true(noted == 7);
    write_file("version", "seven\n");
    assert_int_equal(tdm__checkpoint_read_version(out, &noted), TDM_E_PROTOCOL);
    write_file("version", "7 and more\n");
    assert_int_equal(tdm__checkpoint_read_version(out, &noted), TDM_E_PROTOCOL);
}

static void number_of_engines_is_saved_if_the_job_was_scaled(void **state)
{
    struct tdm__checkpoint_state saved = {.step = 1, .version = 2, .score_before = NAN, .run = "a"};
    struct tdm__checkpoint_state got;

    (void)state;
    TRY(tdm__checkpoint_save(&nobody, out, &saved));
    TRY(tdm__checkpoint_read_state(path("checkpoint"), &got));
    assert_int_equal(got.engines, 0);
    assert_int_equal(got.engines_of_file, 0);
    saved.engines = 3;
    saved.engines_of_file = 2;
    TRY(tdm__checkpoint_save(&nobody, out, &saved));
    TRY(tdm__checkpoint_read_state(path("checkpoint"), &got));
    assert_int_equal(got.engines, 3);
    assert_int_equal(got.engines_of_file, 2);
    write_file("checkpoint/state.json", "{\"step\": 1, \"version\": 2, \"engines\": 257}");
    assert_int_equal(tdm__checkpoint_read_state(path("checkpoint"), &got), TDM_E_PROTOCOL);
}

static void there_is_no_saving_where_there_is_no_directory(void **state)
{
    const struct tdm__checkpoint_state first = {
        .step = 1, .version = 2, .score_before = 0.5, .run = "a"};

    (void)state;
    assert_int_not_equal(tdm__checkpoint_save(&nobody, path("missing"), &first), TDM_OK);
    assert_false(is_there("missing"));
}

static void missing_checkpoint_is_named(void **state)
{
    struct tdm__checkpoint_state got = {.step = 77};

    (void)state;
    assert_int_equal(tdm__checkpoint_read_state(path("checkpoint"), &got), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "checkpoint/state.json"));
    assert_int_not_equal(tdm__checkpoint_load(&nobody, path("checkpoint")), TDM_OK);
    assert_int_not_equal(tdm__checkpoint_read_state("/no/such/place", &got), TDM_OK);
    assert_int_equal(got.step, 77);
}

/* Gives a file or directory another name. */
static void move(const char *from, const char *to)
{
    char source[128];

    (void)snprintf(source, sizeof(source), "%s", path(from));
    assert_int_equal(rename(source, path(to)), 0);
}

/* The run that saves checkpoints. */
static const char *saving_run = "a";

/* Saves a checkpoint and gives its directory another name. */
static void save_as(const char *name, uint32_t step)
{
    struct tdm__checkpoint_state saved = {
        .step = step, .version = step, .score_before = 0.5, .run = "a"};

    (void)snprintf(saved.run, sizeof(saved.run), "%s", saving_run);
    TRY(tdm__checkpoint_save(&nobody, out, &saved));
    if (strcmp(name, "checkpoint") != 0) {
        move("checkpoint", name);
    }
}

/* Checks that the job would resume the directory `name` at `step`. */
static void assert_found(const char *name, uint32_t step, const char *refused)
{
    struct tdm__checkpoint_choice choice;

    TRY(tdm__checkpoint_find(out, &choice));
    assert_string_equal(choice.directory, path(name));
    assert_int_equal(choice.state.step, step);
    if (strstr(choice.refused, refused) == NULL ||
        (refused[0] == '\0') != (choice.refused[0] == '\0')) {
        fail_msg("refused: \"%s\", expected \"%s\"", choice.refused, refused);
    }
}

static void newest_complete_checkpoint_is_found(void **state)
{
    (void)state;
    save_as("elsewhere", 3);
    save_as("checkpoint", 2);
    write_file("elsewhere/not-listed", "x");
    move("elsewhere", "checkpoint.new");
    assert_found("checkpoint", 2, "checkpoint.new/not-listed is not in the manifest");
    assert_int_equal(unlink(path("checkpoint.new/not-listed")), 0);
    assert_found("checkpoint.new", 3, "");
}

static void checkpoint_of_another_run_is_not_taken_for_a_newer_one(void **state)
{
    (void)state;
    saving_run = "b";
    save_as("elsewhere", 3);
    saving_run = "a";
    save_as("checkpoint", 2);
    move("elsewhere", "checkpoint.new");
    assert_found("checkpoint", 2, "checkpoint.new was saved by run b, and ");
}

/* As if the manifest of another save had been copied together with all files but one. */
static void manifest_of_another_save_is_refused(void **state)
{
    const struct tdm__checkpoint_origin others[] = {{7, "a"}, {2, "b"}};
    struct tdm__checkpoint_choice choice;

    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        save_as("checkpoint", 2);
        TRY(tdm__checkpoint_manifest_write(path("checkpoint"), &others[i]));
        assert_int_equal(tdm__checkpoint_find(out, &choice), TDM_E_PROTOCOL);
        assert_non_null(strstr(tdm_error_detail(), "but state.json of step 2 of run a"));
    }
}

/* Without RENAME_EXCHANGE, a save that is interrupted leaves the old directory and the new one. */
static void old_checkpoint_is_found_where_the_new_one_is_damaged(void **state)
{
    struct tdm__checkpoint_choice choice;

    (void)state;
    save_as("kept", 4);
    save_as("checkpoint", 6);
    move("kept", "checkpoint.old");
    assert_found("checkpoint", 6, "");
    write_file("checkpoint/state.json", "{\"step\": 9, \"version\": 9}");
    assert_found("checkpoint.old", 4, "checkpoint/state.json is damaged");
    TRY(tdm__checkpoint_find(out, &choice));
    TRY(tdm__checkpoint_restore(out, &choice));
    assert_string_equal(choice.directory, path("checkpoint"));
    assert_found("checkpoint", 4, "");
    assert_false(is_there("checkpoint.old"));
    TRY(tdm__checkpoint_restore(out, &choice));
    assert_found("checkpoint", 4, "");
}

static void without_a_complete_checkpoint_the_cause_is_named(void **state)
{
    struct tdm__checkpoint_choice choice;

    (void)state;
    assert_int_equal(tdm__checkpoint_find(out, &choice), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), out));
    save_as("checkpoint", 1);
    assert_int_equal(unlink(path("checkpoint/state.json")), 0);
    assert_int_equal(tdm__checkpoint_find(out, &choice), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "state.json is missing"));
}

static void corrupt_state_is_refused_by_the_name_of_its_file(void **state)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "{}",
                                        "[]",
                                        "3",
                                        "{\"step\": 3}",
                                        "{\"version\": 3}",
                                        "{\"step\": -1, \"version\": 3}",
                                        "{\"step\": 4294967296, \"version\": 3}",
                                        "{\"step\": 1, \"version\": -3}",
                                        "{\"step\": \"one\", \"version\": 3}",
                                        "{\"step\": 1.5, \"version\": 3}",
                                        "{\"step\": 1, \"version\": 3, \"bef"};
    struct tdm__checkpoint_state got = {.step = 77};

    (void)state;
    assert_int_equal(mkdir(path("checkpoint"), 0777), 0);
    for (uint32_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        tdm_status status;

        write_file("checkpoint/state.json", texts[i]);
        status = tdm__checkpoint_read_state(path("checkpoint"), &got);
        assert_true(status == TDM_E_PROTOCOL || status == TDM_E_TYPE);
        assert_non_null(strstr(tdm_error_detail(), "state.json"));
        assert_int_equal(got.step, 77);
    }
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First, because it needs a process in which no failpoint was passed. */
        EACH(file_system_that_cannot_exchange_names_has_checkpoints),
        EACH(state_comes_back_as_it_was_saved),
        EACH(later_one_takes_the_place_of_the_one_before),
        EACH(saved_checkpoint_outlives_a_power_failure),
        EACH(leftovers_of_an_interrupted_save_do_no_harm),
        EACH(the_highest_number_given_comes_back),
        EACH(number_of_engines_is_saved_if_the_job_was_scaled),
        EACH(there_is_no_saving_where_there_is_no_directory),
        EACH(missing_checkpoint_is_named),
        EACH(newest_complete_checkpoint_is_found),
        EACH(checkpoint_of_another_run_is_not_taken_for_a_newer_one),
        EACH(manifest_of_another_save_is_refused),
        EACH(old_checkpoint_is_found_where_the_new_one_is_damaged),
        EACH(without_a_complete_checkpoint_the_cause_is_named),
        EACH(corrupt_state_is_refused_by_the_name_of_its_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
