/* grow.h - room for one more entry in a list of a plan. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_PLAN_GROW_H
#define TDM_COLOCATE_PLAN_GROW_H

#include "runtime/error.h"

#include <stdint.h>
#include <stdlib.h>

enum { TDM__GROW_FIRST = 256 };

/* Afterwards `*items`, of which `count` are used, has room for at least one more.  Lists stay
 * far below 2^31 entries: their sum is bounded by the model's tensors times a few. */
static inline tdm_status tdm__grow(void **items, uint32_t *room, uint32_t count,
                                   size_t item_bytes)
{
    uint32_t wanted = *room == 0 ? TDM__GROW_FIRST : *room * 2;
    void *grown;

    if (count < *room) {
        return TDM_OK;
    }
    grown = realloc(*items, wanted * item_bytes);
    if (grown == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u entries of %zu bytes", wanted, item_bytes);
    }
    *items = grown;
    *room = wanted;
    return TDM_OK;
}

#endif
