/* caller.c - those who call this actor, and the answers they may not have got. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/caller.h"

#include "actors/call.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>
#include <string.h>

/* Who sends nothing for so long, and has an answer in flight, will not ask for it again. */
enum { SILENCE_MS = 5 * 60 * 1000, SWEEP_EVERY_MS = 60 * 1000 };

void tdm__callers_init(struct tdm__callers *callers)
{
    *callers = (struct tdm__callers){.swept_ms = tdm__clock_ms()};
}

static void drop_first_answer(struct tdm__callers *callers, struct tdm__caller *caller)
{
    struct tdm__kept_answer *kept = TAILQ_FIRST(&caller->answers);

    if (caller->answered_again == kept) {
        caller->answered_again = NULL;
    }
    TAILQ_REMOVE(&caller->answers, kept, link);
    caller->answers_count--;
    callers->answers_bytes -= kept->size_bytes;
    tdm__kept_answer_destroy(kept);
}

static void caller_destroy(struct tdm__callers *callers, struct tdm__caller *caller)
{
    TDM_ASSERT(caller->calls_count == 0 && TAILQ_EMPTY(&caller->held));
    while (!TAILQ_EMPTY(&caller->answers)) {
        drop_first_answer(callers, caller);
    }
    if (callers->last == caller) {
        callers->last = NULL;
    }
    free(caller);
}

void tdm__callers_fini(struct tdm__callers *callers)
{
    for (uint32_t i = 0; i < TDM__CALLER_BUCKETS; i++) {
        while (callers->buckets[i] != NULL) {
            struct tdm__caller *caller = callers->buckets[i];

            callers->buckets[i] = caller->next;
            caller_destroy(callers, caller);
        }
    }
}

/* ---- finding ---------------------------------------------------------------------------- */

/* A driver learns its node late; its id is random, and enough. */
static const struct tdm__id *node_of(const struct tdm__identity *peer)
{
    static const struct tdm__id none;

    return peer->kind == TDM__PEER_WORKER ? &peer->node : &none;
}

static bool caller_is(const struct tdm__caller *caller, const struct tdm__identity *peer)
{
    return caller->pid == peer->pid && tdm__id_equal(&caller->id, &peer->id) &&
           tdm__id_equal(&caller->node, node_of(peer));
}

static struct tdm__caller **bucket_of(struct tdm__callers *callers,
                                      const struct tdm__identity *peer)
{
    return &callers->buckets[peer->id.bytes[0] % TDM__CALLER_BUCKETS];
}

static bool may_be_forgotten(struct tdm__caller *caller, int64_t now_ms)
{
    if (caller->heard || caller->calls_count > 0) {
        caller->heard = false;
        caller->silent_since_ms = now_ms;
        return false;
    }
    return now_ms - caller->silent_since_ms >= SILENCE_MS;
}

static void sweep(struct tdm__callers *callers)
{
    int64_t now_ms = tdm__clock_ms();

    if (now_ms - callers->swept_ms < SWEEP_EVERY_MS) {
        return;
    }
    callers->swept_ms = now_ms;
    for (uint32_t i = 0; i < TDM__CALLER_BUCKETS; i++) {
        struct tdm__caller **at = &callers->buckets[i];

        while (*at != NULL) {
            struct tdm__caller *caller = *at;

            if (may_be_forgotten(caller, now_ms)) {
                *at = caller->next;
                caller_destroy(callers, caller);
            } else {
                at = &caller->next;
            }
        }
    }
}

static tdm_status caller_add(struct tdm__callers *callers, const struct tdm__identity *peer,
                             struct tdm__caller **caller_out)
{
    struct tdm__caller **bucket = bucket_of(callers, peer);
    struct tdm__caller *caller = calloc(1, sizeof(*caller));

    if (caller == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a record of the caller %s", peer->name);
    }
    caller->id = peer->id;
    caller->node = *node_of(peer);
    caller->pid = peer->pid;
    TAILQ_INIT(&caller->answers);
    TAILQ_INIT(&caller->held);
    caller->next = *bucket;
    *bucket = caller;
    *caller_out = caller;
    return TDM_OK;
}

tdm_status tdm__caller_find(struct tdm__callers *callers, const struct tdm__identity *peer,
                            struct tdm__caller **caller_out)
{
    struct tdm__caller *caller = callers->last;

    if (caller == NULL || !caller_is(caller, peer)) {
        caller = *bucket_of(callers, peer);
        while (caller != NULL && !caller_is(caller, peer)) {
            caller = caller->next;
        }
    }
    if (caller == NULL) {
        sweep(callers);
        TDM_TRY(caller_add(callers, peer, &caller));
    }
    caller->heard = true;
    callers->last = caller;
    *caller_out = caller;
    return TDM_OK;
}

