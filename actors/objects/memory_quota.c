/* memory_quota.c - the node's limit on shared memory: reserving, evicting and spilling. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Every segment is reserved in the node's usage file (memory_usage.h) before it is created and
 * released after it is freed, idle segments included. If the limit is reached, this process
 * evicts memory of its own: first idle segments, then values that only a reference holds, which
 * are spilled to disk, least recently used first. If that is not enough, it announces in the
 * usage file how many bytes it waits for.
 *
 * Each process with segments or mappings checks that announcement every PRESSURE_EVERY_MS and
 * evicts for the process that waits. Without a usage file nothing is limited. Everything runs
 * with the loop's lock; quota_wait_for_others() drives the loop meanwhile.
 * docs/protocols/references.md, "The limit", specifies the rules. */

#include "actors/objects/memory_quota.h"

#include "actors/objects/spill.h"
#include "actors/process/runtime.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <unistd.h>

/* Most bytes of idle segments; the longest idle ones beyond this are freed. */
#define IDLE_BYTES_MAX ((uint64_t)512 << 20)

/* Milliseconds: how long a reservation waits for other processes, how often it tries again
 * meanwhile, and how often a process checks whether another one waits. */
enum { WAIT_MS = 5000, RETRY_EVERY_MS = 20, PRESSURE_EVERY_MS = 200 };

/* ---- the usage file ---------------------------------------------------------------------- */

/* Opens the node's usage file at the first call and returns it; NULL if the node has none. The
 * node's directory is not known when the memory is created. */
static struct tdm__memory_usage *memory_usage_open_once(struct tdm__object_memory *memory)
{
    if (!memory->has_opened_usage && memory->runtime != NULL &&
        memory->runtime->directory[0] != '\0') {
        memory->has_opened_usage = true;
        if (tdm__memory_usage_open(memory->runtime->directory, &memory->usage) != TDM_OK) {
            memory->usage = NULL;
            tdm__log(TDM__WARN, "objects", "large values are not limited: %s", tdm_error_detail());
        }
    }
    return memory->usage;
}

/* Releases `bytes` in the usage file. */
static void quota_release_bytes(struct tdm__object_memory *memory, uint64_t bytes)
{
    if (memory->usage != NULL && bytes > 0) {
        tdm__memory_usage_release(memory->usage, bytes);
    }
}

/* ---- evicting ---------------------------------------------------------------------------- */

/* Returns true if the value is in memory and its only owner is a reference, which does not read
 * it. */
static bool large_can_be_spilled(const struct tdm__large *large)
{
    return large->segment != NULL && large->may_spill && large->owners_count == 1;
}

/* Writes one value to disk and frees its segment. */
static tdm_status quota_spill_one(struct tdm__object_memory *memory, struct tdm__large *large)
{
    const struct tdm_bytes bytes = {large->segment->address, large->size_bytes};

    TDM_TRY(tdm__spill_write(memory->runtime->directory, bytes, &large->spilled));
    tdm__memory_quota_free_segment(memory, large->segment);
    large->segment = NULL;
    memory->spilled_bytes += large->size_bytes;
    tdm__memory_usage_add_spilled(memory->usage, (int64_t)large->size_bytes);
    return TDM_OK;
}

/* Frees idle segments, then spills values, least recently used first, until `bytes` are free or
 * nothing is left. Fails if spilling fails. */
static tdm_status quota_evict(struct tdm__object_memory *memory, uint64_t bytes)
{
    uint64_t gone_bytes = tdm__segments_trim(&memory->segments, bytes);
    struct tdm__large *next;

    quota_release_bytes(memory, gone_bytes);
    for (struct tdm__large *large = TAILQ_FIRST(&memory->values);
         large != NULL && gone_bytes < bytes; large = next) {
        next = TAILQ_NEXT(large, link);
        if (large_can_be_spilled(large)) {
            size_t capacity_bytes = large->segment->capacity_bytes;

            TDM_TRY(quota_spill_one(memory, large));
            gone_bytes += capacity_bytes;
        }
    }
    return TDM_OK;
}

