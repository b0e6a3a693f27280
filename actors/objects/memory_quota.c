/* memory_quota.c - room for large values: the limit of the node, and who makes way. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/object_memory.h"
#include "actors/objects/spill.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <unistd.h>

/* Idle segments beyond this are freed: memory that is warm for the next value is worth that
 * much. */
#define IDLE_BYTES_MAX ((uint64_t)512 << 20)

enum { WAIT_MS = 5000, LOOK_AGAIN_MS = 20, PRESSURE_EVERY_MS = 200 };

/* ---- the account ------------------------------------------------------------------------ */

/* The node's directory is not known when the runtime is made. */
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

static void quota_give_idle(struct tdm__object_memory *memory, uint64_t bytes)
{
    if (memory->usage != NULL && bytes > 0) {
        tdm__memory_usage_release(memory->usage, bytes);
    }
}

/* ---- making way ------------------------------------------------------------------------- */

static bool may_be_spilled(const struct tdm__large *large)
{
    return large->segment != NULL && large->may_spill && large->owners_count == 1;
}

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

/* Idle segments go first, then values to the disk, by oldest use, until so many bytes are free
 * or nothing is left to give. */
static tdm_status quota_evict(struct tdm__object_memory *memory, uint64_t bytes)
{
    uint64_t gone_bytes = tdm__segments_trim(&memory->segments, bytes);
    struct tdm__large *next;

    quota_give_idle(memory, gone_bytes);
    for (struct tdm__large *large = TAILQ_FIRST(&memory->values);
         large != NULL && gone_bytes < bytes; large = next) {
        next = TAILQ_NEXT(large, link);
        if (may_be_spilled(large)) {
            size_t capacity_bytes = large->segment->capacity_bytes;

            TDM_TRY(quota_spill_one(memory, large));
            gone_bytes += capacity_bytes;
        }
    }
    return TDM_OK;
}

static void on_pressure_time(void *arg)
{
    struct tdm__object_memory *memory = arg;
    uint64_t wanted_bytes = tdm__memory_usage_pressure(memory->usage);

    memory->watches_pressure = false;
    if (wanted_bytes > 0) {
        (void)tdm__segment_views_trim(&memory->views); /* they keep segments of others in memory */
        if (quota_evict(memory, tdm__memory_usage_shortage(memory->usage, wanted_bytes)) !=
            TDM_OK) {
            tdm__log(TDM__WARN, "objects", "making room for another process: %s",
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
        return; /* others wait in vain */
    }
    memory->watches_pressure =
        tdm__timer_set(memory->pressure, tdm__clock_ms() + PRESSURE_EVERY_MS) == TDM_OK;
}

/* ---- taking ----------------------------------------------------------------------------- */

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

/* By this process alone. */
static tdm_status quota_take_now(struct tdm__object_memory *memory, uint64_t bytes, bool *taken_out)
{
    struct tdm__memory_usage *usage = memory->usage;

    *taken_out = tdm__memory_usage_reserve(usage, bytes);
    if (!*taken_out) {
        TDM_TRY(quota_evict(memory, tdm__memory_usage_shortage(usage, bytes)));
        *taken_out = tdm__memory_usage_reserve(usage, bytes);
    }
    return TDM_OK;
}

static tdm_status quota_take_from_others(struct tdm__object_memory *memory, uint64_t bytes)
{
    int64_t deadline_ms = tdm__clock_ms() + WAIT_MS;
    bool taken = false;

    while (!taken) {
        tdm__memory_usage_set_pressure(memory->usage, bytes);
        (void)tdm__loop_run(memory->runtime->loop, NULL, NULL, tdm__clock_ms() + LOOK_AGAIN_MS);
        TDM_TRY(quota_take_now(memory, bytes, &taken));
        if (!taken && tdm__clock_ms() >= deadline_ms) {
            return quota_exceeded(memory, bytes);
        }
    }
    return TDM_OK;
}

static tdm_status quota_take_bytes(struct tdm__object_memory *memory, uint64_t bytes,
                                   enum tdm__memory_quota_mode how)
{
    struct tdm__memory_usage *usage = memory_usage_open_once(memory);
    struct tdm__memory_usage_totals sums;
    tdm_status status;
    bool taken;

    if (usage == NULL) {
        return TDM_OK;
    }
    status = quota_take_now(memory, bytes, &taken);
    if (status == TDM_OK && taken) {
        return TDM_OK;
    }
    if (how == TDM__QUOTA_EXCEED) {
        tdm__memory_usage_reserve_over_limit(usage, bytes);
        return TDM_OK;
    }
    TDM_TRY(status);
    tdm__memory_usage_read(usage, &sums);
    return how == TDM__QUOTA_WAIT && bytes <= sums.limit_bytes
               ? quota_take_from_others(memory, bytes)
               : quota_exceeded(memory, bytes);
}

tdm_status tdm__memory_quota_get_segment(struct tdm__object_memory *memory, size_t size_bytes,
                                         enum tdm__memory_quota_mode how,
                                         struct tdm__segment **segment_out)
{
    size_t capacity_bytes = tdm__segment_capacity(size_bytes);
    tdm_status status;

    *segment_out = tdm__segments_reuse(&memory->segments, size_bytes);
    if (*segment_out != NULL) {
        return TDM_OK;
    }
    TDM_TRY(quota_take_bytes(memory, capacity_bytes, how));
    status = tdm__segments_make(&memory->segments, size_bytes, segment_out);
    if (status != TDM_OK) {
        quota_give_idle(memory, capacity_bytes);
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
        quota_give_idle(memory,
                        tdm__segments_trim(segments, segments->idle_bytes - IDLE_BYTES_MAX));
    }
}

void tdm__memory_quota_free_segment(struct tdm__object_memory *memory, struct tdm__segment *segment)
{
    size_t capacity_bytes = segment->capacity_bytes;

    tdm__segments_free(&memory->segments, segment);
    quota_give_idle(memory, capacity_bytes);
}

/* ---- reading back ----------------------------------------------------------------------- */

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
