/* state_records.h - writes actors, nodes and placement groups as records for lists. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_STATE_RECORDS_H
#define TDM_ACTORS_DAEMON_STATE_RECORDS_H

#include "actors/daemon/actor_entry.h"

/* Writes the record of one actor for lists. `text` is the cause of the actor's death; NULL if it
 * has not died. */
void tdm__state_write_actor(tdm_writer *writer, const struct actor_entry *entry, const char *text);
/* Writes an array of records of nodes for lists, from the store's records node/... and free/....
 * Unreadable store records are left out. */
void tdm__state_write_nodes(tdm_writer *writer, const struct tdm__store_record *records,
                            uint32_t records_count);
/* Writes an array of records of placement groups for lists, from the store's records group/....
 * Unreadable store records are left out. */
void tdm__state_write_groups(tdm_writer *writer, const struct tdm__store_record *records,
                             uint32_t records_count);

#endif
