/* progress_test.c - the progress line says what was measured, in the room there is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/progress.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm__progress_step step = {.step = 12,
                                               .steps_count = 150,
                                               .reward = 0.31,
                                               .kl = 2e-7,
                                               .rollout_ms = 310.4,
                                               .train_ms = 182,
                                               .update_ms = 4.1,
                                               .version = 12,
                                               .off_on_ms = 6};

static void progress_line_has_bar_and_numbers(void **state)
{
    char text[TDM__PROGRESS_BYTES];

    (void)state;
    tdm__progress_text(&step, 200, text);
    assert_string_equal(text, "step  12/150 ━╸                         8%  reward 0.31  "
                              "kl(engine‖trainer) 2e-7  rollout 310 ms  train 182 ms  "
                              "update 4.1 ms v12  off/on 6.0 ms");
}

static void plain_line_has_no_bar(void **state)
{
    char text[TDM__PROGRESS_BYTES];

    (void)state;
    tdm__progress_text(&step, 0, text);
    assert_string_equal(text, "step  12/150  reward 0.31  kl(engine‖trainer) 2e-7  "
                              "rollout 310 ms  train 182 ms  update 4.1 ms v12  "
                              "off/on 6.0 ms");
}

static void test_plain_line_ends_with_the_metrics_of_the_job_library(void **state)
{
    static const struct tdm_metrics metrics = {
        .count = 3, .entries = {{"loss", 0.5}, {"reward", 0.31}, {"grad_norm", 12.25}}};
    struct tdm__progress_step measured = step;
    char text[TDM__PROGRESS_BYTES];

    (void)state;
    measured.metrics = &metrics;
    tdm__progress_text(&measured, 0, text);
    assert_non_null(strstr(text, "off/on 6.0 ms  loss 0.5  grad_norm 12.25"));
    tdm__progress_text(&measured, 300, text); /* A terminal shows the fixed fields only. */
    assert_null(strstr(text, "loss"));
}

static void line_is_never_wider_than_the_terminal(void **state)
{
    char text[TDM__PROGRESS_BYTES];

    (void)state;
    for (uint32_t columns = 1; columns < 200; columns++) {
        uint32_t used = 0;

        tdm__progress_text(&step, columns, text);
        for (const char *c = text; *c != '\0'; c++) {
            used += ((unsigned char)*c & 0xc0) != 0x80;
        }
        assert_in_range(used, 0, columns);
    }
    tdm__progress_text(&step, 79, text);
    assert_string_equal(text, "step  12/150 ╸            8%  reward 0.31  "
                              "kl(engine‖trainer) 2e-7");
    tdm__progress_text(&step, 30, text);
    assert_string_equal(text, "step  12/150  reward 0.31");
}

static void missing_measurements_are_not_shown(void **state)
{
    struct tdm__progress_step warm_up = {.supervised = true,
                                         .step = 15,
                                         .steps_count = 15,
                                         .reward = NAN,
                                         .kl = NAN,
                                         .rollout_ms = NAN,
                                         .train_ms = 9.96,
                                         .update_ms = NAN,
                                         .off_on_ms = NAN};
    char text[TDM__PROGRESS_BYTES];

    (void)state;
    tdm__progress_text(&warm_up, 80, text);
    assert_string_equal(text, "warm-up  15/15 ━━━━━━━━━━━━━━━━━━━━━━━━ 100%  train 10.0 ms");
}

static void the_json_of_a_step_can_be_parsed(void **state)
{
    static const struct tdm_metrics metrics = {.count = 2,
                                               .entries = {{"loss", 0.5}, {"odd", NAN}}};
    struct tdm__progress_step odd = step;
    char text[TDM__PROGRESS_BYTES];
    json_t *root_metrics;
    json_t *root;

    (void)state;
    odd.kl = NAN;
    odd.reward = -1e300;
    odd.metrics = &metrics;
    tdm__progress_json(&odd, text);
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "step")), 12);
    assert_true(json_is_null(json_object_get(root, "kl")));
    assert_true(json_real_value(json_object_get(root, "train_ms")) == 182.0);
    root_metrics = json_object_get(root, "metrics");
    assert_true(json_real_value(json_object_get(root_metrics, "loss")) == 0.5);
    assert_true(json_is_null(json_object_get(root_metrics, "odd")));
    json_decref(root);
}

static char *print(enum tdm__progress_mode mode)
{
    struct tdm__progress progress = {.mode = mode};
    size_t size_bytes;
    char *text = NULL;

    progress.stream = open_memstream(&text, &size_bytes);
    assert_non_null(progress.stream);
    tdm__progress_show(&progress, &step);
    tdm__progress_note(&progress, "saved %s", "\"out\"");
    tdm__progress_show(&progress, &step);
    tdm__progress_end(&progress);
    tdm__progress_end(&progress);
    assert_int_equal(fclose(progress.stream), 0);
    return text;
}

static void note_stands_above_the_live_line(void **state)
{
    char *text = print(TDM__PROGRESS_LIVE);

    (void)state;
    assert_memory_equal(text, "\r\x1b[Kstep", 8);
    assert_non_null(strstr(text, "\r\x1b[Ksaved \"out\"\n\r\x1b[Kstep"));
    assert_int_equal(text[strlen(text) - 1], '\n');
    assert_int_not_equal(text[strlen(text) - 2], '\n');
    free(text);
}

static void plain_and_json_output_are_complete_lines(void **state)
{
    char *text = print(TDM__PROGRESS_PLAIN);
    uint32_t lines = 0;

    (void)state;
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\x1b'));
    free(text);
    text = print(TDM__PROGRESS_JSON);
    for (char *line = text; *line != '\0'; lines++) {
        char *end = strchr(line, '\n');
        json_t *root;

        assert_non_null(end);
        root = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_true(json_is_object(root));
        json_decref(root);
        line = end + 1;
    }
    assert_int_equal(lines, 3);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_line_has_bar_and_numbers),
        cmocka_unit_test(plain_line_has_no_bar),
        cmocka_unit_test(test_plain_line_ends_with_the_metrics_of_the_job_library),
        cmocka_unit_test(line_is_never_wider_than_the_terminal),
        cmocka_unit_test(missing_measurements_are_not_shown),
        cmocka_unit_test(the_json_of_a_step_can_be_parsed),
        cmocka_unit_test(note_stands_above_the_live_line),
        cmocka_unit_test(plain_and_json_output_are_complete_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
