/* dataset_test.c - rows are read whole or refused by line; epochs take each row once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/tandem-dataset-XXXXXX";

static tdm_status read_bytes(const char *text, size_t size_bytes, struct tdm__dataset *dataset)
{
    FILE *stream = fopen(path, "w");

    assert_non_null(stream);
    assert_int_equal(fwrite(text, 1, size_bytes, stream), size_bytes);
    assert_int_equal(fclose(stream), 0);
    return tdm__dataset_read(path, "question", "answer", dataset);
}

static void refuses(const char *text, const char *detail)
{
    struct tdm__dataset dataset;
    tdm_status status = read_bytes(text, strlen(text), &dataset);

    if (status != TDM_E_PROTOCOL || strstr(tdm_error_detail(), detail) == NULL) {
        fail_msg("%s: wanted \"%s\", got %s: %s", text, detail, tdm_strerror(status),
                 tdm_error_detail());
    }
}

static void rows_are_read_by_their_keys(void **state)
{
    static const char text[] = "{\"question\": \"1+1\", \"answer\": \"2\", \"more\": [3]}\n"
                               "\n"
                               "{\"answer\": \"\xc3\xa9\", \"question\": \"\"}";
    struct tdm__dataset dataset;

    (void)state;
    assert_int_equal(read_bytes(text, strlen(text), &dataset), TDM_OK);
    assert_int_equal(dataset.rows_count, 2);
    assert_string_equal(dataset.rows[0].prompt, "1+1");
    assert_string_equal(dataset.rows[0].answer, "2");
    assert_string_equal(dataset.rows[1].prompt, "");
    assert_string_equal(dataset.rows[1].answer, "\xc3\xa9");
    tdm__dataset_fini(&dataset);
    tdm__dataset_fini(&dataset);
}

static void broken_rows_are_refused_by_line(void **state)
{
    struct tdm__dataset dataset;
    char place[64];

    (void)state;
    (void)snprintf(place, sizeof(place), "%s:2: \"answer\" is missing", path);
    refuses("{\"question\":\"a\",\"answer\":\"b\"}\n{\"question\":\"a\"}\n", place);
    refuses("{\"question\":\"a\",\"answer\":5}\n", ":1: \"answer\" is missing or no text");
    refuses("\n\n{\"question\"\n", ":3: column");
    refuses("[]\n", ":1: \"question\"");
    refuses("{\"answer\":\"\xff\"}\n", ":1: column");
    refuses("{\"question\":\"a\",\"answer\":\"b\"} {}\n", ":1: column");
    refuses("", "no rows");
    refuses(" \n\n", "no rows");
    assert_int_equal(read_bytes("{}\0{}\n", 6, &dataset), TDM_E_PROTOCOL);
    assert_int_equal(read_bytes("{}\0", 3, &dataset), TDM_E_PROTOCOL);
    assert_int_equal(tdm__dataset_read("/nowhere/x", "q", "a", &dataset), TDM_E_NOT_FOUND);
    assert_int_equal(tdm__dataset_read("/tmp", "q", "a", &dataset), TDM_E_IO);
}

static void endless_line_is_refused(void **state)
{
    size_t size_bytes = 2U * TDM__DATASET_LINE_BYTES_MAX;
    char *text = malloc(size_bytes + 1);

    (void)state;
    assert_non_null(text);
    memset(text, 'x', size_bytes);
    text[size_bytes] = '\0';
    refuses(text, ":1: a NUL, or a line of over 1048576 bytes");
    free(text);
}

static void every_epoch_takes_every_row_once(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 17, 64, 1000};
    uint32_t seen[1000];

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof(seen));
            for (uint64_t place = 0; place < counts[i]; place++) {
                seen[tdm__dataset_shuffled_row(counts[i], 42, epoch * counts[i] + place)]++;
            }
            for (uint32_t row = 0; row < counts[i]; row++) {
                assert_int_equal(seen[row], 1);
            }
        }
    }
}

static void orders_differ_by_epoch_and_by_seed(void **state)
{
    uint32_t same_epoch = 0;
    uint32_t same_seed = 0;
    uint32_t in_order = 0;

    (void)state;
    for (uint64_t place = 0; place < 1000; place++) {
        uint32_t row = tdm__dataset_shuffled_row(1000, 1, place);

        assert_int_equal(row, tdm__dataset_shuffled_row(1000, 1, place));
        same_epoch += row == tdm__dataset_shuffled_row(1000, 1, 1000 + place);
        same_seed += row == tdm__dataset_shuffled_row(1000, 2, place);
        in_order += row == place;
    }
    /* One match is expected by chance. */
    assert_in_range(same_epoch, 0, 9);
    assert_in_range(same_seed, 0, 9);
    assert_in_range(in_order, 0, 9);
}

static int make_file(void **state)
{
    (void)state;
    return close(mkstemp(path));
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_by_their_keys),
        cmocka_unit_test(broken_rows_are_refused_by_line),
        cmocka_unit_test(endless_line_is_refused),
        cmocka_unit_test(every_epoch_takes_every_row_once),
        cmocka_unit_test(orders_differ_by_epoch_and_by_seed),
    };

    return cmocka_run_group_tests(tests, make_file, remove_file);
}
