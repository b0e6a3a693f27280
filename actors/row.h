/* row.h - the rows that lists travel in: maps by name, with nothing for what is missing. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_ROW_H
#define TDM_ACTORS_ROW_H

#include <tandem/value.h>

/* Borrowed from the row; "" without it. */
static inline const char *tdm__row_text(const tdm_value *row, const char *key)
{
    return tdm_value_string(tdm_value_find(row, key), "");
}

static inline int64_t tdm__row_number(const tdm_value *row, const char *key)
{
    return tdm_value_int(tdm_value_find(row, key), 0);
}

static inline void tdm__row_write_text(tdm_writer *writer, const char *key, const char *text)
{
    tdm_write_string(writer, key);
    tdm_write_string(writer, text);
}

static inline void tdm__row_write_number(tdm_writer *writer, const char *key, int64_t number)
{
    tdm_write_string(writer, key);
    tdm_write_int(writer, number);
}

#endif
