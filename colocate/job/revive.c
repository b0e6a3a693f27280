/* revive.c - an engine that was lost comes back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/revive.h"

#include "colocate/job/loss.h"
#include "colocate/job/weight_update.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS_MAX = 3 };

static const struct tdm_bytes no_arguments = {"\x90", 1};

static void tell(struct tdm__crew *crew, uint32_t engine, enum tdm__engine_news news)
{
    if (crew->on_news != NULL) {
        crew->on_news(crew->on_news_arg, engine, news, NULL);
    }
}

static void serve(struct tdm__crew *crew, uint32_t engine)
{
    crew->about[engine].fresh = false;
    tell(crew, engine, TDM__ENGINE_SERVES);
}

/* Its memory may still be held by those who mapped what the one before it had: to start takes
 * as long as that.  Trainer ranks call it by name. */
static tdm_status start(struct tdm__crew *crew, uint32_t engine)
{
    uint32_t first = engine * crew->per_engine;
    int64_t timeout_ms = (int64_t)crew->spec->update_timeout_ms;

    TDM_TRY(tdm__crew_call(crew, &crew->engines[first], crew->per_engine, "start", no_arguments,
                           timeout_ms));
    TDM_TRY(tdm__weight_update_connect_again(crew, engine));
    return tdm__crew_call(crew, &crew->trainers[first], crew->per_engine, "forget_engine",
                          no_arguments, timeout_ms);
}

/* ---- without waiting for an update ------------------------------------------------------ */

/* What an engine's ranks answer, one after the other, to the same rank of another. */
static tdm_status pass_on(struct tdm__crew *crew, tdm_ref **shown, tdm_actor *const *to,
                          tdm_ref **joined)
{
    int64_t timeout_ms = (int64_t)crew->spec->update_timeout_ms;

    TDM_TRY(tdm__crew_await(crew, shown, crew->per_engine, timeout_ms));
    for (uint32_t i = 0; i < crew->per_engine; i++) {
        const tdm_value *value;
        tdm_writer *writer;
        tdm_status status;

        TDM_TRY(tdm_get_value(shown[i], 0, &value));
        TDM_TRY(tdm_writer_create(&writer));
        tdm_write_value(writer, value);
        status = tdm_writer_status(writer);
        if (status == TDM_OK) {
            status = tdm_actor_call_packed(to[i], "join", tdm_writer_bytes(writer), &joined[i]);
        }
        tdm_writer_destroy(writer);
        TDM_TRY(status);
    }
    return tdm__crew_await(crew, joined, crew->per_engine, timeout_ms);
}

static tdm_status join(struct tdm__crew *crew, uint32_t peer, uint32_t engine)
{
    tdm_actor *const *from = &crew->engines[(size_t)peer * crew->per_engine];
    tdm_ref **refs = calloc((size_t)2 * crew->per_engine, sizeof(*refs));
    tdm_status status = refs == NULL ? tdm__fail(TDM_E_NOMEM, "calls to a peer") : TDM_OK;

    for (uint32_t i = 0; i < crew->per_engine && status == TDM_OK; i++) {
        status = tdm_actor_call_packed(from[i], "show", no_arguments, &refs[i]);
    }
    if (status == TDM_OK) {
        status = pass_on(crew, refs, &crew->engines[(size_t)engine * crew->per_engine],
                         refs + crew->per_engine);
    }
    if (refs != NULL) {
        tdm__crew_release(refs, 2 * crew->per_engine);
        free(refs);
    }
    return status;
}

/* What serving needs besides the weights. */
static tdm_status resume(struct tdm__crew *crew, uint32_t engine)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "s", NULL);
    if (status == TDM_OK) {
        status = tdm__crew_call(crew, &crew->engines[(size_t)engine * crew->per_engine],
                                crew->per_engine, "resume", tdm_writer_bytes(writer),
                                (int64_t)crew->spec->update_timeout_ms);
    }
    tdm_writer_destroy(writer);
    return status;
}

static bool same_layouts(const struct tdm__crew *crew, uint32_t one, uint32_t other)
{
    return crew->by_parts && memcmp(&crew->layouts[(size_t)one * crew->per_engine],
                                    &crew->layouts[(size_t)other * crew->per_engine],
                                    crew->per_engine * sizeof(crew->layouts[0])) == 0;
}

/* Where it fails, the next update does the same.  A rank that died shows by then. */
static void join_a_peer(struct tdm__crew *crew, uint32_t engine)
{
    tdm_status status = TDM_E_NOT_FOUND;

    for (uint32_t i = 0; i < crew->spec->num_engines && status != TDM_OK; i++) {
        if (!tdm__crew_serves(crew, i) || !same_layouts(crew, i, engine)) {
            continue;
        }
        status = join(crew, i, engine);
        if (status == TDM_OK) {
            status = resume(crew, engine);
        }
        if (status == TDM_OK) {
            serve(crew, engine);
        } else {
            tdm__log(TDM__INFO, "job", "engine %u does not join with engine %u's weights: %s",
                     engine, i, tdm_error_detail());
        }
    }
}

/* ---- the whole -------------------------------------------------------------------------- */

static tdm_status revive(struct tdm__crew *crew, uint32_t engine)
{
    tdm_status status;

    TDM_TRY(tdm__crew_create_engine(crew, engine));
    crew->about[engine].fresh = true;
    tell(crew, engine, TDM__ENGINE_LIVES);
    status = start(crew, engine);
    if (status != TDM_OK) {
        return tdm__loss_give_up(crew, engine, status);
    }
    join_a_peer(crew, engine);
    return TDM_OK;
}

void tdm__revive_lost(struct tdm__crew *crew)
{
    for (uint32_t i = 0; i < crew->spec->num_engines; i++) {
        if (crew->engines[(size_t)i * crew->per_engine] != NULL ||
            crew->about[i].attempts == ATTEMPTS_MAX) {
            continue;
        }
        crew->about[i].attempts++;
        if (revive(crew, i) != TDM_OK) {
            tdm__log(TDM__WARN, "job", "engine %u is not back, attempt %u of %d: %s", i,
                     crew->about[i].attempts, ATTEMPTS_MAX, tdm_error_detail());
        }
    }
}

void tdm__revive_welcome(struct tdm__crew *crew)
{
    for (uint32_t i = 0; crew->about != NULL && i < crew->spec->num_engines; i++) {
        if (crew->engines[(size_t)i * crew->per_engine] != NULL && crew->about[i].fresh) {
            serve(crew, i);
        }
    }
}

void tdm__revive_trust(struct tdm__crew *crew)
{
    for (uint32_t i = 0; crew->about != NULL && i < crew->spec->num_engines; i++) {
        if (tdm__crew_serves(crew, i)) {
            crew->about[i].attempts = 0;
        }
    }
}
