/* suggestion.h - "did you mean": the known word nearest to a mistyped one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_SUGGESTION_H
#define TDM_COLOCATE_JOB_SUGGESTION_H

#include <stddef.h>

/* The word fewest edits away, or NULL where even that one is over a third of the text away. */
const char *tdm__suggestion_find(const char *text, const char *const *known, size_t known_count);

#endif
