/* segment.c - segments of shared memory for large values, written by one process and read by
 * many. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements the writer's lists of segments (struct tdm__segments) and the reader's mappings
 * (struct tdm__segment_views). A segment is either used, with a value in it, or idle. It is
 * sealed when it is created: no process can map it writable again or change its size, and a
 * reader refuses a descriptor without these seals. A mapping without users stays in the list
 * while its exporter is connected and the bound allows it.
 *
 * Nothing here locks; callers hold the loop's lock. */

#include "actors/objects/segment.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/older_libc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Seals that a segment must have so that it can be read in place. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE };

/* ---- the writer's side ----------------------------------------------------------------------- */

void tdm__segments_init(struct tdm__segments *segments)
{
    *segments = (struct tdm__segments){0};
    TAILQ_INIT(&segments->idle);
    TAILQ_INIT(&segments->used);
}

/* Unmaps and closes the segment, which is in no list. */
static void segment_free(struct tdm__segment *segment)
{
    if (segment->address != NULL) {
        (void)munmap(segment->address, segment->capacity_bytes);
    }
    if (segment->fd >= 0) {
        (void)close(segment->fd);
    }
    free(segment);
}

/* Frees an idle segment. */
static void segment_free_idle(struct tdm__segments *segments, struct tdm__segment *segment)
{
    TAILQ_REMOVE(&segments->idle, segment, link);
    segments->idle_bytes -= segment->capacity_bytes;
    segment_free(segment);
}

void tdm__segments_free(struct tdm__segments *segments, struct tdm__segment *segment)
{
    TDM_ASSERT(!segment->idle);
    TAILQ_REMOVE(&segments->used, segment, link);
    segments->used_bytes -= segment->capacity_bytes;
    segment_free(segment);
}

void tdm__segments_fini(struct tdm__segments *segments)
{
    (void)tdm__segments_trim(segments, UINT64_MAX);
    while (!TAILQ_EMPTY(&segments->used)) {
        tdm__segments_free(segments, TAILQ_FIRST(&segments->used));
    }
}

size_t tdm__segment_capacity(size_t size_bytes)
{
    size_t step = TDM__SEGMENT_ALIGN_BYTES;

    TDM_ASSERT(size_bytes <= SIZE_MAX / 2);
    return size_bytes == 0 ? step : (size_bytes + step - 1) / step * step;
}

/* Puts a segment that is in no list into the list of used ones. */
static void segment_mark_used(struct tdm__segments *segments, struct tdm__segment *segment)
{
    segment->idle = false;
    TAILQ_INSERT_HEAD(&segments->used, segment, link);
    segments->used_bytes += segment->capacity_bytes;
}

struct tdm__segment *tdm__segments_reuse(struct tdm__segments *segments, size_t size_bytes)
{
    size_t wanted = tdm__segment_capacity(size_bytes);
    struct tdm__segment *segment;

    TAILQ_FOREACH(segment, &segments->idle, link)
    {
        if (segment->capacity_bytes >= wanted && segment->capacity_bytes / 2 <= wanted) {
            TAILQ_REMOVE(&segments->idle, segment, link);
            segments->idle_bytes -= segment->capacity_bytes;
            segment_mark_used(segments, segment);
            return segment;
        }
    }
    return NULL;
}

/* Creates, sizes, maps and seals the memory file of a segment. On failure the caller frees the
 * segment. */
