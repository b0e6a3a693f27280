/* served_engines.c - the engines that the gather group of a trainer rank serves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/served_engines.h"

#include "runtime/error.h"

#include <stdlib.h>

/* Returns the engine of this number; NULL if it is not there. */
static struct tdm__served_engine *find_known(const struct tdm__served_engines *engines,
                                             uint32_t number)
{
    for (uint32_t i = 0; i < engines->count; i++) {
        if (engines->items[i].number == number) {
            return &engines->items[i];
        }
    }
    return NULL;
}

tdm_status tdm__served_engines_find(struct tdm__served_engines *engines, uint32_t number,
                                    struct tdm__served_engine **engine_out)
{
    struct tdm__served_engine *items;

    *engine_out = find_known(engines, number);
    if (*engine_out != NULL) {
        return TDM_OK;
    }
    items = realloc(engines->items, (engines->count + 1) * sizeof(*items));
    if (items == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u engines of a gather group", engines->count + 1);
    }
    engines->items = items;
    *engine_out = &items[engines->count++];
    **engine_out = (struct tdm__served_engine){.number = number};
    return TDM_OK;
}

struct tdm__transfer_pair *tdm__served_engine_pair(const struct tdm__served_engine *engine,
                                                   uint32_t engine_rank)
{
    for (uint32_t i = 0; i < engine->ranks_count; i++) {
        if (engine->ranks[i].number == engine_rank && engine->ranks[i].pair.group != NULL) {
            return &engine->ranks[i].pair;
        }
    }
    return NULL;
}

tdm_status tdm__served_engine_add_pair(struct tdm__served_engine *engine, uint32_t engine_rank,
                                       struct tdm__transfer_pair **pair_out)
{
    struct tdm__served_rank *ranks;

    for (uint32_t i = 0; i < engine->ranks_count; i++) {
        if (engine->ranks[i].number == engine_rank) {
            *pair_out = &engine->ranks[i].pair;
            return TDM_OK;
        }
    }
    ranks = realloc(engine->ranks, (engine->ranks_count + 1) * sizeof(*ranks));
    if (ranks == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u ranks of an engine", engine->ranks_count + 1);
    }
    engine->ranks = ranks;
    *pair_out = &ranks[engine->ranks_count].pair;
    ranks[engine->ranks_count++] = (struct tdm__served_rank){.number = engine_rank};
    return TDM_OK;
}

/* Closes the connections to all ranks of an engine. */
static void close_pairs(struct tdm__served_engine *engine)
{
    for (uint32_t i = 0; i < engine->ranks_count; i++) {
        tdm__transfer_pair_close(&engine->ranks[i].pair);
    }
}

tdm_status tdm__served_engines_begin_update(struct tdm__served_engines *engines,
                                            const struct tdm__message_list *numbers,
                                            const struct tdm__gather_groups *groups,
                                            uint32_t trainer_rank)
{
    uint32_t group = tdm__gather_groups_of_trainer(groups, trainer_rank);

    for (uint32_t i = 0; i < engines->count; i++) {
        engines->items[i].takes_part = false;
    }
    for (uint32_t i = 0; i < numbers->count; i++) {
        struct tdm__served_engine *engine;
        uint32_t number;

        tdm__message_list_read(numbers, i, &number, sizeof(number));
        if (tdm__gather_groups_of_engine(groups, number) == group) {
            TDM_TRY(tdm__served_engines_find(engines, number, &engine));
            engine->takes_part = true;
        }
    }
    for (uint32_t i = 0; i < engines->count; i++) {
        if (!engines->items[i].takes_part) {
            close_pairs(&engines->items[i]);
        }
    }
    return TDM_OK;
}

bool tdm__served_engines_any(const struct tdm__served_engines *engines)
{
    for (uint32_t i = 0; i < engines->count; i++) {
        if (engines->items[i].takes_part) {
            return true;
        }
    }
    return false;
}

void tdm__served_engines_detach(struct tdm__served_engines *engines)
{
    for (uint32_t i = 0; i < engines->count; i++) {
        tdm_actor_destroy(engines->items[i].first_rank);
        engines->items[i].first_rank = NULL;
    }
}

void tdm__served_engines_fini(struct tdm__served_engines *engines)
{
    tdm__served_engines_detach(engines);
    for (uint32_t i = 0; i < engines->count; i++) {
        tdm_ref_release(engines->items[i].announced);
        close_pairs(&engines->items[i]);
        free(engines->items[i].ranks);
    }
    free(engines->items);
    *engines = (struct tdm__served_engines){.items = NULL};
}

tdm_status tdm__served_engine_called(const struct tdm__served_engine *engine, tdm_status status)
{
    return status == TDM_E_ACTOR_UNAVAILABLE
               ? tdm__fail(TDM_E_ABORTED, "trainers do not reach engine %u: %s", engine->number,
                           tdm_error_detail())
               : status;
}
