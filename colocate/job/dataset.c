/* dataset.c - reads prompts and expected answers from JSON Lines and shuffles them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Reading is line by line with bounded memory: a line longer than TDM__DATASET_LINE_BYTES_MAX is
 * an error, so that a file without newlines cannot exhaust the memory.
 * Shuffling computes a permutation instead of storing one: a Feistel network over the smallest even
 * number of bits that covers all rows, applied repeatedly until the result is a valid row (cycle
 * walking). The order depends on seed and epoch only, so that a resumed job continues with the same
 * rows. After tdm__dataset_read() a data set is read-only. */
#include "colocate/job/dataset.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- reading ---------------------------------------------------------------------------- */

/* A file that is being read. */
struct reader {
    /* Borrowed path of the file, for messages. */
    const char *path;
    /* Borrowed key of the prompt. */
    const char *prompt_key;
    /* Borrowed key of the expected answer. */
    const char *answer_key;
    /* Owned stream of the file. */
    FILE *stream;
    /* Owned buffer for one line, of TDM__DATASET_LINE_BYTES_MAX + 2 bytes. */
    char *line;
    /* Number of the current line, from 1. */
    uint32_t line_number;
    /* Number of rows that the array of the data set has space for. */
    uint32_t rows_max;
};

/* Copies the text of a key. TDM_E_PROTOCOL if it is missing or not a text. */
static tdm_status copy_field(const struct reader *reader, const json_t *object, const char *key,
                             char **text_out)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (text == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s:%u: \"%s\" is missing or no text", reader->path,
                         reader->line_number, key);
    }
    *text_out = strdup(text);
    return *text_out == NULL ? tdm__fail(TDM_E_NOMEM, "%s", reader->path) : TDM_OK;
}

/* Doubles the array of rows if it is full. */
static tdm_status reserve_rows(struct reader *reader, struct tdm__dataset *dataset)
{
    uint32_t rows_max = reader->rows_max == 0 ? 1024 : reader->rows_max * 2;
    struct tdm__dataset_row *rows;

    if (dataset->rows_count < reader->rows_max) {
        return TDM_OK;
    }
    if (dataset->rows_count >= TDM__DATASET_ROWS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%s:%u: over %d rows", reader->path, reader->line_number,
                         TDM__DATASET_ROWS_MAX);
    }
    rows = realloc(dataset->rows, rows_max * sizeof(*rows));
    if (rows == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s: %u rows", reader->path, rows_max);
    }
    dataset->rows = rows;
    reader->rows_max = rows_max;
    return TDM_OK;
}

/* Parses the current line and appends its row. */
static tdm_status read_row(struct reader *reader, size_t line_bytes, struct tdm__dataset *dataset)
{
    struct tdm__dataset_row row = {NULL, NULL};
    json_error_t error;
    tdm_status status;
    json_t *object;

    TDM_TRY(reserve_rows(reader, dataset));
    object = json_loadb(reader->line, line_bytes, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s:%u: column %d: %s", reader->path, reader->line_number,
                         error.column, error.text);
    }
    status = copy_field(reader, object, reader->prompt_key, &row.prompt);
    if (status == TDM_OK) {
        status = copy_field(reader, object, reader->answer_key, &row.answer);
    }
    json_decref(object);
    if (status != TDM_OK) {
        free(row.prompt);
        return status;
    }
    dataset->rows[dataset->rows_count++] = row;
    return TDM_OK;
}

/* Checks the current line and adds its row, unless the line is empty. */
static tdm_status read_line(struct reader *reader, struct tdm__dataset *dataset)
{
    size_t line_bytes = strlen(reader->line);
    bool is_whole = line_bytes > 0 && reader->line[line_bytes - 1] == '\n';
    bool is_last = feof(reader->stream) != 0 && line_bytes <= TDM__DATASET_LINE_BYTES_MAX;

    reader->line_number++;
    if (line_bytes == 0 || (!is_whole && !is_last)) {
        return tdm__fail(TDM_E_PROTOCOL, "%s:%u: a NUL, or a line of over %d bytes", reader->path,
                         reader->line_number, TDM__DATASET_LINE_BYTES_MAX);
    }
    if (strspn(reader->line, " \t\r\n") == line_bytes) {
        return TDM_OK;
    }
    return read_row(reader, line_bytes, dataset);
}

