/* object_memory.h - the shared memory of a runtime, as the files of large values see it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_OBJECT_MEMORY_H
#define TDM_ACTORS_OBJECTS_OBJECT_MEMORY_H

#include "actors/objects/memory_usage.h"
#include "actors/objects/segment.h"

#include <tandem/runtime.h>

struct tdm__large;
struct tdm__timer;

/* List head type of large values. */
TAILQ_HEAD(tdm__larges, tdm__large);

/* The shared memory of one runtime. It outlives the runtime while a document still reads a
 * value. Guarded by the loop's lock. */
struct tdm__object_memory {
    tdm_runtime *runtime; /* Borrowed; NULL after the runtime has stopped. */
    /* Number of owners: the runtime, each large value and each imported value. */
    uint32_t owners_count;
    struct tdm__segments segments;   /* Segments that this process created. */
    struct tdm__segment_views views; /* Mappings of segments that other processes created. */
    /* All large values of this process; the least recently used one is first. */
    struct tdm__larges values;
    uint64_t last_export_id; /* Identifier of the newest export; 0 if there was none. */
    TAILQ_HEAD(, shm_export) shm_exports; /* Exports of values of this process to readers. */
    /* Connections on which other processes exported segments to this one. */
    TAILQ_HEAD(, exporter) exporters;
    /* Number of imports whose parsed document (tdm_document) still exists. */
    uint32_t read_count;
    uint64_t spilled_bytes; /* Bytes of this process's values that are on disk. */
    /* Owned; NULL before the first large value, or if the node has no usage file. */
    struct tdm__memory_usage *usage;
    /* True after the first attempt to open `usage`, whether or not it succeeded. */
    bool has_opened_usage;
    /* Owned; NULL until this process has memory that it could free for others. */
    struct tdm__timer *pressure;
    bool watches_pressure; /* True while the pressure timer is set. */
};

/* One packed value of this process, in a segment or spilled to disk. Counted by `owners_count`;
 * guarded by the loop's lock. */
struct tdm__large {
    TAILQ_ENTRY(tdm__large) link;
    struct tdm__object_memory *memory; /* Shared memory of the runtime, retained. */
    /* Segment that holds the packed bytes; NULL while the value is spilled. */
    struct tdm__segment *segment;
    int spilled;       /* Descriptor of the spill file, owned; -1 while the value is in memory. */
    size_t size_bytes; /* Number of packed bytes. */
    /* The creator, documents that read the value, and exports; 0 frees it. */
    uint32_t owners_count;
    /* True if one owner is a reference, which does not read the value. With no other owner the
     * value may be spilled. */
    bool may_spill;
    int64_t created_ms; /* Milliseconds on CLOCK_MONOTONIC at which the value was created. */

    /* Scratch fields that object_list.c fills for each list of objects. */
    uint32_t readers_count; /* Number of exports of this value. */
    bool is_listed;         /* True if the list already contains the value under its reference. */
};

#endif
