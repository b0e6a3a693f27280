/* send_queue.h - the calls of a channel: their order, what is sent again, when they are given up.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_SEND_QUEUE_H
#define TDM_ACTORS_CLIENT_SEND_QUEUE_H

#include "actors/client/pending_call.h"

struct tdm__actor_channel;

/* Each call gets a sequence number when it is sent first.  The actor keeps its answer until a
 * later call acknowledges it, so a call that is sent again over a new connection, with the same
 * number, is answered and not run again.  An actor that was restarted knows nothing: there the
 * numbers begin anew, with the calls that may be run twice. */

/* Queues a call, which is this module's from here on, and sends what can be sent. */
void tdm__send_queue_push(struct tdm__actor_channel *channel,
                          struct tdm__pending_call *pending_call);
void tdm__send_queue_flush(struct tdm__actor_channel *channel);
/* What waits on a channel that was never open goes to the end of another. */
void tdm__send_queue_move(struct tdm__actor_channel *from, struct tdm__actor_channel *to);
/* Neither waiting nor in_flight calls. */
bool tdm__send_queue_is_idle(const struct tdm__actor_channel *channel);

/* Without a connection.  What flew waits again, in front and in its old order. */
void tdm__send_queue_requeue_in_flight(struct tdm__actor_channel *channel);
/* The actor was restarted, or will be: calls that have flown and may not be run again fail. */
void tdm__send_queue_fail_unrepeatable(struct tdm__actor_channel *channel, const char *reason);
/* The process that got those that waited again is not the one that will get them next. */
void tdm__send_queue_renumber(struct tdm__actor_channel *channel);
/* All of them fail. */
void tdm__send_queue_fail_all(struct tdm__actor_channel *channel, tdm_status status,
                              const char *reason);

/* Settles it as canceled and tells the actor, if it has been sent: to cancel what its method
 * has called, too, if `children`. */
void tdm__send_queue_cancel(struct tdm__pending_call *pending_call, bool children);
/* Items up to that one have been taken. */
void tdm__send_queue_send_credit(struct tdm__pending_call *pending_call, uint64_t items_taken);

void tdm__send_queue_init(struct tdm__actor_channel *channel);
void tdm__send_queue_fini(struct tdm__actor_channel *channel);

#endif