/* Reads all lines. It uses fgets(), not getline(), so that a file without newlines cannot
 * exhaust the memory. */
static tdm_status read_rows(struct reader *reader, struct tdm__dataset *dataset)
{
    tdm_status status = TDM_OK;

    TDM_ASSERT(reader->stream != NULL && reader->line != NULL);
    while (status == TDM_OK &&
           fgets(reader->line, TDM__DATASET_LINE_BYTES_MAX + 2, reader->stream) != NULL) {
        status = read_line(reader, dataset);
    }
    TDM_TRY(status);
    if (ferror(reader->stream) != 0) {
        return tdm__fail_errno(errno, "%s: read", reader->path);
    }
    if (dataset->rows_count == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: no rows", reader->path);
    }
    return TDM_OK;
}

/* Opens the file and allocates the line buffer. Releases both on failure. */
static tdm_status open_reader(struct reader *reader)
{
    int fd = -1;

    TDM_TRY(tdm__file_open(reader->path, &fd));
    reader->stream = fdopen(fd, "r");
    if (reader->stream == NULL) {
        (void)close(fd);
        return tdm__fail(TDM_E_NOMEM, "%s", reader->path);
    }
    reader->line = malloc(TDM__DATASET_LINE_BYTES_MAX + 2);
    if (reader->line == NULL) {
        (void)fclose(reader->stream);
        return tdm__fail(TDM_E_NOMEM, "%s", reader->path);
    }
    return TDM_OK;
}

tdm_status tdm__dataset_read(const char *path, const char *prompt_key, const char *answer_key,
                             struct tdm__dataset *dataset_out)
{
    struct reader reader = {.path = path, .prompt_key = prompt_key, .answer_key = answer_key};
    struct tdm__dataset dataset = {NULL, 0};
    tdm_status status;

    TDM_TRY(open_reader(&reader));
    status = read_rows(&reader, &dataset);
    free(reader.line);
    (void)fclose(reader.stream);
    if (status != TDM_OK) {
        tdm__dataset_fini(&dataset);
        return status;
    }
    *dataset_out = dataset;
    return TDM_OK;
}

void tdm__dataset_fini(struct tdm__dataset *dataset)
{
    for (uint32_t i = 0; i < dataset->rows_count; i++) {
        free(dataset->rows[i].prompt);
        free(dataset->rows[i].answer);
    }
    free(dataset->rows);
    dataset->rows = NULL;
    dataset->rows_count = 0;
}

/* ---- shuffling ------------------------------------------------------------------------- */

/* Returns a pseudo-random function of `x`, the finisher of splitmix64: every bit of the input
 * affects every bit of the output. */
static uint64_t mix_bits(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* Permutes the numbers of 2 × `half_bits` bits with a Feistel network of six rounds. */
static uint64_t shuffle_bits(uint64_t value, uint32_t half_bits, uint64_t key)
{
    uint64_t mask = (1ULL << half_bits) - 1;
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;

    for (uint64_t round = 0; round < 6; round++) {
        uint64_t next = left ^ (mix_bits(key ^ mix_bits(right + (round << 32))) & mask);

        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint32_t tdm__dataset_shuffled_row(uint32_t rows_count, uint64_t seed, uint64_t position)
{
    uint64_t key;
    uint64_t index;
    uint32_t half_bits = 1;

    TDM_ASSERT(rows_count > 0);
    key = mix_bits(seed) ^ mix_bits(~(position / rows_count));
    index = position % rows_count;
    while (1ULL << (2 * half_bits) < rows_count) {
        half_bits++;
    }
    /* Repeating the permutation until the result is a valid row keeps it a permutation of the
     * rows. It needs at most four iterations on average. */
    do {
        index = shuffle_bits(index, half_bits, key);
    } while (index >= rows_count);
    return (uint32_t)index;
}
