/* table.h - prints tables with aligned columns. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_TABLE_H
#define TDM_CLI_TABLE_H

#include <stdint.h>
#include <stdio.h>
#include <tandem/error.h>

/* A table. Its cells are collected, and printed when all widths are known. Two spaces separate the
 * columns; the last column is not padded. */
struct tdm__table;

/* Creates a table without rows. `titles` ends with NULL and is borrowed. */
tdm_status tdm__table_create(const char *const *titles, struct tdm__table **table_out);
/* Adds the next cell, row by row, formatted as by printf(). An empty text is shown as "-". Without
 * memory the cell is omitted. */
__attribute__((format(printf, 2, 3))) void tdm__table_add(struct tdm__table *table,
                                                          const char *format, ...);
/* Adds a process ID as the next cell, empty if it is 0. */
void tdm__table_add_pid(struct tdm__table *table, int64_t pid);
/* Capacity of an amount as text. */
enum { TDM__AMOUNT_BYTES = 32 };
/* Formats the amount of a resource: "0.5", or "11.2 GiB" for memory. Writes to `text` and returns
 * it. */
const char *tdm__amount_text(const char *name, double amount, char text[TDM__AMOUNT_BYTES]);
/* Prints the table unless `stream` is NULL, and frees it. On a terminal, longer lines are cut and
 * end with an ellipsis. */
void tdm__table_print(struct tdm__table *table, FILE *stream);
/* Prints at most `rows` rows with at most `width` characters each (0 means no limit), unless
 * `stream` is NULL, and frees the table. */
void tdm__table_print_clipped(struct tdm__table *table, FILE *stream, uint32_t width,
                              uint32_t rows);
/* Size of a terminal; both numbers are 0 if the stream is not a terminal. */
struct tdm__terminal_size {
    uint32_t width;  /* Characters of a line. */
    uint32_t height; /* Number of lines. */
};
/* Returns the size of the terminal behind the stream. NULL is allowed. */
struct tdm__terminal_size tdm__terminal_size_of(FILE *stream);

#endif
