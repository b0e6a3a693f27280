/* segment.h - shared memory in which large values lie: written by one process, read by many. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_SEGMENT_H
#define TDM_ACTORS_OBJECTS_SEGMENT_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* A segment is a memory file without a name.  The process that made it keeps the only writable
 * mapping there can ever be (F_SEAL_FUTURE_WRITE, F_SEAL_SHRINK, F_SEAL_GROW); readers get the
 * descriptor and map it read-only.  Writing to fresh pages costs several times the copy, so a
 * segment whose value is gone is kept, idle, for the next one.  Not thread-safe: the loop's
 * lock. */

/* ---- the writer's ----------------------------------------------------------------------- */

struct tdm__segment {
    TAILQ_ENTRY(tdm__segment) link; /* in its pool: idle or in use */
    struct tdm__id id;              /* new each time it is made; the same while it is recycled */
    int fd;                         /* owned */
    void *address;                  /* the writable mapping, page-aligned */
    size_t capacity_bytes;          /* a multiple of TDM__SEGMENT_ALIGN_BYTES */
    int64_t idle_since_ms;
    bool idle;
    bool fresh; /* no value has been in it: its pages are still to come */
};

enum { TDM__SEGMENT_ALIGN_BYTES = 64 * 1024 };

TAILQ_HEAD(tdm__segment_list, tdm__segment);
struct tdm__segments {
    struct tdm__segment_list idle; /* the one that came last is first: its pages are warm */
    struct tdm__segment_list used;
    uint64_t idle_bytes;
    uint64_t used_bytes;
};

void tdm__segments_init(struct tdm__segments *segments);
void tdm__segments_fini(struct tdm__segments *segments); /* unmaps all, the used ones too */

/* An idle one that holds `size_bytes` and is not more than twice as large; NULL if there is
 * none. */
struct tdm__segment *tdm__segments_reuse(struct tdm__segments *segments, size_t size_bytes);
/* A new one.  TDM_E_NOMEM, TDM_E_IO. */
tdm_status tdm__segments_make(struct tdm__segments *segments, size_t size_bytes,
                              struct tdm__segment **segment_out);
/* Has the kernel make the first pages of a fresh one at once, for who writes them all next:
 * that is twice as fast as a fault for each. */
void tdm__segment_populate(struct tdm__segment *segment, size_t size_bytes);
/* What tdm__segments_make() would take from the node's memory. */
size_t tdm__segment_capacity(size_t size_bytes);
/* No value lies in it and nobody reads it any more: it waits for the next. */
void tdm__segments_recycle(struct tdm__segments *segments, struct tdm__segment *segment);
/* Frees idle ones, the coldest first, until `bytes` are gone or none is left; returns how many
 * went. */
uint64_t tdm__segments_trim(struct tdm__segments *segments, uint64_t bytes);
/* Frees one that is in use: its value has moved elsewhere. */
void tdm__segments_free(struct tdm__segments *segments, struct tdm__segment *segment);

/* ---- a reader's ------------------------------------------------------------------------- */

/* A read-only mapping, kept for the next value in the same segment while it is unused and the
 * cache has room. */
struct tdm__segment_view {
    TAILQ_ENTRY(tdm__segment_view) link;
    struct tdm__id id;
    const void *address;
    size_t capacity_bytes;
    uint32_t users_count;
    const void *exporter; /* who would lend it again; NULL: nobody, and it is not kept */
};
TAILQ_HEAD(tdm__segment_view_list, tdm__segment_view);
struct tdm__segment_views {
    struct tdm__segment_view_list all; /* used last is first */
    uint64_t unused_bytes;
    uint64_t unused_bytes_max;
};

void tdm__segment_views_init(struct tdm__segment_views *views, uint64_t unused_bytes_max);
void tdm__segment_views_fini(struct tdm__segment_views *views);
/* One more user of the mapping of that segment; NULL if there is none. */
struct tdm__segment_view *tdm__segment_views_find(struct tdm__segment_views *views,
                                                  const struct tdm__id *id);
/* Maps it; takes `fd` in any case.  TDM_E_PROTOCOL for a descriptor that is no such segment:
 * one that could shrink under the reader, or be written by others than its maker. */
tdm_status tdm__segment_views_open(struct tdm__segment_views *views, const struct tdm__id *id,
                                   int fd, size_t capacity_bytes,
                                   struct tdm__segment_view **view_out);
void tdm__segment_views_release(struct tdm__segment_views *views, struct tdm__segment_view *view);
/* This exporter is gone: nothing of its will be used again. */
void tdm__segment_views_forget(struct tdm__segment_views *views, const void *exporter);
/* Unmaps what nobody uses.  Returns the bytes. */
uint64_t tdm__segment_views_trim(struct tdm__segment_views *views);

#endif
