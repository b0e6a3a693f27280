/* array_grow.h - room for one more entry in a list of a plan. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_ARRAY_GROW_H
#define TDM_RUNTIME_ARRAY_GROW_H

#include "runtime/error.h"

#include <stdint.h>
#include <stdlib.h>

enum { TDM__ARRAY_GROW_FIRST = 256 };

/* Afterwards `*items`, of which `count` are used, has room for at least one more.  Lists stay
 * far below 2^31 entries: their sum is bounded by the model's tensors times a few. */
static inline tdm_status tdm__array_grow(void **items, uint32_t *room, uint32_t count,
                                         size_t item_bytes)
{
    uint32_t wanted = *room == 0 ? TDM__ARRAY_GROW_FIRST : *room * 2;
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
