/* suggestion.h - "did you mean": finds the known word that is closest to a mistyped one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_SUGGESTION_H
#define TDM_COLOCATE_JOB_SUGGESTION_H

#include <stddef.h>

/* Returns the known word with the fewest edits to `text`; NULL if even that needs more edits
 * than a third of the length of `text`. */
const char *tdm__suggestion_find(const char *text, const char *const *known, size_t known_count);

#endif
