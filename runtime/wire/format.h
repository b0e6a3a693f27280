/* format.h - what packing and unpacking share about format strings. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_FORMAT_H
#define TDM_RUNTIME_WIRE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* An item of a format is one letter, or a whole group in ( ) or { }.  include/tandem/value.h
 * describes the letters.  All functions but tdm__format_check() need a format that passed it. */

/* Returns the position after the group whose opening bracket is at `format`. */
const char *tdm__format_group_skip(const char *format);
/* Returns the position after the item that starts at `format`: a letter, or a whole group. */
static inline const char *tdm__format_item_end(const char *format)
{
    return *format == '(' || *format == '{' ? tdm__format_group_skip(format) : format + 1;
}
/* Returns true at the end of a group or of the format. */
static inline bool tdm__format_group_ends(const char *format)
{
    return *format == '\0' || *format == ')' || *format == '}';
}
/* Returns the number of items up to the end of the group that `format` is in. */
uint32_t tdm__format_items_count(const char *format);
/* Returns true if `letters` contains `letter`. The loop is faster than strchr() for such short
 * texts. */
static inline bool tdm__format_is_among(char letter, const char *letters)
{
    while (*letters != '\0' && *letters != letter) {
        letters++;
    }
    return *letters != '\0';
}

/* Returns true if the format contains one of the letters. */
static inline bool tdm__format_has(const char *format, const char *letters)
{
    for (; *format != '\0'; format++) {
        if (tdm__format_is_among(*format, letters)) {
            return true;
        }
    }
    return false;
}

/* Returns how many characters of the format are among `letters`. */
uint32_t tdm__format_letters_count(const char *format, const char *letters);
/* Records that the format is wrong at `position`.  Returns TDM_E_INVAL. */
tdm_status tdm__format_fail(const char *format, const char *position, const char *why);
/* Checks that the format has only these letters, that its groups are closed, and that maps
 * consist of pairs. */
tdm_status tdm__format_check(const char *format, const char *letters);

#endif
