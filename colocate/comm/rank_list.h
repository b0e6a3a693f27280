/* rank_list.h - a list of ranks for an error message. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_RANK_LIST_H
#define TDM_COLOCATE_COMM_RANK_LIST_H

#include <stdint.h>

/* How many ranks a message names; further ones are only counted. Size of its text with the NUL. */
enum { TDM__RANK_LIST_NAMED_MAX = 16, TDM__RANK_LIST_BYTES = 256 };

/* Ranks in the order in which they were added. A zeroed struct is an empty list. */
struct tdm__rank_list {
    uint32_t ranks[TDM__RANK_LIST_NAMED_MAX]; /* The first ranks that were added. */
    uint32_t count;                           /* Number of ranks that were added. */
};

/* Adds a rank to the list. */
void tdm__rank_list_add(struct tdm__rank_list *list, uint32_t rank);
/* Writes the list as words, for example "rank 3", "ranks 1, 2" or, for an empty list, "a rank". If
 * there are more ranks than a message names, the text ends with their number, as in "and 80 more".
 * Returns `text`. */
const char *tdm__rank_list_text(const struct tdm__rank_list *list, char text[TDM__RANK_LIST_BYTES]);

#endif
