/* state_groups.h - the list of placement groups: those of the store, and those that wait. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_STATE_GROUPS_H
#define TDM_ACTORS_DAEMON_STATE_GROUPS_H

#include "actors/daemon/node_state.h"

/* Writes the message node_state_list with the placement groups that this daemon tries to place and
 * that wait for resources. */
void tdm__state_write_waiting_groups(tdm_writer *writer, const struct tdm__node *node);

/* The placement groups that the store had when a list was begun. */
struct tdm__stored_groups;

/* Reads the placement groups among records of the store. */
tdm_status tdm__stored_groups_create(const struct tdm__store_record *records,
                                     uint32_t records_count,
                                     struct tdm__stored_groups **groups_out);
/* Frees the groups. NULL is allowed. */
void tdm__stored_groups_destroy(struct tdm__stored_groups *groups);
/* Returns whether the list needs `waiting`, a daemon's record of a group that waits. It does not if
 * the store has the group as placed or as being removed, because the daemon may learn that later
 * than the store. Otherwise it stands in place of the store's record, which does not say why the
 * group waits. */
bool tdm__stored_groups_accept(struct tdm__stored_groups *groups, const tdm_value *waiting);
/* Writes the records of the store's groups for which no other record was accepted, without an array
 * header, and returns their number. */
uint32_t tdm__stored_groups_write(const struct tdm__stored_groups *groups, tdm_writer *writer);

#endif
