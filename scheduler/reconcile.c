/* reconcile.c - which claims win after the store has lost changes: pure functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reconcile.h"

bool tdm__record_is_confirmed(const struct tdm__store_view *view, uint64_t version)
{
    return version > view->generation;
}

enum tdm__actor_decision tdm__reconcile_actor(const struct tdm__actor_record *running,
                                              const struct tdm__actor_record *stored,
                                              bool is_confirmed)
{
    if (stored == NULL || !is_confirmed) {
        return TDM__ACTOR_WRITE_RECORD;
    }
    if (tdm__id_equal(&stored->node, &running->node)) {
        return stored->placements < running->placements ? TDM__ACTOR_WRITE_RECORD
                                                        : TDM__ACTOR_KEEP_RECORD;
    }
    return stored->placements < running->placements ? TDM__ACTOR_WRITE_RECORD : TDM__ACTOR_GIVE_UP;
}

enum tdm__absent_decision tdm__reconcile_absent(bool is_confirmed, bool fits)
{
    return is_confirmed && fits ? TDM__ABSENT_EXPECT : TDM__ABSENT_DELETE;
}

enum tdm__name_decision tdm__reconcile_name(const struct tdm__actor_record *running,
                                            const struct tdm__actor_record *holder,
                                            bool is_confirmed, bool holders_wait)
{
    if (holder == NULL || tdm__id_equal(&holder->actor, &running->actor)) {
        return TDM__NAME_WRITE;
    }
    if (!is_confirmed) {
        return holders_wait ? TDM__NAME_WAIT : TDM__NAME_WRITE;
    }
    return running->granted < holder->granted ? TDM__NAME_WRITE : TDM__NAME_TAKEN;
}

bool tdm__nodes_have_settled(const struct tdm__id *known, uint32_t known_count,
                             const struct tdm__node_resources *resources, uint32_t resources_count,
                             uint64_t generation, bool with_names)
{
    for (uint32_t i = 0; i < known_count; i++) {
        bool has_settled = false;

        for (uint32_t k = 0; k < resources_count; k++) {
            uint64_t settled = with_names ? resources[k].names_generation : resources[k].generation;

            has_settled = has_settled ||
                          (tdm__id_equal(&resources[k].id, &known[i]) && settled >= generation);
        }
        if (!has_settled) {
            return false;
        }
    }
    return true;
}
