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
/* How long a placement group has waited for resources, and why. */
struct tdm__group_wait {
    const char *cause;      /* What the group waits for, borrowed; "" if it does not wait. */
    int64_t waited_ms;      /* Milliseconds for which the group has waited. */
    uint64_t ticket_number; /* Number of the group's ticket (scheduler/ticket.h); 0 for none. */
};
/* Writes the record of one placement group for lists. `wait` is NULL if it is not known that the
 * group waits. */
void tdm__state_write_group(tdm_writer *writer, const struct tdm__placement_group_record *group,
                            const struct tdm__group_wait *wait);
/* Writes an array of records of placement groups for lists, from the store's records group/....
 * Unreadable store records are left out. */
void tdm__state_write_groups(tdm_writer *writer, const struct tdm__store_record *records,
                             uint32_t records_count);

#endif
