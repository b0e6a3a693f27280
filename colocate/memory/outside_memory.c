/* outside_memory.c - memory that a program allocates without Tandem, for the memory arbiter. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The declared bytes count in the arbiter from the grant on, before the program allocates, because
 * that may take longer than an unused grant lives. Afterwards the arbiter learns what the device
 * reports: the difference between its reports before and after the program's own work. What is left
 * of a pause stays counted, and the next resume requests only the rest.
 *
 * The functions keep no thread and no clock but that of the wait in end_pause(). region_api.c
 * connects them with the daemon and the device. */

#include "colocate/memory/outside_memory.h"

#include "colocate/memory/outside_slack.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Where outside memory is between two calls. */
enum outside_state {
    OUTSIDE_PAUSED,   /* The program has freed it, or has not allocated it yet. */
    OUTSIDE_RESUMING, /* The program allocates it. */
    OUTSIDE_RESIDENT, /* The program uses it. */
    OUTSIDE_PAUSING   /* The program frees it. */
};

/* Memory that a program allocates without Tandem. The program owns it. */
struct tdm_outside_memory {
    struct tdm__outside_callbacks callbacks; /* Arbiter and device. */
    char tag[TDM_REGION_TAG_BYTES_MAX];      /* Tag of the memory. */
    uint64_t size_bytes;                     /* Declared bytes. */
    enum tdm_region_policy policy;           /* Whether the program keeps the contents. */
    enum outside_state state;                /* Where the memory is. */
    uint64_t used_before_bytes;              /* Report of the device when the state began. */
    uint64_t reported_bytes;                 /* Bytes that the last resume took, as reported. */
    uint64_t left_bytes; /* Bytes that the last pause left, as counted by the arbiter. */
};

/* Converts bytes to MiB for messages. */
static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Fails unless the memory is in one of two states; `call` is the name of the function. */
static tdm_status check_state(const tdm_outside_memory *memory, enum outside_state wanted,
                              enum outside_state other, const char *call)
{
    static const char *const names[] = {"paused", "being resumed", "resident", "being paused"};

    if (memory->state == wanted || memory->state == other) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_STATE, "%s: the outside memory %s is %s", call, memory->tag,
                     names[memory->state]);
}

tdm_status tdm__outside_memory_create(const struct tdm__outside_callbacks *callbacks,
                                      const struct tdm_outside_memory_options *options,
                                      tdm_outside_memory **memory_out)
{
    size_t length = options->tag == NULL ? 0 : strlen(options->tag);
    tdm_outside_memory *memory;

    if (length == 0 || length >= TDM_REGION_TAG_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "the tag of outside memory has 1 to %d bytes, not %zu",
                         TDM_REGION_TAG_BYTES_MAX - 1, length);
    }
    if (options->size_bytes == 0 || options->size_bytes > (size_t)1 << 47) {
        return tdm__fail(TDM_E_INVAL, "outside memory %s of %zu bytes: it has 1 to %zu",
                         options->tag, options->size_bytes, (size_t)1 << 47);
    }
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return tdm__fail(TDM_E_NOMEM, "outside memory %s", options->tag);
    }
    memory->callbacks = *callbacks;
    memory->size_bytes = options->size_bytes;
    memory->policy = options->policy;
    (void)snprintf(memory->tag, sizeof(memory->tag), "%s", options->tag);
    *memory_out = memory;
    return TDM_OK;
}

/* Tells the arbiter what is in use. */
static tdm_status tell_usage(const tdm_outside_memory *memory, uint64_t declared_bytes,
                             uint64_t reported_bytes)
{
    return memory->callbacks.tell_usage(memory->callbacks.arg, memory->tag, declared_bytes,
                                        reported_bytes);
}

void tdm_outside_memory_destroy(tdm_outside_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    if ((memory->state != OUTSIDE_PAUSED || memory->left_bytes > 0) &&
        tell_usage(memory, 0, 0) != TDM_OK) {
        tdm__log(TDM__INFO, "region", "the end of outside memory %s is not told: %s", memory->tag,
                 tdm_error_detail());
    }
    free(memory);
}

/* Requests what the arbiter does not count yet, reads the report of the device, and lets the
 * arbiter count all of the memory. After a failure the grant expires. */
static tdm_status take_grant(tdm_outside_memory *memory, int64_t timeout_ms)
{
    const struct tdm__outside_callbacks *callbacks = &memory->callbacks;

    if (memory->left_bytes < memory->size_bytes) {
        TDM_TRY(callbacks->request(callbacks->arg, memory->tag,
                                   memory->size_bytes - memory->left_bytes, timeout_ms));
    }
    TDM_TRY(callbacks->read_used(callbacks->arg, &memory->used_before_bytes));
    return tell_usage(memory, memory->size_bytes, memory->size_bytes);
}

tdm_status tdm_outside_memory_begin_resume(tdm_outside_memory *memory, int64_t timeout_ms)
{
    TDM__REQUIRE(memory);

    TDM_TRY(check_state(memory, OUTSIDE_PAUSED, OUTSIDE_PAUSED, "begin_resume"));
    TDM_TRY(take_grant(memory, timeout_ms));
    memory->state = OUTSIDE_RESUMING;
    return TDM_OK;
}

/* Logs that the device reports other bytes than were declared. */
static void log_difference(const tdm_outside_memory *memory, uint64_t declared_bytes,
                           uint64_t reported_bytes, const char *what)
{
    uint64_t more = reported_bytes > declared_bytes ? reported_bytes - declared_bytes : 0;
    uint64_t less = declared_bytes > reported_bytes ? declared_bytes - reported_bytes : 0;

    if (more + less > tdm__outside_slack_bytes(declared_bytes)) {
        tdm__log(TDM__WARN, "region",
                 "%s %s: %.1f MiB are declared, and the device reports %.1f MiB", memory->tag, what,
                 mib(declared_bytes), mib(reported_bytes));
    }
}

