/* membership.h - who takes part in a send, what they report, and who of them has died. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_MEMBERSHIP_H
#define TDM_COLOCATE_SCHEME_MEMBERSHIP_H

#include "colocate/scheme/sender.h"

/* Fills sender->membership from the mailbox's list and from what the node knows.  TDM_E_NOT_FOUND
 * when nobody is left. */
tdm_status tdm__membership_collect(tdm_weights_sender *sender, int64_t deadline_ms);

/* Waits until as many are there as connect asks for; TDM_E_TIMEOUT says how many are. */
tdm_status tdm__membership_await_receivers(tdm_weights_sender *sender, int64_t deadline_ms);

/* Waits until each has left a note of that kind ("vote/") about the sender's epoch.  The first
 * that reports a failure is that failure, with its name.  TDM_E_ACTOR_DIED names one that died,
 * TDM_E_TIMEOUT one that has not `done` it. */
tdm_status tdm__membership_await(tdm_weights_sender *sender, const char *kind, const char *done,
                                 int64_t deadline_ms);

/* Adds those that have died to the membership's dead; TDM_E_ACTOR_DIED names the last of them. */
tdm_status tdm__membership_find_dead(tdm_weights_sender *sender);

/* Takes those out of the members. */
void tdm__membership_drop_dead(tdm_weights_sender *sender);

/* The record knows of them now: the mailbox need not. */
void tdm__membership_forget_dead(const tdm_weights_sender *sender);

#endif
