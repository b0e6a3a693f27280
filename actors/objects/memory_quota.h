/* memory_quota.h - the node's limit on shared memory: reserving, evicting and spilling. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_MEMORY_QUOTA_H
#define TDM_ACTORS_OBJECTS_MEMORY_QUOTA_H

#include "actors/objects/object_memory.h"

/* What to do if a reservation would exceed the node's limit after this process has freed what it
 * can. */
enum tdm__memory_quota_mode {
    TDM__QUOTA_NOW,   /* Fail at once with TDM_E_LIMIT. */
    TDM__QUOTA_WAIT,  /* Ask the other processes to free memory, and fail after some seconds. */
    TDM__QUOTA_EXCEED /* Exceed the limit. */
};
/* Reuses an idle segment or creates one of at least `size_bytes`, reserving its bytes from the
 * node's limit. The segment is in use afterwards. */
tdm_status tdm__memory_quota_get_segment(struct tdm__object_memory *memory, size_t size_bytes,
                                         enum tdm__memory_quota_mode mode,
                                         struct tdm__segment **segment_out);
/* Makes a segment idle after its value was released, and frees idle segments beyond a bound. */
void tdm__memory_quota_idle_segment(struct tdm__object_memory *memory,
                                    struct tdm__segment *segment);
/* Frees a segment that is in use and releases its bytes. */
void tdm__memory_quota_free_segment(struct tdm__object_memory *memory,
                                    struct tdm__segment *segment);
/* Starts to check regularly whether another process waits for memory. Called when this process
 * has memory that it could free. */
void tdm__memory_quota_watch(struct tdm__object_memory *memory);
/* Closes the usage file and stops the timer, at the end of the runtime. */
void tdm__memory_quota_close(struct tdm__object_memory *memory);
/* Reads a spilled value back into memory, over the limit if necessary, and marks it as the most
 * recently used one. */
tdm_status tdm__large_load(struct tdm__large *large);
/* Closes the spill file of a value and subtracts its bytes. The value must be spilled. */
void tdm__large_discard_spilled(struct tdm__large *large);

#endif
