/* reserve_cpus.h - CPUs that an actor lends to others while its method waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RESERVE_CPUS_H
#define TDM_SCHEDULER_RESERVE_CPUS_H

#include "scheduler/reserve.h"

/* Changes the CPUs that a placed actor holds in the store to actor->grant.cpu, in the pool of its
 * node or bundle and in its record: to 0 when it lends them, and to what it was granted when it
 * takes them back. It takes them back also if others hold them now; fewer than no CPUs are free
 * then, until some of the others end. Of `actor` also the ID, the node, the group, the bundle and
 * the name are read. Succeeds without a change if the actor has been released or is on another
 * node. */
tdm_status tdm__reserve_cpus(struct tdm__store *store, const struct tdm__actor_record *actor,
                             int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

#endif
