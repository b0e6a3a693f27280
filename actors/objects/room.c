/* room.c - room for large values: the limit of the node, and who makes way. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/memory.h"
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
static struct tdm__account *account_of(struct tdm__memory *memory)
{
    if (!memory->has_sought_account && memory->runtime != NULL &&
        memory->runtime->directory[0] != '\0') {
        memory->has_sought_account = true;
        if (tdm__account_open(memory->runtime->directory, &memory->account) != TDM_OK) {
            memory->account = NULL;
            tdm__log(TDM__WARN, "objects", "large values are not limited: %s",
                     tdm_error_detail());
        }
    }
    return memory->account;
}

static void give(struct tdm__memory *memory, uint64_t bytes)
{
    if (memory->account != NULL && bytes > 0) {
        tdm__account_give(memory->account, bytes);
    }
}

/* ---- making way ------------------------------------------------------------------------- */

static bool may_be_spilled(const struct tdm__large *large)
{
    return large->segment != NULL && large->rests && large->owners_count == 1;
}

static tdm_status spill(struct tdm__memory *memory, struct tdm__large *large)
{
    const struct tdm_bytes bytes = {large->segment->address, large->size_bytes};

    TDM_TRY(tdm__spill_write(memory->runtime->directory, bytes, &large->spilled));
    tdm__room_drop(memory, large->segment);
    large->segment = NULL;
    memory->spilled_bytes += large->size_bytes;
    tdm__account_spilled(memory->account, (int64_t)large->size_bytes);
    return TDM_OK;
}

/* Idle segments go first, then values to the disk, by oldest use, until so many bytes are free
 * or nothing is left to give. */
static tdm_status make_way(struct tdm__memory *memory, uint64_t bytes)
{
    uint64_t gone_bytes = tdm__segments_trim(&memory->segments, bytes);
    struct tdm__large *next;

    give(memory, gone_bytes);
    for (struct tdm__large *large = TAILQ_FIRST(&memory->values);
         large != NULL && gone_bytes < bytes; large = next) {
        next = TAILQ_NEXT(large, link);
        if (may_be_spilled(large)) {
            size_t capacity_bytes = large->segment->capacity_bytes;

            TDM_TRY(spill(memory, large));
            gone_bytes += capacity_bytes;
        }
    }
    return TDM_OK;
}

static void on_pressure_time(void *arg)
{
    struct tdm__memory *memory = arg;
    uint64_t wanted_bytes = tdm__account_pressed(memory->account);

    memory->watches_pressure = false;
    if (wanted_bytes > 0) {
        (void)tdm__views_trim(&memory->views); /* they keep segments of others in memory */
        if (make_way(memory, tdm__account_missing(memory->account, wanted_bytes)) != TDM_OK) {
            tdm__log(TDM__WARN, "objects", "making room for another process: %s",
                     tdm_error_detail());
        }
    }
    if (memory->segments.used_bytes + memory->segments.idle_bytes + memory->views.unused_bytes >
        0) {
        tdm__room_watch(memory);
    }
}

