/* ticket.h - the rule by which a placement group that waits is placed against endless smaller
 * requests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_TICKET_H
#define TDM_SCHEDULER_TICKET_H

#include "scheduler/resources.h"

/* A group that waits takes turns. In a turn it chooses nodes that could hold it if they were idle,
 * and writes its ticket into their records free/ID. These nodes then keep what comes free: other
 * requests are not placed on them, so they drain. Between turns the group has no tickets.
 *
 * Turns and pauses grow with the time that the group has waited: a turn that begins at the age A
 * lasts until 2A, and the pause after it until 4A. So
 *
 * - a request never waits behind a turn for longer than the group had waited before that turn, and
 *   a program in which the group waits for an actor that waits behind the group goes on;
 * - a group whose nodes drain within the time D finds a turn of at least D when it has waited for
 *   at most max(8D, 4 * TDM__TICKET_PATIENCE_MS), unless D is above TDM__TICKET_TURN_MS_MAX;
 * - nothing is written or checked before a group has waited for TDM__TICKET_PATIENCE_MS.
 *
 * Turns do not get longer than TDM__TICKET_TURN_MS_MAX. All times are in milliseconds. */
enum {
    TDM__TICKET_PATIENCE_MS = 2000,  /* Age at which the first turn begins. */
    TDM__TICKET_TURN_MS_MAX = 128000 /* Longest turn; the pause after it is twice as long. */
};

/* Returns the number of the turn, from 1, that a group has which has waited for `age_ms`, or 0 if
 * it has none. */
uint32_t tdm__ticket_turn(int64_t age_ms);

/* Returns whether a node with the ticket `kept` is kept from the request with the ticket `own`. A
 * request without a ticket has `own` without a group. A group is not kept from its own nodes, and
 * in its turn not from those of tickets with higher numbers; of equal numbers, the one of the lower
 * ID comes first. So of two groups one always passes the other, and they never wait for each other.
 */
bool tdm__ticket_keeps_from(const struct tdm__ticket *kept, const struct tdm__ticket *own,
                            bool has_turn);

#endif
