/* table_test.c - columns are aligned, whatever the cells contain. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void columns_are_as_wide_as_their_widest_cell(void **state)
{
    static const char *const titles[] = {"ID", "NAME", "WHY", NULL};
    struct tdm__table *table;
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(stream);
    assert_int_equal(tdm__table_create(titles, &table), TDM_OK);
    tdm__table_add(table, "%d", 12345);
    tdm__table_add(table, "%s", "");
    tdm__table_add(table, "%s", "a long reason");
    tdm__table_add(table, "%d", 6);
    tdm__table_add(table, "%s", "größe");
    tdm__table_add(table, "%s", "");
    tdm__table_print(table, stream);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, "ID     NAME   WHY\n"
                              "12345  -      a long reason\n"
                              "6      größe  -\n");
    free(text);
}

static void many_rows_fit(void **state)
{
    static const char *const titles[] = {"N", NULL};
    struct tdm__table *table;

    (void)state;
    assert_int_equal(tdm__table_create(titles, &table), TDM_OK);
    for (int i = 0; i < 5000; i++) {
        tdm__table_add(table, "%d", i);
    }
    tdm__table_print(table, NULL);
}

static void line_ends_where_the_screen_does(void **state)
{
    static const char *const titles[] = {"NAME", "WHY", NULL};
    struct tdm__table *table;
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(stream);
    assert_int_equal(tdm__table_create(titles, &table), TDM_OK);
    for (int i = 0; i < 3; i++) {
        tdm__table_add(table, "%s", "größe");
        tdm__table_add(table, "%s", i == 0 ? "äöüä" : "äöüäöü");
    }
    tdm__table_print_clipped(table, stream, 11, 2);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, "NAME   WHY\n"
                              "größe  äöüä\n"
                              "größe  äöü…\n");
    free(text);
}

/* No cell is printed below the title of another column. */
static void line_ends_before_a_cell_that_would_stand_elsewhere(void **state)
{
    static const char *const titles[] = {"STATE", "FAILED/S", "QUEUE", "ID", NULL};
    struct tdm__table *table;
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(stream);
    assert_int_equal(tdm__table_create(titles, &table), TDM_OK);
    tdm__table_add(table, "%s", "ALIVE");
    for (int i = 0; i < 3; i++) {
        tdm__table_add(table, "%d", i);
    }
    tdm__table_print_clipped(table, stream, 12, 2);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, "STATE  FAIL…\n"
                              "ALIVE  0   …\n");
    free(text);
}

static void there_is_no_screen_behind_a_file(void **state)
{
    FILE *file = tmpfile();

    (void)state;
    assert_non_null(file);
    assert_int_equal(tdm__terminal_size_of(file).width, 0);
    (void)fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(many_rows_fit),
        cmocka_unit_test(line_ends_where_the_screen_does),
        cmocka_unit_test(line_ends_before_a_cell_that_would_stand_elsewhere),
        cmocka_unit_test(there_is_no_screen_behind_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
