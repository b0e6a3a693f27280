/* arena.h - the host memory that holds the contents of paused regions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_ARENA_H
#define TDM_COLOCATE_MEMORY_ARENA_H

#include "colocate/device/device.h"

#include <stddef.h>

/* One per process.  It grows in large pieces and gives nothing back until it is destroyed:
 * faulting memory in (and on a GPU, pinning it) costs more than the copy itself.  One thread.
 */
struct tdm__arena;

/* Memory comes from `device` (borrowed), never more than `budget_bytes` of it. */
tdm_status tdm__arena_create(struct tdm__device *device, size_t budget_bytes,
                             struct tdm__arena **arena_out);
void tdm__arena_destroy(struct tdm__arena *arena); /* NULL is allowed; nothing is in use */

/* Aligned to the device's granularity in size.  TDM_E_NOMEM with the budget's numbers. */
tdm_status tdm__arena_alloc(struct tdm__arena *arena, size_t size_bytes, void **address_out);
void tdm__arena_free(struct tdm__arena *arena, void *address); /* NULL is allowed */

size_t tdm__arena_used_bytes(const struct tdm__arena *arena);
size_t tdm__arena_grown_bytes(const struct tdm__arena *arena); /* taken from the device */

#endif
