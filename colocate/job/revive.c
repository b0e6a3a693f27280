/* revive.c - an engine that was lost comes back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/revive.h"

#include "colocate/job/loss.h"
#include "colocate/job/weight_update.h"
#include "runtime/error.h"
#include "runtime/log.h"

enum { ATTEMPTS_MAX = 3 };

static const struct tdm_bytes no_arguments = {"\x90", 1};

static void tell(struct tdm__crew *crew, uint32_t engine, enum tdm__engine_news news)
{
    if (crew->on_news != NULL) {
        crew->on_news(crew->on_news_arg, engine, news, NULL);
    }
}

/* Its memory may still be held by those who mapped what the one before it had: to start takes
 * as long as that.  One trainer rank calls it by name. */
static tdm_status start(struct tdm__crew *crew, uint32_t engine)
{
    uint32_t first = engine * crew->per_engine;
    int64_t timeout_ms = (int64_t)crew->spec->update_timeout_ms;

    TDM_TRY(tdm__crew_call(crew, &crew->engines[first], crew->per_engine, "start", no_arguments,
                           timeout_ms));
    TDM_TRY(tdm__weight_update_connect_again(crew, engine));
    return tdm__crew_call(crew, &crew->trainers[first], 1, "forget_engine", no_arguments,
                          timeout_ms);
}

static tdm_status revive(struct tdm__crew *crew, uint32_t engine)
{
    tdm_status status;

    TDM_TRY(tdm__crew_create_engine(crew, engine));
    crew->about[engine].fresh = true;
    tell(crew, engine, TDM__ENGINE_LIVES);
    status = start(crew, engine);
    return status == TDM_OK ? TDM_OK : tdm__loss_give_up(crew, engine, status);
}

void tdm__revive_lost(struct tdm__crew *crew)
{
    for (uint32_t i = 0; i < crew->engines_count / crew->per_engine; i++) {
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
    for (uint32_t i = 0; crew->about != NULL && i < crew->engines_count / crew->per_engine;
         i++) {
        if (crew->engines[(size_t)i * crew->per_engine] != NULL && crew->about[i].fresh) {
            crew->about[i] = (struct tdm__crew_engine){.fresh = false};
            tell(crew, i, TDM__ENGINE_SERVES);
        }
    }
}