/* Timer: evicts memory if another process waits for some, and sets the timer again while this
 * process has memory. */
static void on_pressure_time(void *arg)
{
    struct tdm__object_memory *memory = arg;
    uint64_t wanted_bytes = tdm__memory_usage_pressure(memory->usage);

    memory->watches_pressure = false;
    if (wanted_bytes > 0) {
        /* Mappings keep segments of other processes in memory. */
        (void)tdm__segment_views_trim(&memory->views);
        if (quota_evict(memory, tdm__memory_usage_shortage(memory->usage, wanted_bytes)) !=
            TDM_OK) {
            tdm__log(TDM__WARN, "objects", "freeing memory for another process: %s",
                     tdm_error_detail());
        }
    }
    if (memory->segments.used_bytes + memory->segments.idle_bytes + memory->views.unused_bytes >
        0) {
        tdm__memory_quota_watch(memory);
    }
}

void tdm__memory_quota_watch(struct tdm__object_memory *memory)
{
    if (memory->watches_pressure || memory_usage_open_once(memory) == NULL) {
        return;
    }
    if (memory->pressure == NULL && tdm__timer_create(memory->runtime->loop, on_pressure_time,
                                                      memory, &memory->pressure) != TDM_OK) {
        /* Without the timer this process frees nothing for others; their reservations fail. */
        return;
    }
    memory->watches_pressure =
        tdm__timer_set(memory->pressure, tdm__clock_ms() + PRESSURE_EVERY_MS) == TDM_OK;
}

/* ---- reserving --------------------------------------------------------------------------- */

/* Fails with TDM_E_LIMIT, naming the sizes and the remedy. */
static tdm_status quota_exceeded(const struct tdm__object_memory *memory, uint64_t bytes)
{
    struct tdm__memory_usage_totals sums;

    tdm__memory_usage_read(memory->usage, &sums);
    return tdm__fail(TDM_E_LIMIT,
                     "a value of %llu bytes: the node's object store holds %llu of %llu bytes "
                     "(and %llu on disk) and the rest is being read; release references, or "
                     "start the node with a larger --object-store-bytes",
                     (unsigned long long)bytes, (unsigned long long)sums.used_bytes,
                     (unsigned long long)sums.limit_bytes, (unsigned long long)sums.spilled_bytes);
}

/* Reserves `bytes`, evicting memory of this process if necessary. `*taken_out` says whether that
 * was enough. Fails only if spilling fails. */
static tdm_status quota_try_reserve(struct tdm__object_memory *memory, uint64_t bytes,
                                    bool *taken_out)
{
    struct tdm__memory_usage *usage = memory->usage;

    *taken_out = tdm__memory_usage_reserve(usage, bytes);
    if (!*taken_out) {
        TDM_TRY(quota_evict(memory, tdm__memory_usage_shortage(usage, bytes)));
        *taken_out = tdm__memory_usage_reserve(usage, bytes);
    }
    return TDM_OK;
}

/* Reserves `bytes`, asking the other processes of the node to evict memory, for at most WAIT_MS.
 * Drives the loop meanwhile. */
static tdm_status quota_wait_for_others(struct tdm__object_memory *memory, uint64_t bytes)
{
    int64_t deadline_ms = tdm__clock_ms() + WAIT_MS;
    bool taken = false;

    while (!taken) {
        tdm__memory_usage_set_pressure(memory->usage, bytes);
        (void)tdm__loop_run(memory->runtime->loop, NULL, NULL, tdm__clock_ms() + RETRY_EVERY_MS);
        TDM_TRY(quota_try_reserve(memory, bytes, &taken));
        if (!taken && tdm__clock_ms() >= deadline_ms) {
            return quota_exceeded(memory, bytes);
        }
    }
    return TDM_OK;
}

