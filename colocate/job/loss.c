/* loss.c - engines that die or fall silent, and the job that goes on without them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/loss.h"

#include "colocate/job/vigil.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>

enum { KILL_MS = 5000 };

/* Nobody takes a trainer's place.  Killed, so that whoever else waits for it need not. */
static tdm_status watch_trainers(struct tdm__crew *crew)
{
    if (crew->trainers_vigil == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__vigil_ask(crew->trainers_vigil, crew->trainers));
    for (uint32_t i = 0; i < crew->trainers_count; i++) {
        const char *why = tdm__vigil_gone(crew->trainers_vigil, i);

        if (why != NULL) {
            TDM_TRY(tdm_actor_kill(crew->trainers[i], KILL_MS));
            return tdm__fail(TDM_E_ACTOR_DIED, "%s", why);
        }
    }
    return TDM_OK;
}

tdm_status tdm__loss_watch(struct tdm__crew *crew)
{
    TDM_TRY(watch_trainers(crew));
    if (crew->vigil == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__vigil_ask(crew->vigil, crew->engines));
    for (uint32_t i = 0; i < crew->engines_count; i++) {
        if (crew->engines[i] != NULL && tdm__vigil_gone(crew->vigil, i) != NULL) {
            TDM_TRY(tdm_actor_kill(crew->engines[i], KILL_MS));
        }
    }
    return TDM_OK;
}

/* ---- an engine out of the crew ---------------------------------------------------------- */

static tdm_status add_dead(struct tdm__crew *crew, tdm_actor *actor)
{
    struct tdm__member *dead =
        realloc(crew->dead, (crew->dead_count + 1) * sizeof(crew->dead[0]));
    struct tdm_actor_info info;

    if (dead == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u dead members", crew->dead_count + 1);
    }
    crew->dead = dead;
    tdm_actor_describe(actor, &info);
    TDM_TRY(tdm__id_parse(info.id, &dead[crew->dead_count].actor));
    dead[crew->dead_count++].incarnation = 1;
    return TDM_OK;
}

/* Named dead only once killed. */
static tdm_status fence(struct tdm__crew *crew, uint32_t first)
{
    for (uint32_t i = first; i < first + crew->per_engine; i++) {
        TDM_TRY(tdm_actor_kill(crew->engines[i], KILL_MS));
        TDM_TRY(add_dead(crew, crew->engines[i]));
    }
    return TDM_OK;
}

static tdm_status lose(struct tdm__crew *crew, uint32_t engine, const char *why)
{
    uint32_t first = engine * crew->per_engine;
    char text[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(text, sizeof(text), "%s", why);
    TDM_TRY(fence(crew, first));
    for (uint32_t i = first; i < first + crew->per_engine; i++) {
        tdm_actor_destroy(crew->engines[i]);
        crew->engines[i] = NULL;
        tdm__vigil_forget(crew->vigil, i);
    }
    tdm__log(crew->on_news == NULL ? TDM__WARN : TDM__INFO, "job", "engine %u lost: %s", engine,
             text);
    if (crew->about != NULL) {
        crew->about[engine].fresh = false;
    }
    if (crew->on_news != NULL) {
        crew->on_news(crew->on_news_arg, engine, TDM__ENGINE_LOST, text);
    }
    return TDM_OK;
}

/* Of a rank that is gone; NULL if all answer, or have been lost before. */
static const char *why_gone(const struct tdm__crew *crew, uint32_t engine)
{
    const char *why = NULL;

    for (uint32_t i = engine * crew->per_engine;
         i < (engine + 1) * crew->per_engine && why == NULL; i++) {
        why = crew->engines[i] == NULL ? NULL : tdm__vigil_gone(crew->vigil, i);
    }
    return why;
}

tdm_status tdm__loss_find(struct tdm__crew *crew, uint32_t *lost_out)
{
    *lost_out = 0;
    if (crew->vigil == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__vigil_settle(crew->vigil, crew->engines));
    for (uint32_t i = 0; i < crew->engines_count / crew->per_engine; i++) {
        const char *why = why_gone(crew, i);

        if (why != NULL) {
            TDM_TRY(lose(crew, i, why));
            (*lost_out)++;
        }
    }
    return TDM_OK;
}

tdm_status tdm__loss_give_up(struct tdm__crew *crew, uint32_t engine, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    TDM_TRY(lose(crew, engine, detail));
    return tdm__fail(status, "%s", detail);
}

tdm_status tdm__loss_survive(struct tdm__crew *crew, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    uint32_t lost = 0;

    if (status == TDM_OK || status == TDM_E_CANCELED) {
        return status;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (tdm__loss_find(crew, &lost) == TDM_OK && lost > 0 &&
        tdm__crew_engines_left(crew) >= crew->spec->num_engines_min) {
        return TDM_OK;
    }
    return tdm__fail(status, "%s", detail);
}