void tdm__room_watch(struct tdm__memory *memory)
{
    if (memory->watches_pressure || account_of(memory) == NULL) {
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

static tdm_status no_room(const struct tdm__memory *memory, uint64_t bytes)
{
    struct tdm__account_sums sums;

    tdm__account_read(memory->account, &sums);
    return tdm__fail(TDM_E_LIMIT,
                     "a value of %llu bytes: the node's object store holds %llu of %llu bytes "
                     "(and %llu on disk) and the rest is being read; release references, or "
                     "start the node with a larger --object-store-bytes",
                     (unsigned long long)bytes, (unsigned long long)sums.used_bytes,
                     (unsigned long long)sums.limit_bytes,
                     (unsigned long long)sums.spilled_bytes);
}

/* By this process alone. */
static tdm_status take_now(struct tdm__memory *memory, uint64_t bytes, bool *taken_out)
{
    struct tdm__account *account = memory->account;

    *taken_out = tdm__account_take(account, bytes);
    if (!*taken_out) {
        TDM_TRY(make_way(memory, tdm__account_missing(account, bytes)));
        *taken_out = tdm__account_take(account, bytes);
    }
    return TDM_OK;
}

static tdm_status take_with_others(struct tdm__memory *memory, uint64_t bytes)
{
    int64_t deadline_ms = tdm__clock_ms() + WAIT_MS;
    bool taken = false;

    while (!taken) {
        tdm__account_press(memory->account, bytes);
        (void)tdm__loop_run(memory->runtime->loop, NULL, NULL, tdm__clock_ms() + LOOK_AGAIN_MS);
        TDM_TRY(take_now(memory, bytes, &taken));
        if (!taken && tdm__clock_ms() >= deadline_ms) {
            return no_room(memory, bytes);
        }
    }
    return TDM_OK;
}

static tdm_status take_bytes(struct tdm__memory *memory, uint64_t bytes, enum tdm__room how)
{
    struct tdm__account *account = account_of(memory);
    struct tdm__account_sums sums;
    tdm_status status;
    bool taken;

    if (account == NULL) {
        return TDM_OK;
    }
    status = take_now(memory, bytes, &taken);
    if (status == TDM_OK && taken) {
        return TDM_OK;
    }
    if (how == TDM__ROOM_ANYWAY) {
        tdm__account_take_anyway(account, bytes);
        return TDM_OK;
    }
    TDM_TRY(status);
    tdm__account_read(account, &sums);
    return how == TDM__ROOM_WAIT && bytes <= sums.limit_bytes ? take_with_others(memory, bytes)
                                                              : no_room(memory, bytes);
}

tdm_status tdm__room_take(struct tdm__memory *memory, size_t size_bytes, enum tdm__room how,
                          struct tdm__segment **segment_out)
{
    size_t capacity_bytes = tdm__segment_capacity(size_bytes);
    tdm_status status;

    *segment_out = tdm__segments_reuse(&memory->segments, size_bytes);
    if (*segment_out != NULL) {
        return TDM_OK;
    }
    TDM_TRY(take_bytes(memory, capacity_bytes, how));
    status = tdm__segments_make(&memory->segments, size_bytes, segment_out);
    if (status != TDM_OK) {
        give(memory, capacity_bytes);
        return status;
    }
    tdm__room_watch(memory);
    return TDM_OK;
}

void tdm__room_give_back(struct tdm__memory *memory, struct tdm__segment *segment)
{
    struct tdm__segments *segments = &memory->segments;

    tdm__segments_give_back(segments, segment);
    if (segments->idle_bytes > IDLE_BYTES_MAX) {
        give(memory, tdm__segments_trim(segments, segments->idle_bytes - IDLE_BYTES_MAX));
    }
}

void tdm__room_drop(struct tdm__memory *memory, struct tdm__segment *segment)
{
    size_t capacity_bytes = segment->capacity_bytes;

    tdm__segments_drop(&memory->segments, segment);
    give(memory, capacity_bytes);
}

/* ---- reading back ----------------------------------------------------------------------- */

void tdm__spilled_forget(struct tdm__large *large)
{
    struct tdm__memory *memory = large->memory;

    (void)close(large->spilled);
    large->spilled = -1;
    memory->spilled_bytes -= large->size_bytes;
    if (memory->account != NULL) {
        tdm__account_spilled(memory->account, -(int64_t)large->size_bytes);
    }
}

tdm_status tdm__large_load(struct tdm__large *large)
{
    struct tdm__memory *memory = large->memory;
    struct tdm__segment *segment;
    tdm_status status;

    TAILQ_REMOVE(&memory->values, large, link);
    TAILQ_INSERT_TAIL(&memory->values, large, link);
    if (large->segment != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__room_take(memory, large->size_bytes, TDM__ROOM_ANYWAY, &segment));
    status = tdm__spill_read(large->spilled, segment->address, large->size_bytes);
    if (status != TDM_OK) {
        tdm__room_drop(memory, segment);
        return status;
    }
    tdm__spilled_forget(large);
    large->segment = segment;
    return TDM_OK;
}

void tdm__room_close(struct tdm__memory *memory)
{
    tdm__timer_destroy(memory->pressure);
    memory->pressure = NULL;
    tdm__account_close(memory->account);
    memory->account = NULL;
}