static tdm_status segment_create_file(struct tdm__segment *segment)
{
    segment->fd = memfd_create("tandem-value", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment->fd < 0) {
        return tdm__fail_errno(errno, "memfd_create: a segment");
    }
    if (ftruncate(segment->fd, (off_t)segment->capacity_bytes) != 0) {
        return tdm__fail_errno(errno, "ftruncate: a segment of %zu bytes", segment->capacity_bytes);
    }
    segment->address =
        mmap(NULL, segment->capacity_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (segment->address == MAP_FAILED) {
        segment->address = NULL;
        return tdm__fail_errno(errno, "mmap: a segment of %zu bytes", segment->capacity_bytes);
    }
    if (fcntl(segment->fd, F_ADD_SEALS, SEALS) != 0) {
        return tdm__fail_errno(errno, "fcntl: sealing a segment (Linux 5.1 or later)");
    }
    return TDM_OK;
}

tdm_status tdm__segments_create(struct tdm__segments *segments, size_t size_bytes,
                                struct tdm__segment **segment_out)
{
    struct tdm__segment *segment = calloc(1, sizeof(*segment));
    tdm_status status;

    if (segment == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a segment");
    }
    segment->fd = -1;
    segment->fresh = true;
    segment->capacity_bytes = tdm__segment_capacity(size_bytes);
    status = tdm__id_generate(&segment->id);
    if (status == TDM_OK) {
        status = segment_create_file(segment);
    }
    if (status != TDM_OK) {
        segment_free(segment);
        return status;
    }
    segment_mark_used(segments, segment);
    *segment_out = segment;
    return TDM_OK;
}

void tdm__segment_populate(struct tdm__segment *segment, size_t size_bytes)
{
    TDM_ASSERT(size_bytes <= segment->capacity_bytes);
    /* Kernels before 5.14 cannot do this; the pages are then allocated by the first write to
     * each. */
    if (segment->fresh) {
        (void)madvise(segment->address, tdm__segment_capacity(size_bytes), MADV_POPULATE_WRITE);
    }
}

void tdm__segments_recycle(struct tdm__segments *segments, struct tdm__segment *segment)
{
    TDM_ASSERT(!segment->idle);
    TAILQ_REMOVE(&segments->used, segment, link);
    segments->used_bytes -= segment->capacity_bytes;
    segment->idle = true;
    segment->fresh = false;
    segment->idle_since_ms = tdm__clock_ms();
    TAILQ_INSERT_HEAD(&segments->idle, segment, link);
    segments->idle_bytes += segment->capacity_bytes;
}

uint64_t tdm__segments_trim(struct tdm__segments *segments, uint64_t bytes)
{
    uint64_t gone_bytes = 0;

    while (gone_bytes < bytes && !TAILQ_EMPTY(&segments->idle)) {
        struct tdm__segment *coldest = TAILQ_LAST(&segments->idle, tdm__segment_list);

        gone_bytes += coldest->capacity_bytes;
        segment_free_idle(segments, coldest);
    }
    return gone_bytes;
}

/* ---- the reader's side ----------------------------------------------------------------------- */

void tdm__segment_views_init(struct tdm__segment_views *views, uint64_t unused_bytes_max)
{
    *views = (struct tdm__segment_views){.unused_bytes_max = unused_bytes_max};
    TAILQ_INIT(&views->all);
}

/* Unmaps and frees a mapping. */
static void segment_view_close(struct tdm__segment_views *views, struct tdm__segment_view *view)
{
    TAILQ_REMOVE(&views->all, view, link);
    (void)munmap((void *)view->address, view->capacity_bytes);
    free(view);
}

void tdm__segment_views_fini(struct tdm__segment_views *views)
{
    while (!TAILQ_EMPTY(&views->all)) {
        segment_view_close(views, TAILQ_FIRST(&views->all));
    }
}

struct tdm__segment_view *tdm__segment_views_find(struct tdm__segment_views *views,
                                                  const struct tdm__id *id)
{
    struct tdm__segment_view *view;

    TAILQ_FOREACH(view, &views->all, link)
    {
        if (tdm__id_equal(&view->id, id)) {
            if (view->users_count == 0) {
                views->unused_bytes -= view->capacity_bytes;
            }
            view->users_count++;
            TAILQ_REMOVE(&views->all, view, link);
            TAILQ_INSERT_HEAD(&views->all, view, link);
            return view;
        }
    }
    return NULL;
}

/* Returns TDM_OK if the descriptor is a sealed segment of this size. What is read in place must
 * neither shrink (SIGBUS) nor change under the reader. */
static tdm_status segment_check(int fd, size_t capacity_bytes)
{
    struct stat stat;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS) {
        return tdm__fail(TDM_E_PROTOCOL, "a segment is not sealed: seals %#x, not %#x", seals,
                         (unsigned)SEALS);
    }
    if (fstat(fd, &stat) != 0) {
        return tdm__fail_errno(errno, "fstat: a segment");
    }
    if (capacity_bytes == 0 || stat.st_size != (off_t)capacity_bytes) {
        return tdm__fail(TDM_E_PROTOCOL, "a segment of %lld bytes, said to have %zu",
                         (long long)stat.st_size, capacity_bytes);
    }
    return TDM_OK;
}