/* From `call` on. */
static tdm_call *find_from(tdm_call *call, const struct tdm__caller *caller, uint64_t sequence)
{
    while (call != NULL &&
           (call->caller != caller || call->sequence != sequence || call->incoming == NULL)) {
        call = TAILQ_NEXT(call, all_link);
    }
    return call;
}

tdm_call *tdm__caller_find_call(struct tdm__caller *caller, tdm_call *first, uint64_t sequence)
{
    tdm_call *call = find_from(caller->taken_up, caller, sequence);

    if (call == NULL) {
        call = find_from(first, caller, sequence);
    }
    if (call != NULL) {
        caller->taken_up = call;
    }
    return call;
}

/* ---- answers ---------------------------------------------------------------------------- */

void tdm__caller_acknowledge(struct tdm__callers *callers, struct tdm__caller *caller,
                             uint64_t sequence)
{
    if (sequence <= caller->acknowledged) {
        return;
    }
    caller->acknowledged = sequence;
    while (!TAILQ_EMPTY(&caller->answers) &&
           TAILQ_FIRST(&caller->answers)->sequence <= sequence) {
        drop_first_answer(callers, caller);
    }
}

tdm_status tdm__caller_has_room(const struct tdm__callers *callers,
                                const struct tdm__caller *caller)
{
    if (caller->answers_count + caller->calls_count >= TDM__CALLER_ANSWERS_MAX) {
        return tdm__fail(TDM_E_AGAIN,
                         "%u answers to this caller wait for its acknowledgement: take results "
                         "before you call on",
                         caller->answers_count);
    }
    if (callers->answers_bytes >= TDM__CALLERS_BYTES_MAX) {
        return tdm__fail(TDM_E_AGAIN, "%zu bytes of answers wait to be acknowledged, %zu may",
                         callers->answers_bytes, TDM__CALLERS_BYTES_MAX);
    }
    return TDM_OK;
}

const struct tdm__answer *tdm__caller_answer(struct tdm__caller *caller, uint64_t sequence)
{
    struct tdm__kept_answer *kept = caller->answered_again;

    if (kept == NULL || kept->sequence > sequence) {
        kept = TAILQ_FIRST(&caller->answers);
    }
    while (kept != NULL && kept->sequence < sequence) {
        kept = TAILQ_NEXT(kept, link);
    }
    if (kept == NULL || kept->sequence != sequence) {
        return NULL;
    }
    caller->answered_again = kept;
    return &kept->answer;
}

tdm_status tdm__caller_may_run(const struct tdm__caller *caller, uint64_t sequence)
{
    if (sequence <= caller->acknowledged) {
        return tdm__fail(TDM_E_PROTOCOL, "call %llu comes again, its answer was acknowledged",
                         (unsigned long long)sequence);
    }
    if (sequence <= caller->lost) {
        return tdm__fail(TDM_E_NOMEM, "call %llu has run; its answer could not be kept",
                         (unsigned long long)sequence);
    }
    return TDM_OK;
}

/* Answers come nearly in order: the place is at the end or close to it. */
static void insert(struct tdm__caller *caller, struct tdm__kept_answer *kept)
{
    struct tdm__kept_answer *before = TAILQ_LAST(&caller->answers, tdm__kept_answers);

    while (before != NULL && before->sequence > kept->sequence) {
        before = TAILQ_PREV(before, tdm__kept_answers, link);
    }
    if (before == NULL) {
        TAILQ_INSERT_HEAD(&caller->answers, kept, link);
    } else {
        TAILQ_INSERT_AFTER(&caller->answers, before, kept, link);
    }
}

void tdm__caller_keep(struct tdm__callers *callers, struct tdm__caller *caller,
                      uint64_t sequence, const struct tdm__answer *answer)
{
    struct tdm__kept_answer *kept;

    if (sequence <= caller->acknowledged) {
        return; /* nobody will ask */
    }
    if (tdm__answer_keep(answer, &kept) != TDM_OK) {
        tdm__log(TDM__WARN, "actor", "call %llu: %s", (unsigned long long)sequence,
                 tdm_error_detail());
        caller->lost = sequence > caller->lost ? sequence : caller->lost;
        return;
    }
    kept->sequence = sequence;
    insert(caller, kept);
    caller->answers_count++;
    callers->answers_bytes += kept->size_bytes;
}
