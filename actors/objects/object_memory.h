/* object_memory.h - what the files of large values share: the memory of a runtime. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_OBJECT_MEMORY_H
#define TDM_ACTORS_OBJECTS_OBJECT_MEMORY_H

#include "actors/objects/large_value.h"
#include "actors/objects/memory_usage.h"
#include "actors/objects/segment.h"

TAILQ_HEAD(tdm__larges, tdm__large);

struct tdm__object_memory {
    tdm_runtime *runtime;  /* borrowed; NULL once it has stopped */
    uint32_t owners_count; /* the runtime, each value, and each reading */
    struct tdm__segments segments;
    struct tdm__segment_views views;
    struct tdm__larges values; /* the one not used for longest is first */
    uint64_t last_export_id;
    TAILQ_HEAD(, shm_export) shm_exports;
    TAILQ_HEAD(, exporter) exporters;
    uint32_t read_count;
    uint64_t spilled_bytes;
    struct tdm__memory_usage *usage; /* owned; NULL: not yet, or there is none */
    bool has_opened_usage;
    struct tdm__timer *pressure; /* owned; set while there is something to give */
    bool watches_pressure;
};

struct tdm__large {
    TAILQ_ENTRY(tdm__large) link;
    struct tdm__object_memory *memory; /* counted */
    struct tdm__segment *segment;      /* NULL while it is spilled … */
    int spilled;                       /* … to this file, else -1; owned */
    size_t size_bytes;
    uint32_t owners_count;
    bool may_spill; /* one of its owners is a reference, which does not read it: with no other
                   owner it may be spilled */
    int64_t made_ms;

    /* Filled by each list of the objects (object_list.c). */
    uint32_t readers_count;
    bool is_listed;
};

void tdm__object_memory_retain(struct tdm__object_memory *memory);
void tdm__object_memory_release(struct tdm__object_memory *memory);

/* Documents are destroyed on any thread, and some after the runtime has stopped. */
struct tdm__loop *tdm__current_loop(void);
/* export.c: how many processes read each value, into its `readers_count`. */
void tdm__exports_count_readers(struct tdm__object_memory *memory);
/* The end of the runtime; what is lent to that reader under that number, or NULL; the
 * reader's way to give it back. */
void tdm__exports_end(struct tdm__object_memory *memory);
struct tdm__large *tdm__export_find(struct tdm__object_memory *memory, const struct tdm__conn *conn,
                                    uint64_t id);
void tdm__export_return(struct tdm__conn *conn, uint64_t id);

/* ---- memory_quota.c: the limit of the node
 * ------------------------------------------------------- */

enum tdm__memory_quota_mode {
    TDM__QUOTA_NOW,   /* TDM_E_LIMIT if this process cannot make room by itself */
    TDM__QUOTA_WAIT,  /* after others have been asked to for some seconds */
    TDM__QUOTA_EXCEED /* over the limit, rather than fail */
};
/* A segment for so many bytes, in use. */
tdm_status tdm__memory_quota_get_segment(struct tdm__object_memory *memory, size_t size_bytes,
                                         enum tdm__memory_quota_mode how,
                                         struct tdm__segment **segment_out);
/* It is idle from here on. */
void tdm__memory_quota_idle_segment(struct tdm__object_memory *memory,
                                    struct tdm__segment *segment);
/* It is gone. */
void tdm__memory_quota_free_segment(struct tdm__object_memory *memory,
                                    struct tdm__segment *segment);
/* There is something to give if others wait for it. */
void tdm__memory_quota_watch(struct tdm__object_memory *memory);
/* The end of the runtime. */
void tdm__memory_quota_close(struct tdm__object_memory *memory);

/* The value is in memory then, and was used last. */
tdm_status tdm__large_load(struct tdm__large *large);
/* Nobody wants a value that is spilled any more. */
void tdm__large_discard_spilled(struct tdm__large *large);

#endif
