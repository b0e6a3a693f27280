/* placement_group_service.h - the placement groups of a daemon, and the service "placement_group".
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_PLACEMENT_GROUP_SERVICE_H
#define TDM_ACTORS_DAEMON_PLACEMENT_GROUP_SERVICE_H

#include "actors/daemon/node_state.h"

/* Creates the empty table of placement groups, which is stored in node->placement_groups. */
tdm_status tdm__placement_groups_create(struct tdm__node *node);
/* Fails all calls that wait for placement groups and frees the table of groups. */
void tdm__placement_groups_destroy(struct tdm__node *node);
/* Tries again to reserve the placement groups that wait for resources. */
void tdm__placement_groups_retry(struct tdm__node *node);
/* Marks the records of placement groups as lost, like tdm__node_actors_records_lost(). */
void tdm__placement_groups_records_lost(struct tdm__node *node);
/* Writes lost records of placement groups again, once the node has joined. */
void tdm__placement_groups_rewrite(struct tdm__node *node);
/* True while the resources of removed placement groups have not been given back to the store. */
bool tdm__placement_groups_are_going(const struct tdm__node *node);
/* Removes a placement group whose owner's node was lost. The result is not reported: if the removal
 * fails, the next sweep of the store finds the group again. */
void tdm__placement_group_orphaned(struct tdm__node *node, const struct tdm__id *id);
/* Removes the placement groups that the process `creator` created, except detached ones. */
void tdm__placement_groups_creator_gone(struct tdm__node *node, const struct tdm__id *creator);

/* The service "placement_group", for tdm__services_add() with the node as `self`. */
extern const struct tdm__service_ops tdm__placement_group_service;

/* Returns the IDs of the groups in this daemon's table, also of those that wait for resources. The
 * caller frees the array. */
struct tdm__id *tdm__placement_groups_ids(const struct tdm__node *node, uint32_t *count_out);
/* Returns whether the store has all groups that tdm__placement_groups_records_lost() has marked. */
bool tdm__placement_groups_are_written(const struct tdm__node *node);

#endif
