/* table.c - prints tables with aligned columns. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A table owns copies of its cells, which are stored row by row; the number of titles is the number
 * of columns. Widths are counted in characters, not in bytes: bytes that continue a UTF-8 character
 * have no width. Rows are cut to the width of the terminal with an ellipsis. A failed allocation
 * loses a cell, which is then shown as "?". There is one thread. */

#include "cli/table.h"

#include "runtime/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    COLUMNS_MAX = 16,     /* Largest number of columns of a table. */
    CELL_BYTES_MAX = 1024 /* Largest number of bytes of a cell's text. */
};

/* A table that is being filled. */
struct tdm__table {
    const char *const *titles; /* Titles of the columns (borrowed). */
    uint32_t columns_count;    /* Number of columns of the table. */
    int widths[COLUMNS_MAX];   /* Width of each column in characters. */
    /* Texts of the cells, row by row (owned). An entry is NULL if memory was lacking. */
    char **cells;
    size_t cells_count;    /* Number of cells in the table so far. */
    size_t cells_capacity; /* Number of entries for which `cells` has room. */
};

tdm_status tdm__table_create(const char *const *titles, struct tdm__table **table_out)
{
    struct tdm__table *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        return tdm__fail(TDM_E_NOMEM, "printing a table failed: out of memory");
    }
    table->titles = titles;
    while (titles[table->columns_count] != NULL && table->columns_count < COLUMNS_MAX) {
        table->widths[table->columns_count] = (int)strlen(titles[table->columns_count]);
        table->columns_count++;
    }
    *table_out = table;
    return TDM_OK;
}

/* Returns the number of characters of a text. Bytes that continue a UTF-8 character are not
 * counted. */
static int text_width(const char *text)
{
    int width = 0;

    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80 ? 1 : 0;
    }
    return width;
}

void tdm__table_add(struct tdm__table *table, const char *format, ...)
{
    uint32_t column = (uint32_t)(table->cells_count % table->columns_count);
    char text[CELL_BYTES_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (table->cells_count == table->cells_capacity) {
        size_t remaining = table->cells_capacity * 2 + 64;
        char **cells = realloc(table->cells, remaining * sizeof(*cells));

        if (cells == NULL) {
            return;
        }
        table->cells = cells;
        table->cells_capacity = remaining;
    }
    if (text_width(text) > table->widths[column]) {
        table->widths[column] = text_width(text);
    }
    table->cells[table->cells_count++] = strdup(text[0] == '\0' ? "-" : text);
}

void tdm__table_add_pid(struct tdm__table *table, int64_t pid)
{
    char text[24] = "";

    if (pid != 0) {
        (void)snprintf(text, sizeof(text), "%lld", (long long)pid);
    }
    tdm__table_add(table, "%s", text);
}

const char *tdm__amount_text(const char *name, double amount, char text[TDM__AMOUNT_BYTES])
{
    if (strcmp(name, "memory") == 0) {
        (void)snprintf(text, TDM__AMOUNT_BYTES, "%.1f GiB", amount / (1024.0 * 1024.0 * 1024.0));
    } else {
        (void)snprintf(text, TDM__AMOUNT_BYTES, "%.10g", amount);
    }
    return text;
}

/* The line of a table that is being printed. */
struct output_line {
    FILE *stream;       /* Stream to which the line is printed. */
    uint32_t remaining; /* Number of characters that the line still has room for. */
};

/* Returns the length in bytes of the first `count` characters of a text. */
static size_t text_bytes_of(const char *text, uint32_t count)
{
    size_t bytes = 0;

    while (text[bytes] != '\0' && count > 0) {
        bytes++;
        while (((unsigned char)text[bytes] & 0xc0) == 0x80) {
            bytes++;
        }
        count--;
    }
    return bytes;
}

/* Prints a text on the line, cut with an ellipsis if the line does not have room for it. */
static void print_text(struct output_line *output_line, const char *text)
{
    uint32_t width = (uint32_t)text_width(text);

    if (width <= output_line->remaining) {
        (void)fputs(text, output_line->stream);
        output_line->remaining -= width;
    } else if (output_line->remaining > 0) {
        (void)fprintf(output_line->stream, "%.*s…",
                      (int)text_bytes_of(text, output_line->remaining - 1), text);
        output_line->remaining = 0;
    }
}

/* Prints `gap` spaces between two columns. Returns false if the line is full; the line then ends
 * with an ellipsis. */
static bool print_gap(struct output_line *output_line, int gap)
{
    for (; gap > 0; gap--) {
        if (output_line->remaining == 1) {
            (void)fputs("…", output_line->stream);
            output_line->remaining = 0;
            return false;
        }
        print_text(output_line, " ");
    }
    return output_line->remaining > 0;
}

/* Prints one row of the table, whose cells begin at `cells`. */
static void print_row(const struct tdm__table *table, const char *const *cells,
                      struct output_line output_line)
{
    for (uint32_t column = 0; column < table->columns_count; column++) {
        const char *text = cells[column] == NULL ? "?" : cells[column];

        print_text(&output_line, text);
        if (column + 1 < table->columns_count &&
            !print_gap(&output_line, table->widths[column] - text_width(text) + 2)) {
            break;
        }
    }
    (void)fputc('\n', output_line.stream);
}

struct tdm__terminal_size tdm__terminal_size_of(FILE *stream)
{
    struct winsize size = {0};
    int fd = stream == NULL ? -1 : fileno(stream);

    if (fd < 0 || isatty(fd) == 0 || ioctl(fd, TIOCGWINSZ, &size) < 0) {
        return (struct tdm__terminal_size){0, 0};
    }
    return (struct tdm__terminal_size){size.ws_col, size.ws_row};
}

void tdm__table_print_clipped(struct tdm__table *table, FILE *stream, uint32_t width, uint32_t rows)
{
    struct output_line output_line = {stream, width == 0 ? UINT32_MAX : width};
    size_t columns = table->columns_count;

    if (stream != NULL) {
        print_row(table, table->titles, output_line);
    }
    for (size_t i = 0; stream != NULL && i + columns <= table->cells_count && i / columns < rows;
         i += columns) {
        print_row(table, (const char *const *)&table->cells[i], output_line);
    }
    for (size_t i = 0; i < table->cells_count; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    free(table);
}

void tdm__table_print(struct tdm__table *table, FILE *stream)
{
    tdm__table_print_clipped(table, stream, tdm__terminal_size_of(stream).width, UINT32_MAX);
}
