/* reconcile.h - which claims win after the store has lost changes: pure functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RECONCILE_H
#define TDM_SCHEDULER_RECONCILE_H

#include "scheduler/records.h"

/* The store has lost changes if its generation is new (runtime/store.h). Then a record that is
 * older than the generation may be wrong, until a daemon writes it again. Such a record is not
 * confirmed. A daemon knows best what runs on its own node. */

/* What a node knows of the store's generation. */
struct tdm__store_view {
    /* Number of the store's generation, which is a version: records with a higher version are
     * confirmed. 0 if no changes were lost that this node knows of: every record is confirmed. */
    uint64_t generation;
    /* True while a name that the store shows as free, or as that of a record that is not confirmed,
     * may belong to an actor of a node that has not written its names again. New holders wait. */
    bool names_wait;
    /* True while such a record may be that of an actor whose node has not written its records
     * again. Then actors that had the name before wait, too. */
    bool holders_wait;
};

/* Returns whether a record was written in the store's generation. */
bool tdm__record_is_confirmed(const struct tdm__store_view *view, uint64_t version);

/* What a daemon does about the record of an actor that runs on its node. */
enum tdm__actor_decision {
    TDM__ACTOR_KEEP_RECORD,  /* The record is right. */
    TDM__ACTOR_WRITE_RECORD, /* The record is missing or wrong, and is written. */
    TDM__ACTOR_GIVE_UP       /* The actor was placed elsewhere later, and ends here. */
};
/* Decides about the actor `running`. `stored` is its record in the store, or NULL. The owner's node
 * counts the placements of an actor, so of two running processes that with the higher count stays.
 * A record that no daemon has confirmed never ends a process. */
enum tdm__actor_decision tdm__reconcile_actor(const struct tdm__actor_record *running,
                                              const struct tdm__actor_record *stored,
                                              bool is_confirmed);

/* What a daemon does about the record of an actor that names its node, but does not run there. */
enum tdm__absent_decision {
    /* The actor was placed here in this generation, and the request to start it is on its way. */
    TDM__ABSENT_EXPECT,
    TDM__ABSENT_DELETE /* The record is left from before, or the node cannot hold the actor. */
};
/* Decides about a record that names this node. `fits` says whether the node has the resources. */
enum tdm__absent_decision tdm__reconcile_absent(bool is_confirmed, bool fits);

/* What a daemon does about the name of an actor that runs on its node. */
enum tdm__name_decision {
    TDM__NAME_WRITE, /* The name is written for the actor. */
    TDM__NAME_WAIT,  /* It is not yet known whether the stored holder still exists. */
    TDM__NAME_TAKEN  /* Another actor got the name earlier; the actor ends. */
};
/* Decides about the name of `running`. `holder` is the name's record in the store, or NULL. If two
 * daemons confirm a holder, the older grant stays. */
enum tdm__name_decision tdm__reconcile_name(const struct tdm__actor_record *running,
                                            const struct tdm__actor_record *holder,
                                            bool is_confirmed, bool holders_wait);

/* Returns whether every node of `known`, the nodes before the store's generation changed, has
 * written its records in the generation, and also its names if `with_names`, according to
 * `resources`, which the store has now. */
bool tdm__nodes_have_settled(const struct tdm__id *known, uint32_t known_count,
                             const struct tdm__node_resources *resources, uint32_t resources_count,
                             uint64_t generation, bool with_names);

#endif
