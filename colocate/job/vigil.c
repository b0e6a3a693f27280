/* vigil.c - asks actors whether they are still there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/vigil.h"

#include "actors/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { ASK_EVERY_MS = 250, SETTLE_GRACE_MS = 1000, WHY_BYTES = 512 };

/* What is known of one actor; the last one is about the daemon itself. */
struct pulse {
    struct tdm__vigil *vigil;
    uint64_t question; /* under way; 0: none */
    int64_t asked_ms;
    char name[64];
    bool gone;
    char why[WHY_BYTES];
};

/* All of it changes with the loop's lock only. */
struct tdm__vigil {
    tdm_runtime *runtime; /* borrowed */
    int64_t stall_ms;
    int64_t next_ms;  /* not to be asked before */
    int64_t heard_ms; /* of the daemon, last */
    uint32_t count;
    uint32_t questions_count; /* under way */
    struct pulse pulses[];    /* count, and one of the daemon */
};

tdm_status tdm__vigil_create(tdm_runtime *runtime, uint32_t count, int64_t stall_ms,
                             struct tdm__vigil **watch_out)
{
    struct tdm__vigil *vigil =
        calloc(1, sizeof(*vigil) + ((size_t)count + 1) * sizeof(vigil->pulses[0]));

    if (vigil == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a vigil over %u actors", count);
    }
    vigil->runtime = runtime;
    vigil->stall_ms = stall_ms;
    vigil->count = count;
    for (uint32_t i = 0; i <= count; i++) {
        vigil->pulses[i].vigil = vigil;
    }
    *watch_out = vigil;
    return TDM_OK;
}

void tdm__vigil_destroy(struct tdm__vigil *vigil)
{
    if (vigil == NULL) {
        return;
    }
    for (uint32_t i = 0; i <= vigil->count; i++) {
        tdm__vigil_forget(vigil, i);
    }
    free(vigil);
}

void tdm__vigil_forget(struct tdm__vigil *vigil, uint32_t place)
{
    struct pulse *pulse = &vigil->pulses[place];
    TDM__LOCK(vigil->runtime);

    if (pulse->question != 0) {
        if (vigil->runtime->daemon != NULL) {
            tdm__conn_forget(vigil->runtime->daemon, pulse->question);
        }
        vigil->questions_count--;
    }
    *pulse = (struct pulse){.vigil = vigil};
}

/* ---- questions -------------------------------------------------------------------------- */

/* Since then, and lately: a daemon that stood still for a while has passed nothing on. */
static bool daemon_was_heard(const struct tdm__vigil *vigil, const struct pulse *pulse)
{
    int64_t lately_ms = tdm__clock_ms() - ASK_EVERY_MS - vigil->stall_ms / 4;

    return vigil->heard_ms >= pulse->asked_ms && vigil->heard_ms >= lately_ms;
}

static void on_answer(void *arg, struct tdm__reply *reply)
{
    struct pulse *pulse = arg;
    struct tdm__vigil *vigil = pulse->vigil;

    pulse->question = 0;
    vigil->questions_count--;
    if (reply->status == TDM_E_ACTOR_DIED || reply->status == TDM_E_NODE_LOST) {
        pulse->gone = true;
        (void)snprintf(pulse->why, sizeof(pulse->why), "%s", reply->detail);
    } else if (reply->status == TDM_E_TIMEOUT && daemon_was_heard(vigil, pulse)) {
        pulse->gone = true;
        (void)snprintf(pulse->why, sizeof(pulse->why), "actor %s has not answered for %lld ms",
                       pulse->name, (long long)vigil->stall_ms);
    }
    if (reply->status != TDM_E_TIMEOUT && reply->status != TDM_E_CLOSED) {
        vigil->heard_ms = tdm__clock_ms();
    }
}

static tdm_status send_question(struct tdm__vigil *vigil, uint32_t place, const char *method,
                                struct tdm_bytes packed)
{
    struct pulse *pulse = &vigil->pulses[place];
    struct tdm__request request = {
        .method = method, .packed = packed, .deadline_ms = tdm__deadline_in(vigil->stall_ms)};
    struct tdm__conn *daemon;

    if (pulse->gone || pulse->question != 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__runtime_daemon(vigil->runtime, &daemon));
    pulse->asked_ms = tdm__clock_ms();
    TDM_TRY(tdm__conn_call(daemon, &request, on_answer, pulse, &pulse->question));
    vigil->questions_count++;
    return TDM_OK;
}

static tdm_status ask_about(struct tdm__vigil *vigil, uint32_t place, tdm_actor *actor)
{
    struct tdm_actor_info info;
    struct tdm__id id;
    tdm_writer *writer;
    tdm_status status;

    tdm_actor_describe(actor, &info);
    (void)snprintf(vigil->pulses[place].name, sizeof(vigil->pulses[place].name), "%s",
                   info.name);
    TDM_TRY(tdm__id_parse(info.id, &id));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "b", (const void *)id.bytes, sizeof(id.bytes));
    if (status == TDM_OK) {
        status = send_question(vigil, place, "actor.fate", tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status ask_daemon(struct tdm__vigil *vigil)
{
    return send_question(vigil, vigil->count, "node.describe", (struct tdm_bytes){"\x90", 1});
}

static tdm_status ask_all(struct tdm__vigil *vigil, tdm_actor *const *actors)
{
    TDM__LOCK(vigil->runtime);

    vigil->next_ms = tdm__clock_ms() + ASK_EVERY_MS;
    TDM_TRY(send_question(vigil, vigil->count, "node.describe", (struct tdm_bytes){"\x90", 1}));
    for (uint32_t i = 0; i < vigil->count; i++) {
        if (actors[i] != NULL) {
            TDM_TRY(ask_about(vigil, i, actors[i]));
        }
    }
    return TDM_OK;
}

tdm_status tdm__vigil_ask(struct tdm__vigil *vigil, tdm_actor *const *actors)
{
    return tdm__clock_ms() < vigil->next_ms ? TDM_OK : ask_all(vigil, actors);
}

static bool all_answered(void *arg)
{
    const struct tdm__vigil *vigil = arg;

    return vigil->questions_count == 0;
}

static tdm_status await_answers(struct tdm__vigil *vigil)
{
    int64_t deadline_ms = tdm__deadline_in(vigil->stall_ms + SETTLE_GRACE_MS);
    tdm_status status;
    TDM__LOCK(vigil->runtime);

    while ((status = tdm__runtime_wait(vigil->runtime, all_answered, vigil, ASK_EVERY_MS)) ==
               TDM_E_TIMEOUT &&
           tdm__deadline_left(deadline_ms) > 0) {
        TDM_TRY(ask_daemon(vigil));
    }
    return status == TDM_E_TIMEOUT
               ? tdm__fail(TDM_E_TIMEOUT, "asking %u actors whether they live", vigil->count)
               : status;
}

/* An answer under way may be older than what the caller wants explained: two rounds. */
tdm_status tdm__vigil_settle(struct tdm__vigil *vigil, tdm_actor *const *actors)
{
    for (int round = 0; round < 2; round++) {
        TDM_TRY(ask_all(vigil, actors));
        TDM_TRY(await_answers(vigil));
    }
    return TDM_OK;
}

const char *tdm__vigil_gone(const struct tdm__vigil *vigil, uint32_t place)
{
    TDM__LOCK(vigil->runtime);

    return vigil->pulses[place].gone ? vigil->pulses[place].why : NULL;
}
