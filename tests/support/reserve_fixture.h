/* reserve_fixture.h - nodes in a memory store, and reservations that are waited for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_RESERVE_FIXTURE_H
#define TDM_TESTS_SUPPORT_RESERVE_FIXTURE_H

#include "scheduler/reserve.h"

enum { PLACES_MAX = 16 };

struct reserve_fixture {
    struct tdm__loop *loop;
    struct tdm__store *store;
    bool done;
    tdm_status status; /* of the last operation, with its words */
    char detail[512];
    struct tdm__actor_placement reserved; /* by the last reserve_fixture_take() that succeeded */
    struct tdm__id places[PLACES_MAX];    /* the node of each bundle of the last group, as far as
                                             there is room */
    uint32_t gpus[PLACES_MAX];            /* its first GPU */
    struct tdm__placement_group_record group; /* and all of it; owned */
};

/* Leases do not run out here, however slow the machine is: reserve_fixture_lose() ends them. */
int reserve_fixture_open(struct reserve_fixture *world);
void reserve_fixture_close(struct reserve_fixture *world);
/* A node with so many GPUs and eight CPUs; fails the test if it cannot join. */
struct tdm__id reserve_fixture_join(struct reserve_fixture *world, const char *name, double gpus);
void reserve_fixture_join_again(struct reserve_fixture *world, const struct tdm__id *id,
                                const char *name, double gpus, const struct tdm__grant *grants,
                                uint32_t grants_count);
void reserve_fixture_join_as(struct reserve_fixture *world, const struct tdm__node_record *record,
                             const struct tdm__node_resources *totals);
/* As when its lease runs out. */
void reserve_fixture_lose(struct reserve_fixture *world, const struct tdm__id *id);
/* The store says that all of the node is free, which is wrong if something is held. */
void reserve_fixture_empty(struct reserve_fixture *world, const struct tdm__id *id);
/* The store loses one record. */
void reserve_fixture_forget(struct reserve_fixture *world, const char *key);
tdm_status reserve_fixture_again(struct reserve_fixture *world,
                                 const struct tdm__actor_record *actor);
tdm_status reserve_fixture_take(struct reserve_fixture *world,
                                const struct tdm__actor_request *request);
tdm_status reserve_fixture_give_back(struct reserve_fixture *world,
                                     const struct tdm__actor_record *actor);
tdm_status reserve_fixture_group(struct reserve_fixture *world, const struct tdm__id *id,
                                 double gpus_each, uint32_t bundles_count,
                                 enum tdm_placement_strategy strategy);
/* The last group that reserve_fixture_group() made. */
tdm_status reserve_fixture_group_again(struct reserve_fixture *world, bool without_lost);
tdm_status reserve_fixture_group_by(struct reserve_fixture *world,
                                    const struct tdm__placement_group_request *request);
tdm_status reserve_fixture_find_group(struct reserve_fixture *world, const char *name_space,
                                      const char *name);
/* TDM_E_NOT_FOUND when there is none. */
tdm_status reserve_fixture_close_group(struct reserve_fixture *world, const struct tdm__id *id,
                                       const struct tdm__id *remover);
tdm_status reserve_fixture_ungroup(struct reserve_fixture *world, const struct tdm__id *id);

#endif
