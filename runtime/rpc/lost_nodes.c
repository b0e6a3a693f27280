/* lost_nodes.c - the nodes that a process was told are lost, with their epochs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/lost_nodes.h"

#include "runtime/error.h"

#include <stdlib.h>

/* Returns the entry of the node `node`, or NULL. */
static struct tdm__lost_node *lost_nodes_find(const struct tdm__lost_nodes *lost,
                                              const struct tdm__id *node)
{
    for (uint32_t i = 0; i < lost->count; i++) {
        if (tdm__id_equal(&lost->entries[i].node, node)) {
            return &lost->entries[i];
        }
    }
    return NULL;
}

/* Returns an entry for another node in `*entry_out`: a new one, or the oldest of a full table. */
static tdm_status lost_nodes_new_entry(struct tdm__lost_nodes *lost,
                                       struct tdm__lost_node **entry_out)
{
    if (lost->count == TDM__LOST_NODES_MAX) {
        *entry_out = &lost->entries[lost->next];
        lost->next = (lost->next + 1) % TDM__LOST_NODES_MAX;
        return TDM_OK;
    }
    if (lost->count == lost->capacity) {
        uint32_t capacity = lost->capacity == 0 ? 4 : 2 * lost->capacity;
        struct tdm__lost_node *entries = realloc(lost->entries, capacity * sizeof(*entries));

        if (entries == NULL) {
            return tdm__fail(TDM_E_NOMEM, "a table of %u lost nodes", capacity);
        }
        lost->entries = entries;
        lost->capacity = capacity;
    }
    *entry_out = &lost->entries[lost->count++];
    return TDM_OK;
}

tdm_status tdm__lost_nodes_add(struct tdm__lost_nodes *lost, const struct tdm__id *node,
                               uint64_t epoch)
{
    struct tdm__lost_node *entry = lost_nodes_find(lost, node);

    if (entry == NULL) {
        TDM_TRY(lost_nodes_new_entry(lost, &entry));
        *entry = (struct tdm__lost_node){*node, epoch};
    } else if (entry->epoch < epoch) {
        entry->epoch = epoch;
    }
    return TDM_OK;
}

bool tdm__lost_nodes_contain(const struct tdm__lost_nodes *lost, const struct tdm__id *node,
                             uint64_t epoch)
{
    const struct tdm__lost_node *entry = lost_nodes_find(lost, node);

    return entry != NULL && epoch <= entry->epoch;
}

void tdm__lost_nodes_fini(struct tdm__lost_nodes *lost)
{
    free(lost->entries);
    *lost = (struct tdm__lost_nodes){0};
}
