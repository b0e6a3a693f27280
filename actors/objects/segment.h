/* segment.h - segments of shared memory for large values, written by one process and read by
 * many. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_SEGMENT_H
#define TDM_ACTORS_OBJECTS_SEGMENT_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* The writer's and the readers' side of segments. A segment is a memory file without a name. Its
 * creator has the only writable mapping there can ever be (F_SEAL_FUTURE_WRITE, F_SEAL_SHRINK,
 * F_SEAL_GROW). Readers get the descriptor and map it read-only. Writing to fresh pages costs
 * several times the copy, so a segment whose value was released is kept idle for a later value.
 * Not thread-safe: guarded by the loop's lock. */

/* ---- the writer's side ------------------------------------------------------------------ */

/* A segment that this process created. Owned by the lists of struct tdm__segments. */
struct tdm__segment {
    TAILQ_ENTRY(tdm__segment) link; /* Link in the list of idle or of used segments. */
    struct tdm__id id;     /* Random ID of the segment; the same while the segment is reused. */
    int fd;                /* Descriptor of the memory file, owned. */
    void *address;         /* Page-aligned writable mapping. */
    size_t capacity_bytes; /* Size of the file, a multiple of TDM__SEGMENT_ALIGN_BYTES. */
    int64_t idle_since_ms; /* Milliseconds on CLOCK_MONOTONIC at which it last became idle. */
    bool idle;             /* True while no value is in it. */
    bool fresh; /* True while no value has been in it, so that its pages are not allocated yet. */
};

/* Unit of segment sizes in bytes. */
enum { TDM__SEGMENT_ALIGN_BYTES = 64 * 1024 };

TAILQ_HEAD(tdm__segment_list, tdm__segment);
/* All segments that this process created. */
struct tdm__segments {
    /* Segments without a value; the one that became idle last is first, since its pages are
     * likely in the cache. */
    struct tdm__segment_list idle;
    struct tdm__segment_list used; /* Segments with a value. */
    uint64_t idle_bytes;           /* Sum of the sizes of the idle segments. */
    uint64_t used_bytes;           /* Sum of the sizes of the used segments. */
};

/* Initializes empty lists. */
void tdm__segments_init(struct tdm__segments *segments);
/* Unmaps and frees all segments, the used ones too. */
void tdm__segments_fini(struct tdm__segments *segments);

/* Marks an idle segment of at least `size_bytes`, and at most about twice as large, as used and
 * returns it; NULL if absent. */
struct tdm__segment *tdm__segments_reuse(struct tdm__segments *segments, size_t size_bytes);
/* Creates a used segment. Returns TDM_E_NOMEM or TDM_E_IO on failure. */
tdm_status tdm__segments_create(struct tdm__segments *segments, size_t size_bytes,
                                struct tdm__segment **segment_out);
/* Lets the kernel allocate the first `size_bytes` of a fresh segment at once. For a writer that
 * writes them all next, this is twice as fast as a fault for each page. */
void tdm__segment_populate(struct tdm__segment *segment, size_t size_bytes);
/* Returns the size of the segment that tdm__segments_create() would create for `size_bytes`. */
size_t tdm__segment_capacity(size_t size_bytes);
/* Makes a used segment idle. No process may read it any more. */
void tdm__segments_recycle(struct tdm__segments *segments, struct tdm__segment *segment);
/* Frees idle segments, the longest idle first, until `bytes` are freed or none is left. Returns
 * the number of freed bytes. */
uint64_t tdm__segments_trim(struct tdm__segments *segments, uint64_t bytes);
/* Frees a used segment whose value has been moved. */
void tdm__segments_free(struct tdm__segments *segments, struct tdm__segment *segment);

/* ---- a reader's side -------------------------------------------------------------------- */

/* A read-only mapping of a segment of another process. An unused mapping is kept for the next
 * value in the same segment, within a bound. */
struct tdm__segment_view {
    TAILQ_ENTRY(tdm__segment_view) link;
    struct tdm__id id;     /* Id of the segment. */
    const void *address;   /* Start of the mapping. */
    size_t capacity_bytes; /* Size of the mapping. */
    uint32_t users_count;  /* Number of imported values that use the mapping. */
    /* Identity of the connection on which the segment may be exported again (only compared);
     * NULL if it cannot be, and then the mapping is not kept. */
    const void *exporter;
};
TAILQ_HEAD(tdm__segment_view_list, tdm__segment_view);
/* All mappings of segments of other processes. */
struct tdm__segment_views {
    struct tdm__segment_view_list all; /* The most recently used mapping is first. */
    uint64_t unused_bytes;             /* Sum of the sizes of mappings without users. */
    uint64_t unused_bytes_max;         /* Unused mappings beyond this many bytes are unmapped. */
};

/* Initializes an empty list with the given bound. */
void tdm__segment_views_init(struct tdm__segment_views *views, uint64_t unused_bytes_max);
/* Unmaps all. */
void tdm__segment_views_fini(struct tdm__segment_views *views);
/* Adds a user to the mapping of the segment `id` and returns it; NULL if the segment is not
 * mapped. */
struct tdm__segment_view *tdm__segment_views_find(struct tdm__segment_views *views,
                                                  const struct tdm__id *id);
/* Maps the segment with one user and closes `fd` in any case. Returns TDM_E_PROTOCOL if the
 * descriptor is not a sealed segment of `capacity_bytes`: one that could shrink or change under
 * the reader. */
tdm_status tdm__segment_views_open(struct tdm__segment_views *views, const struct tdm__id *id,
                                   int fd, size_t capacity_bytes,
                                   struct tdm__segment_view **view_out);
/* Removes a user. Without users the mapping is kept if its exporter is still connected and the
 * bound allows it. */
void tdm__segment_views_release(struct tdm__segment_views *views, struct tdm__segment_view *view);
/* Forgets an exporter whose connection closed and unmaps its mappings as soon as they are
 * unused. */
void tdm__segment_views_forget(struct tdm__segment_views *views, const void *exporter);
/* Unmaps all unused mappings. Returns the number of unmapped bytes. */
uint64_t tdm__segment_views_trim(struct tdm__segment_views *views);

#endif
