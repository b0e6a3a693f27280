/* reserve_fixture.h - nodes in a memory store, and reservations that the test waits for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_RESERVE_FIXTURE_H
#define TDM_TESTS_SUPPORT_RESERVE_FIXTURE_H

#include "scheduler/reserve.h"
#include "scheduler/reserve_reconcile.h"
#include "scheduler/reserve_restore.h"

enum { PLACES_MAX = 16 };

/* A store with nodes, and the result of the last operation. */
struct reserve_fixture {
    struct tdm__loop *loop;
    struct tdm__store *store;
    bool done;
    int64_t wait_ms;   /* Deadline of reservations in milliseconds from now; 0 for 30 s. */
    uint64_t version;  /* Version of the last commit. */
    tdm_status status; /* Status of the last operation; its detail is next. */
    char detail[512];
    /* Result of the last successful reserve_fixture_take(). */
    struct tdm__actor_placement reserved;
    /* Node of each bundle of the last group, at most PLACES_MAX. */
    struct tdm__id places[PLACES_MAX];
    uint32_t gpus[PLACES_MAX];                /* First GPU of each bundle. */
    struct tdm__placement_group_record group; /* The complete record of the last group (owned). */
    struct tdm__id stale[PLACES_MAX];         /* Stale groups of the last reconciliation. */
    uint32_t stale_count;
    /* Nodes that the last reserve_fixture_close_group() has named, at most PLACES_MAX. */
    struct tdm__id closed_on[PLACES_MAX];
    uint32_t closed_on_count;
    uint32_t removed_count; /* Number of placements that the last reconciliation removed. */
};

/* Opens the fixture. Leases do not end by themselves, however slow the machine is;
 * reserve_fixture_lose() ends them. */
int reserve_fixture_open(struct reserve_fixture *world);
void reserve_fixture_close(struct reserve_fixture *world);
/* Adds a node with `gpus` GPUs and eight CPUs. Fails the test if it cannot join. */
struct tdm__id reserve_fixture_join(struct reserve_fixture *world, const char *name, double gpus);
void reserve_fixture_join_again(struct reserve_fixture *world, const struct tdm__id *id,
                                const char *name, double gpus, const struct tdm__grant *grants,
                                uint32_t grants_count);
void reserve_fixture_join_as(struct reserve_fixture *world, const struct tdm__node_record *record,
                             const struct tdm__node_resources *totals);
/* Removes the node's records, as when its lease ends. */
void reserve_fixture_lose(struct reserve_fixture *world, const struct tdm__id *id);
/* The same, but the node joins again between the next read and the commit that follows from it. */
void reserve_fixture_lose_until_commit(struct reserve_fixture *world, const struct tdm__id *id);
/* Lets another server take over the store with all data, so that no absent record counts as the
 * loss of a node. The node `id` renews its lease. */
void reserve_fixture_replace_store(struct reserve_fixture *world, const struct tdm__id *id);
/* Writes into the store that all resources of the node are free. */
void reserve_fixture_empty(struct reserve_fixture *world, const struct tdm__id *id);
/* Removes one record from the store. */
void reserve_fixture_forget(struct reserve_fixture *world, const char *key);
tdm_status reserve_fixture_again(struct reserve_fixture *world,
                                 const struct tdm__actor_record *actor);
/* As reserve_fixture_again(), in the generation of the store that `view` describes. */
tdm_status reserve_fixture_again_in(struct reserve_fixture *world,
                                    const struct tdm__actor_record *actor,
                                    const struct tdm__store_view *view);
/* Writes what a node holds into the store. Groups that the node does not know are left in `stale`.
 */
tdm_status reserve_fixture_reconcile(struct reserve_fixture *world,
                                     const struct tdm__node_holdings *holdings,
                                     const struct tdm__store_view *view);
/* Returns the generation in which the node has settled, according to its record free/ID. */
uint64_t reserve_fixture_generation(struct reserve_fixture *world, const struct tdm__id *node);
/* Returns a version that is higher than the version of every record. It is the store's generation
 * if the store loses changes now. */
uint64_t reserve_fixture_new_generation(struct reserve_fixture *world);
tdm_status reserve_fixture_settle(struct reserve_fixture *world, const struct tdm__id *node,
                                  uint64_t generation, bool with_names);
/* Returns a request for a new actor with `gpus` GPUs and a name, whose key is `name`; "" for none.
 */
struct tdm__actor_request reserve_fixture_wish(double gpus, const char *name);
tdm_status reserve_fixture_take(struct reserve_fixture *world,
                                const struct tdm__actor_request *request);
/* Returns the record of the actor that reserve_fixture_take() has placed last, by `request`, as its
 * daemon keeps it. */
struct tdm__actor_record reserve_fixture_record(const struct reserve_fixture *world,
                                                const struct tdm__actor_request *request);
tdm_status reserve_fixture_give_back(struct reserve_fixture *world,
                                     const struct tdm__actor_record *actor);
tdm_status reserve_fixture_group(struct reserve_fixture *world, const struct tdm__id *id,
                                 double gpus_each, uint32_t bundles_count,
                                 enum tdm_placement_strategy strategy);
/* Reserves the last group of reserve_fixture_group() again. */
tdm_status reserve_fixture_group_again(struct reserve_fixture *world, bool without_lost);
/* As reserve_fixture_group_again(), in the generation of the store that `view` describes. */
tdm_status reserve_fixture_group_again_in(struct reserve_fixture *world, bool without_lost,
                                          const struct tdm__store_view *view);
tdm_status reserve_fixture_group_by(struct reserve_fixture *world,
                                    const struct tdm__placement_group_request *request);
tdm_status reserve_fixture_find_group(struct reserve_fixture *world, const char *name_space,
                                      const char *name);
/* Closes a group's record; TDM_E_NOT_FOUND if there is no such group. */
tdm_status reserve_fixture_close_group(struct reserve_fixture *world, const struct tdm__id *id,
                                       const struct tdm__id *remover);
tdm_status reserve_fixture_ungroup(struct reserve_fixture *world, const struct tdm__id *id);

#endif