/* Maps the segment read-only with one user. Does not close `fd`. */
static tdm_status segment_view_map(struct tdm__segment_views *views, const struct tdm__id *id,
                                   int fd, size_t capacity_bytes,
                                   struct tdm__segment_view **view_out)
{
    struct tdm__segment_view *view;
    void *address;

    TDM_TRY(segment_check(fd, capacity_bytes));
    view = calloc(1, sizeof(*view));
    if (view == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a view of a segment");
    }
    address = mmap(NULL, capacity_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        free(view);
        return tdm__fail_errno(errno, "mmap: a segment of %zu bytes", capacity_bytes);
    }
    *view = (struct tdm__segment_view){
        .id = *id, .address = address, .capacity_bytes = capacity_bytes, .users_count = 1};
    TAILQ_INSERT_HEAD(&views->all, view, link);
    *view_out = view;
    return TDM_OK;
}

tdm_status tdm__segment_views_open(struct tdm__segment_views *views, const struct tdm__id *id,
                                   int fd, size_t capacity_bytes,
                                   struct tdm__segment_view **view_out)
{
    tdm_status status = segment_view_map(views, id, fd, capacity_bytes, view_out);

    (void)close(fd);
    return status;
}

/* Unmaps unused mappings, the least recently used ones first, until the rest is within the
 * bound. */
static void segment_views_enforce_bound(struct tdm__segment_views *views)
{
    struct tdm__segment_view *view = TAILQ_LAST(&views->all, tdm__segment_view_list);

    while (views->unused_bytes > views->unused_bytes_max && view != NULL) {
        struct tdm__segment_view *before = TAILQ_PREV(view, tdm__segment_view_list, link);

        if (view->users_count == 0) {
            views->unused_bytes -= view->capacity_bytes;
            segment_view_close(views, view);
        }
        view = before;
    }
}

void tdm__segment_views_release(struct tdm__segment_views *views, struct tdm__segment_view *view)
{
    TDM_ASSERT(view->users_count > 0);
    view->users_count--;
    if (view->users_count == 0 && view->exporter == NULL) {
        segment_view_close(views, view);
    } else if (view->users_count == 0) {
        TAILQ_REMOVE(&views->all, view, link);
        TAILQ_INSERT_HEAD(&views->all, view, link);
        views->unused_bytes += view->capacity_bytes;
        segment_views_enforce_bound(views);
    }
}

void tdm__segment_views_forget(struct tdm__segment_views *views, const void *exporter)
{
    struct tdm__segment_view *view = TAILQ_FIRST(&views->all);

    while (view != NULL) {
        struct tdm__segment_view *next = TAILQ_NEXT(view, link);

        if (view->exporter == exporter) {
            view->exporter = NULL;
            if (view->users_count == 0) {
                views->unused_bytes -= view->capacity_bytes;
                segment_view_close(views, view);
            }
        }
        view = next;
    }
}

uint64_t tdm__segment_views_trim(struct tdm__segment_views *views)
{
    uint64_t before = views->unused_bytes;
    uint64_t max = views->unused_bytes_max;

    views->unused_bytes_max = 0;
    segment_views_enforce_bound(views);
    views->unused_bytes_max = max;
    return before;
}
