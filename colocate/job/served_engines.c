/* served_engines.c - the engines that the gather group of a trainer rank serves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/served_engines.h"

#include "colocate/job/gather_groups.h"

#include <stdio.h>
#include <stdlib.h>

void tdm__first_failure_note(struct tdm__first_failure *failure, tdm_status status)
{
    if (failure->status == TDM_OK && status != TDM_OK) {
        failure->status = status;
        (void)snprintf(failure->detail, sizeof(failure->detail), "%s", tdm_error_detail());
    }
}

tdm_status tdm__first_failure_return(const struct tdm__first_failure *failure)
{
    return failure->status == TDM_OK ? TDM_OK : tdm__fail(failure->status, "%s", failure->detail);
}

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

tdm_status tdm__served_engines_begin_update(struct tdm__served_engines *engines,
                                            const struct tdm__message_list *numbers, uint32_t group,
                                            uint32_t groups_count)
{
    for (uint32_t i = 0; i < engines->count; i++) {
        engines->items[i].takes_part = false;
    }
    for (uint32_t i = 0; i < numbers->count; i++) {
        struct tdm__served_engine *engine;
        uint32_t number;

        tdm__message_list_read(numbers, i, &number, sizeof(number));
        if (tdm__gather_group_of_engine(number, groups_count) == group) {
            TDM_TRY(tdm__served_engines_find(engines, number, &engine));
            engine->takes_part = true;
        }
    }
    for (uint32_t i = 0; i < engines->count; i++) {
        if (!engines->items[i].takes_part) {
            tdm__transfer_pair_close(&engines->items[i].pair);
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
        tdm__transfer_pair_close(&engines->items[i].pair);
    }
    free(engines->items);
    *engines = (struct tdm__served_engines){.items = NULL};
}