/* Returns true if the program keeps the contents of a pause in the memory that is the device's. */
static bool keeps_in_host_memory(const tdm_outside_memory *memory)
{
    return memory->callbacks.is_host_memory && memory->policy == TDM_REGION_KEEP;
}

/* Computes from a report of the device how many bytes a resume has taken. What the pause before has
 * left counts as used again, up to the declared bytes: it did not have to be taken. */
static uint64_t bytes_taken(const tdm_outside_memory *memory, uint64_t used_bytes)
{
    uint64_t before = memory->used_before_bytes;
    uint64_t taken = used_bytes > before ? used_bytes - before : 0;
    uint64_t with_left = taken + memory->left_bytes;

    if (with_left > memory->size_bytes || keeps_in_host_memory(memory)) {
        with_left = memory->size_bytes; /* Copies of the program may have become this memory. */
    }
    return taken > with_left ? taken : with_left;
}

tdm_status tdm_outside_memory_end_resume(tdm_outside_memory *memory, uint64_t *reported_bytes_out)
{
    TDM__REQUIRE(memory);

    uint64_t used_bytes = 0;

    TDM_TRY(check_state(memory, OUTSIDE_RESUMING, OUTSIDE_PAUSING, "end_resume"));
    if (memory->state == OUTSIDE_RESUMING) {
        TDM_TRY(memory->callbacks.read_used(memory->callbacks.arg, &used_bytes));
        memory->reported_bytes = bytes_taken(memory, used_bytes);
        log_difference(memory, memory->size_bytes, memory->reported_bytes, "after its resume");
    }
    TDM_TRY(tell_usage(memory, memory->size_bytes, memory->reported_bytes));
    memory->left_bytes = 0;
    memory->state = OUTSIDE_RESIDENT;
    if (reported_bytes_out != NULL) {
        *reported_bytes_out = memory->reported_bytes;
    }
    return TDM_OK;
}

tdm_status tdm_outside_memory_begin_pause(tdm_outside_memory *memory)
{
    TDM__REQUIRE(memory);

    TDM_TRY(check_state(memory, OUTSIDE_RESIDENT, OUTSIDE_RESIDENT, "begin_pause"));
    TDM_TRY(memory->callbacks.read_used(memory->callbacks.arg, &memory->used_before_bytes));
    memory->callbacks.announce(memory->callbacks.arg, memory->tag, memory->size_bytes);
    memory->state = OUTSIDE_PAUSING;
    return TDM_OK;
}

/* Computes from a report of the device how much of the memory is still in use. */
static uint64_t bytes_left(const tdm_outside_memory *memory, uint64_t used_bytes)
{
    uint64_t before = memory->used_before_bytes;
    uint64_t freed = before > used_bytes ? before - used_bytes : 0;

    if (keeps_in_host_memory(memory)) {
        return 0; /* The copies of the program take as much as they have freed. */
    }
    if (memory->state == OUTSIDE_RESUMING) {
        return memory->left_bytes + (used_bytes > before ? used_bytes - before : 0);
    }
    return memory->reported_bytes > freed ? memory->reported_bytes - freed : 0;
}

/* Waits until the device reports the memory free, or until the deadline. */
static tdm_status await_free(const tdm_outside_memory *memory, int64_t timeout_ms,
                             uint64_t *left_out)
{
    static const struct timespec nap = {.tv_nsec = 5000000};
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);

    for (;;) {
        uint64_t used_bytes = 0;

        TDM_TRY(memory->callbacks.read_used(memory->callbacks.arg, &used_bytes));
        *left_out = bytes_left(memory, used_bytes);
        if (*left_out <= tdm__outside_slack_bytes(memory->size_bytes)) {
            *left_out = 0;
            return TDM_OK;
        }
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return TDM_OK;
        }
        (void)nanosleep(&nap, NULL);
    }
}

tdm_status tdm_outside_memory_end_pause(tdm_outside_memory *memory, int64_t timeout_ms,
                                        uint64_t *left_bytes_out)
{
    TDM__REQUIRE(memory);

    uint64_t left_bytes = 0;

    TDM_TRY(check_state(memory, OUTSIDE_PAUSING, OUTSIDE_RESUMING, "end_pause"));
    TDM_TRY(await_free(memory, timeout_ms, &left_bytes));
    if (left_bytes > 0) {
        tdm__log(TDM__WARN, "region",
                 "%s after its pause: %.1f MiB were declared, and the device still reports "
                 "%.1f MiB",
                 memory->tag, mib(memory->size_bytes), mib(left_bytes));
    }
    TDM_TRY(tell_usage(memory, 0, left_bytes));
    memory->left_bytes = left_bytes;
    memory->state = OUTSIDE_PAUSED;
    if (left_bytes_out != NULL) {
        *left_bytes_out = left_bytes;
    }
    return TDM_OK;
}

int tdm_outside_memory_is_resident(const tdm_outside_memory *memory)
{
    TDM__REQUIRE_OR(memory, 0);

    return memory->state == OUTSIDE_RESIDENT;
}

const char *tdm__outside_memory_tag(const tdm_outside_memory *memory)
{
    return memory->tag;
}

uint64_t tdm__outside_memory_bytes(const tdm_outside_memory *memory)
{
    return memory->size_bytes;
}
