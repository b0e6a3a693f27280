/* large_value.c - values packed once into shared memory and read in place by other processes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm__object_memory and struct tdm__large. A value has one of two states: in memory
 * (`segment` is set) or spilled to disk (`spilled` is a descriptor). It may be spilled only
 * while a single owner, a reference, holds it; memory_quota.c decides when.
 *
 * Owner counts are guarded by the loop's lock, which document_release_large() takes because
 * documents are destroyed on any thread. The memory outlives the runtime while documents read
 * values in it. export.c and pull.c send values to other processes. */

#include "actors/objects/large_value.h"

#include "actors/objects/memory_quota.h"
#include "actors/objects/object_memory.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/large_copy.h"
#include "runtime/wire/format.h"
#include "runtime/wire/placeholders.h"
#include "runtime/wire/writer.h"

#include <stdlib.h>
#include <unistd.h>

/* Most bytes of unused mappings of other processes' segments; the least recently used ones
 * beyond this are unmapped. */
#define VIEWS_BYTES_MAX ((uint64_t)256 << 20)

/* ---- the memory of a runtime ------------------------------------------------------------- */

void tdm__object_memory_retain(struct tdm__object_memory *memory)
{
    memory->owners_count++;
}

void tdm__object_memory_release(struct tdm__object_memory *memory)
{
    TDM_ASSERT(memory->owners_count > 0);
    memory->owners_count--;
    if (memory->owners_count == 0) {
        tdm__segments_fini(&memory->segments);
        tdm__segment_views_fini(&memory->views);
        free(memory);
    }
}

tdm_status tdm__object_memory_create(tdm_runtime *runtime, struct tdm__object_memory **memory_out)
{
    struct tdm__object_memory *memory = calloc(1, sizeof(*memory));

    if (memory == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the memory of a runtime");
    }
    memory->runtime = runtime;
    memory->owners_count = 1;
    TAILQ_INIT(&memory->shm_exports);
    TAILQ_INIT(&memory->exporters);
    TAILQ_INIT(&memory->values);
    tdm__segments_init(&memory->segments);
    tdm__segment_views_init(&memory->views, VIEWS_BYTES_MAX);
    *memory_out = memory;
    return TDM_OK;
}

void tdm__object_memory_destroy(struct tdm__object_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    tdm__memory_quota_close(memory);
    memory->runtime = NULL;
    tdm__object_memory_release(memory);
}

/* ---- a value ---------------------------------------------------------------------------- */

/* Creates an unwritten value of `size_bytes` with one owner, as `mode` says. */
static tdm_status large_create(tdm_runtime *runtime, size_t size_bytes,
                               enum tdm__memory_quota_mode mode, struct tdm__large **large_out)
{
    struct tdm__object_memory *memory = runtime->memory;
    struct tdm__large *large = calloc(1, sizeof(*large));
    tdm_status status;

    if (large == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a large value");
    }
    status = tdm__memory_quota_get_segment(memory, size_bytes, mode, &large->segment);
    if (status != TDM_OK) {
        free(large);
        return status;
    }
    /* A value that may exceed the limit arrives in chunks, so its pages are not allocated at
     * once. */
    if (mode != TDM__QUOTA_EXCEED) {
        tdm__segment_populate(large->segment, size_bytes);
    }
    large->memory = memory;
    tdm__object_memory_retain(memory);
    large->spilled = -1;
    large->size_bytes = size_bytes;
    large->created_ms = tdm__clock_ms();
    large->owners_count = 1;
    TAILQ_INSERT_TAIL(&memory->values, large, link);
    *large_out = large;
    return TDM_OK;
}

tdm_status tdm__large_create(tdm_runtime *runtime, size_t size_bytes, struct tdm__large **large_out)
{
    return large_create(runtime, size_bytes, TDM__QUOTA_NOW, large_out);
}

tdm_status tdm__large_create_over_limit(tdm_runtime *runtime, size_t size_bytes,
                                        struct tdm__large **large_out)
{
    return large_create(runtime, size_bytes, TDM__QUOTA_EXCEED, large_out);
}

