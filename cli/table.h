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
/* An amount of a resource: "0.5", or for bytes of memory "11.2 GiB"; returns `text`. */
enum { TDM__AMOUNT_BYTES = 32 };
const char *tdm__amount_text(const char *name, double amount, char text[TDM__AMOUNT_BYTES]);
/* Prints, unless `stream` is NULL, and frees. */
void tdm__table_print(struct tdm__table *table, FILE *stream);

#endif
