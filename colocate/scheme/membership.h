/* membership.h - the receivers of a sender: which exist, what they report, and which have died. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_MEMBERSHIP_H
#define TDM_COLOCATE_SCHEME_MEMBERSHIP_H

#include "colocate/scheme/sender.h"

/* Fills sender->membership from the join messages in the mailbox and from what the node knows of
 * the receivers' processes. Returns TDM_E_NOT_FOUND if no receiver is alive. */
tdm_status tdm__membership_collect(tdm_weights_sender *sender, int64_t deadline_ms);

/* Waits until the sender's required number of receivers has joined. The message of TDM_E_TIMEOUT
 * says how many have. */
tdm_status tdm__membership_await_receivers(tdm_weights_sender *sender, int64_t deadline_ms);

/* Waits until each member has reported on the sender's epoch with a message of the given kind, for
 * example "vote/". If a member reports a failure, returns that failure with the member's name.
 * Returns TDM_E_ACTOR_DIED with the name of a dead member, or TDM_E_TIMEOUT with the name of one
 * that did not report; `done` is the verb in that message. */
tdm_status tdm__membership_await(tdm_weights_sender *sender, const char *kind, const char *done,
                                 int64_t deadline_ms);

/* Adds the members that have died to the membership's dead. Returns TDM_E_ACTOR_DIED with the name
 * of the last of them, or TDM_OK if none has died. */
tdm_status tdm__membership_find_dead(tdm_weights_sender *sender);

/* Removes the dead from the members. */
void tdm__membership_drop_dead(tdm_weights_sender *sender);

/* Removes the join messages of the dead from the mailbox, once the version record lists them. */
void tdm__membership_forget_dead(const tdm_weights_sender *sender);

#endif
