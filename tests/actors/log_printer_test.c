/* log_printer_test.c - printing lines with their origin, for fast and slow readers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/log_printer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct printing {
    int ends[2]; /* Both ends of a pipe. */
    struct tdm__log_printer *printer;
    char said[16384];
};

static void begin(struct printing *printing, bool fold)
{
    struct tdm__log_printer_options options = {.fold = fold};

    assert_int_equal(pipe2(printing->ends, O_CLOEXEC | O_NONBLOCK), 0);
    options.fds[TDM__LOG_OUT] = printing->ends[1];
    options.fds[TDM__LOG_ERR] = printing->ends[1];
    assert_int_equal(tdm__log_printer_create(&options, &printing->printer), TDM_OK);
}

static const char *said(struct printing *printing)
{
    ssize_t got = read(printing->ends[0], printing->said, sizeof(printing->said) - 1);

    printing->said[got < 0 ? 0 : got] = '\0';
    return printing->said;
}

static size_t take(struct printing *printing, const char *origin, const char *text, bool last)
{
    return tdm__log_printer_write(printing->printer, TDM__LOG_OUT, origin, text, strlen(text),
                                  last);
}

static void end(struct printing *printing)
{
    tdm__log_printer_destroy(printing->printer);
    (void)close(printing->ends[0]);
    (void)close(printing->ends[1]);
}

static void each_line_names_its_actor(void **state)
{
    struct printing printing;

    (void)state;
    begin(&printing, false);
    assert_int_equal(take(&printing, "trainer/2 pid=7", "one\ntwo\nunfini", false), 8);
    assert_string_equal(said(&printing), "(trainer/2 pid=7) one\n(trainer/2 pid=7) two\n");
    end(&printing);
}

static void the_last_line_of_a_process_needs_no_end(void **state)
{
    struct printing printing;

    (void)state;
    begin(&printing, false);
    assert_int_equal(take(&printing, "a pid=7", "segmenta", true), 8);
    assert_string_equal(said(&printing), "(a pid=7) segmenta\n");
    end(&printing);
}

static void endless_line_is_broken(void **state)
{
    struct printing printing;
    char *text = malloc(10001);

    (void)state;
    assert_non_null(text);
    memset(text, 'x', 10000);
    text[10000] = '\0';
    begin(&printing, false);
    assert_int_equal(take(&printing, "a", text, false), 7800);
    assert_int_equal(strlen(said(&printing)), 2 * (3900 + strlen("(a) \n")));
    end(&printing);
    free(text);
}

/* A pipe without a reader accepts what fits into it; no line is lost or printed twice. */
static void slow_reader_is_not_waited_for(void **state)
{
    enum { LINES = 40000 };
    struct printing printing;
    char *text = malloc((size_t)LINES * 8 + 1);
    size_t used = 0;
    size_t bytes = 0;

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < LINES; i++) {
        memcpy(text + (size_t)i * 8, "1234567\n", 9);
    }
    begin(&printing, false);
    used = take(&printing, "a", text, false);
    assert_true(used > 0 && used < (size_t)LINES * 8);
    assert_false(tdm__log_printer_flush(printing.printer));
    while (used < (size_t)LINES * 8 || !tdm__log_printer_flush(printing.printer)) {
        bytes += strlen(said(&printing));
        used += take(&printing, "a", text + used, false);
    }
    for (size_t got; (got = strlen(said(&printing))) > 0;) {
        bytes += got;
    }
    assert_int_equal(bytes, (size_t)LINES * strlen("(a) 1234567\n"));
    end(&printing);
    free(text);
}

static void repeated_lines_are_counted_when_asked(void **state)
{
    struct printing printing;

    (void)state;
    begin(&printing, true);
    assert_int_equal(take(&printing, "a pid=1", "loading\n", false), 8);
    assert_int_equal(take(&printing, "a pid=2", "loading\n", false), 8);
    assert_int_equal(take(&printing, "a pid=3", "loading\nloaded\n", false), 15);
    assert_string_equal(said(&printing), "(a pid=1) loading\n(a pid=3) loaded\n");
    /* The 5 s of the folded line are not over. */
    assert_false(tdm__log_printer_flush(printing.printer));
    tdm__log_printer_destroy(printing.printer);
    assert_string_equal(said(&printing), "(a pid=3) loading [repeated 2x across actors]\n");
    (void)close(printing.ends[0]);
    (void)close(printing.ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_line_names_its_actor),
        cmocka_unit_test(the_last_line_of_a_process_needs_no_end),
        cmocka_unit_test(endless_line_is_broken),
        cmocka_unit_test(slow_reader_is_not_waited_for),
        cmocka_unit_test(repeated_lines_are_counted_when_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
