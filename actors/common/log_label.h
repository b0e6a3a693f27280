/* log_label.h - marks in a worker's output that say which name its next lines are printed with. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_LOG_LABEL_H
#define TDM_ACTORS_COMMON_LOG_LABEL_H

#include <stdbool.h>
#include <stddef.h>

/* A worker that runs several functions writes a log label in front of the first line of each: the
 * bytes ESC ] tandem-label; NAME BEL, which a terminal does not show. The daemon prints the lines
 * behind it as "(NAME pid=12) text" and not with the name of the actor. */

/* A log label that was found in a text. */
struct tdm__log_label {
    size_t begin;      /* Offset in the text of the label's first byte. */
    size_t end;        /* Offset in the text of the first byte behind the label. */
    const char *name;  /* Name in the label, inside of the text; it does not end with NUL. */
    size_t name_bytes; /* Length of `name` in bytes; 0 means the name of the actor. */
};

/* Finds the first complete log label in `text`, which has `text_bytes` bytes. Returns false if
 * there is none. */
bool tdm__log_label_find(const char *text, size_t text_bytes, struct tdm__log_label *label_out);
/* Removes all complete log labels from `text` and returns the length that remains. */
size_t tdm__log_label_remove(char *text, size_t text_bytes);

#endif