void tdm__large_retain(struct tdm__large *large)
{
    if (large != NULL) {
        large->owners_count++;
    }
}

void tdm__large_release(struct tdm__large *large)
{
    struct tdm__object_memory *memory;

    if (large == NULL) {
        return;
    }
    TDM_ASSERT(large->owners_count > 0);
    large->owners_count--;
    if (large->owners_count > 0) {
        return;
    }
    memory = large->memory;
    TAILQ_REMOVE(&memory->values, large, link);
    if (large->segment != NULL) {
        tdm__memory_quota_idle_segment(memory, large->segment);
    } else {
        tdm__large_discard_spilled(large);
    }
    free(large);
    tdm__object_memory_release(memory);
}

void tdm__large_allow_spill(struct tdm__large *large)
{
    large->may_spill = true;
}

struct tdm_bytes tdm__large_bytes(const struct tdm__large *large)
{
    TDM_ASSERT(large->segment != NULL);
    return (struct tdm_bytes){large->segment->address, large->size_bytes};
}

/* Called when a document that reads the value in place is destroyed, on any thread. */
static void document_release_large(void *arg)
{
    TDM__LOOP_ENTER(tdm__current_loop());

    tdm__large_release(arg);
}

tdm_status tdm__large_document(struct tdm__large *large, tdm_document **document_out)
{
    TDM_TRY(tdm__large_load(large));
    TDM_TRY(tdm__document_parse_borrowed(tdm__large_bytes(large), document_release_large, large,
                                         document_out));
    large->owners_count++;
    return TDM_OK;
}

/* ---- packing ---------------------------------------------------------------------------- */

/* What is packed into a large value. */
struct packing {
    tdm_runtime *runtime;        /* The runtime, borrowed; the argument of `write`. */
    const char *format;          /* Format of the values, borrowed. */
    va_list args;                /* Values of the format; copied for each use. */
    tdm__object_write_fn *write; /* Writes references and handles. */
};

/* Packs the values with `writer`; write(runtime, …) writes references and handles. */
static tdm_status packing_run(struct packing *packing, tdm_writer *writer,
                              tdm__object_write_fn *write)
{
    tdm_status status;
    va_list again;

    va_copy(again, packing->args);
    status = tdm__pack_with_objects(writer, packing->format, again, write, packing->runtime);
    va_end(again);
    return status;
}

/* Counts a reference or handle as large as it can be. A tdm__object_write_fn for a counting writer,
 * which does not read the bytes. */
static tdm_status count_object(void *arg, tdm_writer *writer, char letter, void *object)
{
    (void)arg;
    (void)letter;
    (void)object;
    tdm__write_ext(writer, TDM__EXT_REFERENCE, (struct tdm_bytes){NULL, TDM__EXT_BYTES_MAX});
    return tdm_writer_status(writer);
}

/* Computes the packed size of the values without packing them. */
static tdm_status packing_size(struct packing *packing, tdm__object_write_fn *write,
                               size_t *size_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__writer_create_counting(&writer));
    status = packing_run(packing, writer, write);
    *size_out = tdm_writer_bytes(writer).size_bytes;
    tdm_writer_destroy(writer);
    return status;
}

/* Packs the values into the segment of `large`. `*fits_out` is false if their size is not that of
 * `large`. */
static tdm_status packing_fill(struct packing *packing, struct tdm__large *large, bool *fits_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__writer_create_over(large->segment->address, large->size_bytes, &writer));
    status = packing_run(packing, writer, packing->write);
    *fits_out = status != TDM_E_LIMIT && tdm_writer_bytes(writer).size_bytes == large->size_bytes;
    tdm_writer_destroy(writer);
    return status == TDM_E_LIMIT ? TDM_OK : status;
}

/* Creates a large value of the packed values; leaves NULL if they are small. `size_bytes` is their
 * size; with references and handles among them it is computed here. */
