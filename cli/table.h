/* table.h - columns for people. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_TABLE_H
#define TDM_CLI_TABLE_H

#include <stdint.h>
#include <stdio.h>
#include <tandem/error.h>

/* Cells are collected, and printed when the widths are known: two spaces between columns, the
 * last one as long as it is. */
struct tdm__table;

/* `titles` ends with NULL; it is borrowed. */
tdm_status tdm__table_create(const char *const *titles, struct tdm__table **table_out);
/* The next cell, row by row; printf-like.  What does not fit in memory is missing. */
__attribute__((format(printf, 2, 3))) void tdm__table_add(struct tdm__table *table,
                                                          const char *format, ...);
/* Empty where there is none. */
void tdm__table_add_pid(struct tdm__table *table, int64_t pid);
/* An amount of a resource: "0.5", or for bytes of memory "11.2 GiB"; returns `text`. */
enum { TDM__AMOUNT_BYTES = 32 };
const char *tdm__amount_text(const char *name, double amount, char text[TDM__AMOUNT_BYTES]);
/* Prints, unless `stream` is NULL, and frees.  On a terminal lines end with "…" where it does.
 */
void tdm__table_print(struct tdm__table *table, FILE *stream);
/* The same for lines of at most `width` characters, 0: any, and of the rows the first `rows`.
 */
void tdm__table_print_clipped(struct tdm__table *table, FILE *stream, uint32_t width,
                              uint32_t rows);
/* Columns and lines of the terminal behind the stream; both 0 where there is none. */
struct tdm__terminal_size {
    uint32_t width;
    uint32_t height;
};
struct tdm__terminal_size tdm__terminal_size_of(FILE *stream);

#endif
