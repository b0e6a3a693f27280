/* table.h - prints tables with aligned columns. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_TABLE_H
#define TDM_CLI_TABLE_H

#include <stdint.h>
#include <stdio.h>
#include <tandem/error.h>

/* A table of text for people. Its cells are collected, and printed when the widths of all columns
 * are known. Two spaces separate the columns; the last column is not padded. */
struct tdm__table;

/* Creates a table without rows. `titles` are the titles of the columns; the array ends with NULL
 * and is borrowed. */
tdm_status tdm__table_create(const char *const *titles, struct tdm__table **table_out);
/* Adds the next cell of a table, row by row, formatted as by printf(). An empty text is shown as
 * "-". A cell for which memory is lacking is omitted or shown as "?". */
__attribute__((format(printf, 2, 3))) void tdm__table_add(struct tdm__table *table,
                                                          const char *format, ...);
/* Adds a process ID as the next cell of a table; the cell is empty if the ID is 0. */
void tdm__table_add_pid(struct tdm__table *table, int64_t pid);
/* Size in bytes of an amount as text, including the terminating NUL. */
enum { TDM__AMOUNT_BYTES = 32 };
/* Formats the amount of a resource: "0.5", or "11.2 GiB" for memory. Writes the text to `text` and
 * returns `text`. */
const char *tdm__amount_text(const char *name, double amount, char text[TDM__AMOUNT_BYTES]);
/* Prints a table, unless `stream` is NULL, and frees it. Lines that are longer than the terminal's
 * width are cut and end with an ellipsis. */
void tdm__table_print(struct tdm__table *table, FILE *stream);
/* Prints at most `rows` rows of a table with at most `width` characters each (0 means no limit),
 * unless `stream` is NULL, and frees the table. */
void tdm__table_print_clipped(struct tdm__table *table, FILE *stream, uint32_t width,
                              uint32_t rows);
/* Size of a terminal; both numbers are 0 if the stream is not a terminal. */
struct tdm__terminal_size {
    uint32_t width;  /* Number of characters of a line. */
    uint32_t height; /* Number of lines of the terminal. */
};
/* Returns the size of the terminal to which the stream writes. NULL is allowed. */
struct tdm__terminal_size tdm__terminal_size_of(FILE *stream);

#endif