/* Reserves `bytes` as `mode` says. Does nothing if the node has no limit. */
static tdm_status quota_reserve_bytes(struct tdm__object_memory *memory, uint64_t bytes,
                                      enum tdm__memory_quota_mode mode)
{
    struct tdm__memory_usage *usage = memory_usage_open_once(memory);
    struct tdm__memory_usage_totals sums;
    tdm_status status;
    bool taken;

    if (usage == NULL) {
        return TDM_OK;
    }
    status = quota_try_reserve(memory, bytes, &taken);
    if (status == TDM_OK && taken) {
        return TDM_OK;
    }
    if (mode == TDM__QUOTA_EXCEED) {
        tdm__memory_usage_reserve_over_limit(usage, bytes);
        return TDM_OK;
    }
    TDM_TRY(status);
    tdm__memory_usage_read(usage, &sums);
    return mode == TDM__QUOTA_WAIT && bytes <= sums.limit_bytes
               ? quota_wait_for_others(memory, bytes)
               : quota_exceeded(memory, bytes);
}

tdm_status tdm__memory_quota_get_segment(struct tdm__object_memory *memory, size_t size_bytes,
                                         enum tdm__memory_quota_mode mode,
                                         struct tdm__segment **segment_out)
{
    size_t capacity_bytes = tdm__segment_capacity(size_bytes);
    tdm_status status;

    *segment_out = tdm__segments_reuse(&memory->segments, size_bytes);
    if (*segment_out != NULL) {
        return TDM_OK;
    }
    TDM_TRY(quota_reserve_bytes(memory, capacity_bytes, mode));
    status = tdm__segments_create(&memory->segments, size_bytes, segment_out);
    if (status != TDM_OK) {
        quota_release_bytes(memory, capacity_bytes);
        return status;
    }
    tdm__memory_quota_watch(memory);
    return TDM_OK;
}

void tdm__memory_quota_idle_segment(struct tdm__object_memory *memory, struct tdm__segment *segment)
{
    struct tdm__segments *segments = &memory->segments;

    tdm__segments_recycle(segments, segment);
    if (segments->idle_bytes > IDLE_BYTES_MAX) {
        quota_release_bytes(memory,
                            tdm__segments_trim(segments, segments->idle_bytes - IDLE_BYTES_MAX));
    }
}

void tdm__memory_quota_free_segment(struct tdm__object_memory *memory, struct tdm__segment *segment)
{
    size_t capacity_bytes = segment->capacity_bytes;

    tdm__segments_free(&memory->segments, segment);
    quota_release_bytes(memory, capacity_bytes);
}

/* ---- reading back ------------------------------------------------------------------------ */

void tdm__large_discard_spilled(struct tdm__large *large)
{
    struct tdm__object_memory *memory = large->memory;

    (void)close(large->spilled);
    large->spilled = -1;
    memory->spilled_bytes -= large->size_bytes;
    if (memory->usage != NULL) {
        tdm__memory_usage_add_spilled(memory->usage, -(int64_t)large->size_bytes);
    }
}

tdm_status tdm__large_load(struct tdm__large *large)
{
    struct tdm__object_memory *memory = large->memory;
    struct tdm__segment *segment;
    tdm_status status;

    TAILQ_REMOVE(&memory->values, large, link);
    TAILQ_INSERT_TAIL(&memory->values, large, link);
    if (large->segment != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__memory_quota_get_segment(memory, large->size_bytes, TDM__QUOTA_EXCEED, &segment));
    status = tdm__spill_read(large->spilled, segment->address, large->size_bytes);
    if (status != TDM_OK) {
        tdm__memory_quota_free_segment(memory, segment);
        return status;
    }
    tdm__large_discard_spilled(large);
    large->segment = segment;
    return TDM_OK;
}

void tdm__memory_quota_close(struct tdm__object_memory *memory)
{
    tdm__timer_destroy(memory->pressure);
    memory->pressure = NULL;
    tdm__memory_usage_close(memory->usage);
    memory->usage = NULL;
}
