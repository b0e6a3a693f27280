/* format.h - what packing and unpacking share about format strings. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_FORMAT_H
#define TDM_RUNTIME_WIRE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* An item of a format is one letter, or a whole group in ( ) or { }.  include/tandem/value.h
 * describes the letters.  All functions but tdm__format_check() need a format that passed it. */

/* Returns the position after the item that starts at `format`: a letter, or a whole group. */
const char *tdm__format_item_end(const char *format);
/* Returns true at the end of a group or of the format. */
bool tdm__format_group_ends(const char *format);
/* Returns the number of items up to the end of the group that `format` is in. */
uint32_t tdm__format_items_count(const char *format);
/* Returns how many characters of the format are among `letters`. */
uint32_t tdm__format_letters_count(const char *format, const char *letters);
/* Records that the format is wrong at `position`.  Returns TDM_E_INVAL. */
tdm_status tdm__format_fail(const char *format, const char *position, const char *why);
/* Checks that the format has only these letters, that its groups are closed, and that maps
 * consist of pairs. */
tdm_status tdm__format_check(const char *format, const char *letters);

#endif
