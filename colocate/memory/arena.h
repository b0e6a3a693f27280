/* arena.h - the host memory that holds the contents of paused regions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_ARENA_H
#define TDM_COLOCATE_MEMORY_ARENA_H

#include "colocate/device/device.h"

#include <stddef.h>

/* The allocator for host copies; one per process. It grows in large chunks and returns nothing to
 * the system until it is destroyed. Faulting memory in, and pinning it for a GPU, would take longer
 * than the copy itself. One thread uses it. */
struct tdm__arena;

/* Creates an empty arena that takes at most `budget_bytes` bytes of host memory from `device`
 * (borrowed). */
tdm_status tdm__arena_create(struct tdm__device *device, size_t budget_bytes,
                             struct tdm__arena **arena_out);
/* Destroys the arena; none of its memory may be in use. NULL is allowed. */
void tdm__arena_destroy(struct tdm__arena *arena);

/* Allocates host memory from the arena, with the size rounded up to the device's granularity. Fails
 * with TDM_E_NOMEM if the arena's budget is exhausted. */
tdm_status tdm__arena_alloc(struct tdm__arena *arena, size_t size_bytes, void **address_out);
/* Frees memory that tdm__arena_alloc() returned; the arena keeps it for reuse. NULL is allowed. */
void tdm__arena_free(struct tdm__arena *arena, void *address);

/* Returns the number of bytes that are allocated from the arena now. */
size_t tdm__arena_used_bytes(const struct tdm__arena *arena);
/* Returns the number of bytes that the arena has taken from the device, in use or free. */
size_t tdm__arena_grown_bytes(const struct tdm__arena *arena);

#endif
