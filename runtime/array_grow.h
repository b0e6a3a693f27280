/* array_grow.h - grows a malloc()ed array so that one more item fits. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_ARRAY_GROW_H
#define TDM_RUNTIME_ARRAY_GROW_H

#include "runtime/error.h"

#include <stdint.h>
#include <stdlib.h>

/* Number of items for which tdm__array_grow() first allocates memory. */
enum { TDM__ARRAY_GROW_FIRST = 256 };

/* Makes sure that the array `*items`, which has `count` items in use and space for `*capacity`,
 * can take one more item.  If it is full, reallocates it to twice the capacity and updates both.
 * Returns TDM_E_NOMEM and changes nothing if there is no memory.  The doubling cannot overflow:
 * the arrays describe the tensors of one language model, which are far fewer than 2^31. */
static inline tdm_status tdm__array_grow(void **items, uint32_t *capacity, uint32_t count,
                                         size_t item_bytes)
{
    uint32_t new_capacity = *capacity == 0 ? TDM__ARRAY_GROW_FIRST : *capacity * 2;
    void *grown;

    if (count < *capacity) {
        return TDM_OK;
    }
    grown = realloc(*items, new_capacity * item_bytes);
    if (grown == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocation of %u items of %zu bytes each failed",
                         new_capacity, item_bytes);
    }
    *items = grown;
    *capacity = new_capacity;
    return TDM_OK;
}

#endif