static tdm_status packing_create_large(struct packing *packing, size_t size_bytes,
                                       struct tdm__large **large_out)
{
    bool has_objects = tdm__format_has(packing->format, "Rh&");
    bool fits = false;

    /* The loop may run while the segment is created, and a handle then have other bytes. */
    while (!fits) {
        struct tdm__large *large;
        tdm_status status;

        if (has_objects) {
            TDM_TRY(packing_size(packing, packing->write, &size_bytes));
        }
        if (size_bytes <= TDM__INLINE_BYTES_MAX) {
            return TDM_OK;
        }
        TDM_TRY(large_create(packing->runtime, size_bytes, TDM__QUOTA_WAIT, &large));
        status = packing_fill(packing, large, &fits);
        if (status == TDM_OK && fits) {
            *large_out = large;
        } else {
            tdm__large_release(large);
            TDM_TRY(status);
        }
    }
    return TDM_OK;
}

tdm_status tdm__large_pack(tdm_runtime *runtime, const char *format, va_list args,
                           tdm__object_write_fn *write, struct tdm__large **large_out)
{
    struct packing packing = {.runtime = runtime, .format = format, .write = write};
    size_t most_bytes;
    tdm_status status;

    *large_out = NULL;
    /* A format without one of the letters sbavp* cannot pack to a large value. */
    if (!tdm__format_has(format, "sbavp*") || tdm__format_awaits_values(format, args)) {
        return TDM_OK;
    }
    va_copy(packing.args, args);
    status = packing_size(&packing, count_object, &most_bytes);
    if (status == TDM_OK && most_bytes > TDM__INLINE_BYTES_MAX) {
        status = packing_create_large(&packing, most_bytes, large_out);
    }
    va_end(packing.args);
    return status;
}

/* Copies packed bytes into a new value if they are large, as `mode` says; else leaves NULL. */
static tdm_status large_copy_bytes(tdm_runtime *runtime, struct tdm_bytes packed,
                                   enum tdm__memory_quota_mode mode, struct tdm__large **large_out)
{
    *large_out = NULL;
    if (packed.size_bytes <= TDM__INLINE_BYTES_MAX) {
        return TDM_OK;
    }
    TDM_TRY(large_create(runtime, packed.size_bytes, mode, large_out));
    tdm__rect_copy((*large_out)->segment->address, packed.data, packed.size_bytes);
    return TDM_OK;
}

tdm_status tdm__large_copy(tdm_runtime *runtime, struct tdm_bytes packed,
                           struct tdm__large **large_out)
{
    return large_copy_bytes(runtime, packed, TDM__QUOTA_WAIT, large_out);
}

tdm_status tdm__large_copy_now(tdm_runtime *runtime, struct tdm_bytes packed,
                               struct tdm__large **large_out)
{
    return large_copy_bytes(runtime, packed, TDM__QUOTA_NOW, large_out);
}

/* Packs a value that has been read into the segment of a new large value. */
static tdm_status large_write_value(struct tdm__large *large, const tdm_value *value)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__writer_create_over(large->segment->address, large->size_bytes, &writer));
    tdm_write_value(writer, value);
    status = tdm_writer_status(writer);
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__large_of_value(tdm_runtime *runtime, const tdm_value *value,
                               struct tdm__large **large_out)
{
    tdm_writer *writer;
    size_t size_bytes;
    tdm_status status;

    *large_out = NULL;
    TDM_TRY(tdm__writer_create_counting(&writer));
    tdm_write_value(writer, value);
    status = tdm_writer_status(writer);
    size_bytes = tdm_writer_bytes(writer).size_bytes;
    tdm_writer_destroy(writer);
    if (status != TDM_OK || size_bytes <= TDM__INLINE_BYTES_MAX) {
        return status;
    }
    TDM_TRY(tdm__large_create(runtime, size_bytes, large_out));
    status = large_write_value(*large_out, value);
    if (status != TDM_OK) {
        tdm__large_release(*large_out);
        *large_out = NULL;
    }
    return status;
}
