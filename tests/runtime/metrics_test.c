/* metrics_test.c - histogram bins and the text format of Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/metrics/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void time_falls_into_the_first_bin_that_holds_it(void **state)
{
    struct tdm__histogram histogram = {0};
    struct tdm__histogram_snapshot view;

    (void)state;
    tdm__histogram_add(&histogram, -5);
    tdm__histogram_add(&histogram, 1000);    /* 1 µs */
    tdm__histogram_add(&histogram, 1001);    /* Bin of 2 µs. */
    tdm__histogram_add(&histogram, 2000);    /* Bin of 2 µs. */
    tdm__histogram_add(&histogram, 2001);    /* Bin of 4 µs. */
    tdm__histogram_add(&histogram, 1048576); /* Bin of 2048 µs. */
    tdm__histogram_add(&histogram, INT64_MAX / 4);
    tdm__histogram_read(&histogram, &view);
    assert_int_equal(view.bins[0], 2);
    assert_int_equal(view.bins[1], 2);
    assert_int_equal(view.bins[2], 1);
    assert_int_equal(view.bins[11], 1);
    assert_int_equal(view.bins[TDM__HISTOGRAM_BINS - 1], 1);
}

static void text_is_as_prometheus_wants_it(void **state)
{
    static const char *const labels[] = {"class", "a \"b\"\\\n", "name", "", NULL};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    tdm__metrics_family(out, "x_total", "counter", "Help.");
    tdm__metrics_sample(out, "x_total", labels, 3);
    tdm__metrics_sample(out, "x_total", NULL, 0.25);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "# HELP x_total Help.\n"
                              "# TYPE x_total counter\n"
                              "x_total{class=\"a \\\"b\\\"\\\\\\n\",name=\"\"} 3\n"
                              "x_total 0.25\n");
    free(text);
}

static void bins_of_a_histogram_add_up(void **state)
{
    struct tdm__histogram histogram = {0};
    struct tdm__histogram_snapshot view;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    tdm__histogram_add(&histogram, 1500);
    tdm__histogram_add(&histogram, 500);
    tdm__histogram_read(&histogram, &view);
    tdm__metrics_histogram(out, "t", NULL, &view);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "t_bucket{le=\"1e-06\"} 1\nt_bucket{le=\"2e-06\"} 2\n"));
    assert_non_null(strstr(text, "t_bucket{le=\"+Inf\"} 2\nt_sum 2e-06\nt_count 2\n"));
    free(text);
}

static void process_measures_itself(void **state)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    tdm__metrics_process(out);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "\nprocess_resident_memory_bytes "));
    assert_null(strstr(text, "\nprocess_resident_memory_bytes 0\n"));
    assert_non_null(strstr(text, "\nprocess_open_fds "));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_falls_into_the_first_bin_that_holds_it),
        cmocka_unit_test(text_is_as_prometheus_wants_it),
        cmocka_unit_test(bins_of_a_histogram_add_up),
        cmocka_unit_test(process_measures_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
