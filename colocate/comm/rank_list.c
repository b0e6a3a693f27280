/* rank_list.c - a list of ranks for an error message. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/rank_list.h"

#include <stdio.h>

void tdm__rank_list_add(struct tdm__rank_list *list, uint32_t rank)
{
    if (list->count < TDM__RANK_LIST_NAMED_MAX) {
        list->ranks[list->count] = rank;
    }
    list->count++;
}

const char *tdm__rank_list_text(const struct tdm__rank_list *list, char text[TDM__RANK_LIST_BYTES])
{
    const char *before = list->count == 1 ? "rank " : "ranks ";
    int used = snprintf(text, TDM__RANK_LIST_BYTES, "%s", list->count == 0 ? "a rank" : "");

    for (uint32_t i = 0; i < list->count && i < TDM__RANK_LIST_NAMED_MAX; i++) {
        used += snprintf(text + used, (size_t)(TDM__RANK_LIST_BYTES - used), "%s%u", before,
                         list->ranks[i]);
        before = ", ";
    }
    if (list->count > TDM__RANK_LIST_NAMED_MAX) {
        (void)snprintf(text + used, (size_t)(TDM__RANK_LIST_BYTES - used), " and %u more",
                       list->count - TDM__RANK_LIST_NAMED_MAX);
    }
    return text;
}
