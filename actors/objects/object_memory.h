/* object_memory.h - the shared memory of a runtime, as the files of large values see it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_OBJECT_MEMORY_H
#define TDM_ACTORS_OBJECTS_OBJECT_MEMORY_H

#include "actors/objects/large_value.h"
#include "actors/objects/memory_usage.h"
#include "actors/objects/segment.h"

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
    uint32_t read_count;    /* Number of imported values whose documents exist. */
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

/* Adds an owner to the shared memory. */
void tdm__object_memory_retain(struct tdm__object_memory *memory);
/* Removes an owner; the last one unmaps all segments and frees `memory`. */
void tdm__object_memory_release(struct tdm__object_memory *memory);

/* Returns the loop of the process's running runtime, or NULL. Documents are destroyed on any
 * thread, and some after the runtime has stopped. */
struct tdm__loop *tdm__current_loop(void);
/* Sets `readers_count` of each value to the number of its exports (export.c). */
void tdm__exports_count_readers(struct tdm__object_memory *memory);
/* Ends all exports and forgets all exporters, at the end of the runtime. */
void tdm__exports_end(struct tdm__object_memory *memory);
/* Returns the value that is exported on `conn` under `id`, or NULL. */
struct tdm__large *tdm__export_find(struct tdm__object_memory *memory, const struct tdm__conn *conn,
                                    uint64_t id);
/* Tells the exporter at the other end of `conn` that this process no longer reads the export
 * `id`. Does not wait. */
void tdm__export_return(struct tdm__conn *conn, uint64_t id);

/* ---- memory_quota.c: the limit of the node ---------------------------------------------- */

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
