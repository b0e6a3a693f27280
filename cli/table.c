/* table.c - columns for people. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include "runtime/error.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 16, CELL_BYTES_MAX = 1024 };

struct tdm__table {
    const char *const *titles; /* borrowed */
    uint32_t columns_count;
    int widths[COLUMNS_MAX];
    char **cells; /* owned, row by row */
    size_t cells_count;
    size_t cells_room;
};

tdm_status tdm__table_create(const char *const *titles, struct tdm__table **table_out)
{
    struct tdm__table *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table");
    }
    table->titles = titles;
    while (titles[table->columns_count] != NULL && table->columns_count < COLUMNS_MAX) {
        table->widths[table->columns_count] = (int)strlen(titles[table->columns_count]);
        table->columns_count++;
    }
    *table_out = table;
    return TDM_OK;
}

/* On a screen: bytes that continue a character take no room. */
static int width_of(const char *text)
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
    if (table->cells_count == table->cells_room) {
        size_t room = table->cells_room * 2 + 64;
        char **cells = realloc(table->cells, room * sizeof(*cells));

        if (cells == NULL) {
            return;
        }
        table->cells = cells;
        table->cells_room = room;
    }
    if (width_of(text) > table->widths[column]) {
        table->widths[column] = width_of(text);
    }
    table->cells[table->cells_count++] = strdup(text[0] == '\0' ? "-" : text);
}

const char *tdm__amount_text(const char *name, double amount, char text[TDM__AMOUNT_BYTES])
{
    if (strcmp(name, "memory") == 0) {
        (void)snprintf(text, TDM__AMOUNT_BYTES, "%.1f GiB",
                       amount / (1024.0 * 1024.0 * 1024.0));
    } else {
        (void)snprintf(text, TDM__AMOUNT_BYTES, "%.10g", amount);
    }
    return text;
}

static void print_cell(const struct tdm__table *table, uint32_t column, const char *text,
                       FILE *stream)
{
    if (stream == NULL) {
        return;
    }
    if (column + 1 == table->columns_count) {
        (void)fprintf(stream, "%s\n", text);
    } else {
        (void)fprintf(stream, "%s%*s", text, table->widths[column] - width_of(text) + 2, "");
    }
}

void tdm__table_print(struct tdm__table *table, FILE *stream)
{
    uint32_t column;

    for (column = 0; column < table->columns_count; column++) {
        print_cell(table, column, table->titles[column], stream);
    }
    for (size_t i = 0; i < table->cells_count; i++) {
        const char *text = table->cells[i] == NULL ? "?" : table->cells[i];

        column = column < table->columns_count ? column : 0;
        print_cell(table, column++, text, stream);
        free(table->cells[i]);
    }
    free(table->cells);
    free(table);
}
