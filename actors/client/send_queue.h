/* send_queue.h - the calls of a channel: their order, acknowledgment, repetition and deadlines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_SEND_QUEUE_H
#define TDM_ACTORS_CLIENT_SEND_QUEUE_H

#include "actors/client/client_records.h"

/* Queues a call, which the send queue owns from here on, and sends what can be sent.
 *
 * Each call gets a sequence number when it is first sent. The actor keeps its reply until a
 * later call acknowledges it. A call that is sent again over a new connection has the same
 * number, so the actor replies again without executing it again. A restarted actor knows no
 * numbers; they start from 1 for it, with the calls that may be executed twice. */
void tdm__send_queue_push(struct tdm__actor_channel *channel,
                          struct tdm__pending_call *pending_call);
/* Sends waiting calls, and those whose pause is over, until one waits for an argument or the
 * channel is not open. */
void tdm__send_queue_flush(struct tdm__actor_channel *channel);
/* Moves the waiting calls of a channel that was never open to the end of another channel's
 * queue. */
void tdm__send_queue_move(struct tdm__actor_channel *from, struct tdm__actor_channel *to);
/* Returns true if the channel has no waiting, paused or sent calls. */
bool tdm__send_queue_is_idle(const struct tdm__actor_channel *channel);

/* Moves the sent calls without a reply to the front of the waiting ones, in their old order.
 * Called after the connection has closed. */
void tdm__send_queue_requeue_in_flight(struct tdm__actor_channel *channel);
/* Fails the calls that were sent to an earlier incarnation of the actor and may not be executed
 * again. Called when the actor was restarted or will be. */
void tdm__send_queue_fail_unrepeatable(struct tdm__actor_channel *channel, const char *reason);
/* Fails the calls that wait or were sent and may not be retried. Called while the actor cannot be
 * reached. The caller must hold the channel. */
void tdm__send_queue_fail_unretried(struct tdm__actor_channel *channel, tdm_status status,
                                    const char *reason);
/* Removes the sequence numbers of the waiting calls and restarts the numbering, because the next
 * process that receives them is a new one. */
void tdm__send_queue_renumber(struct tdm__actor_channel *channel);
/* Fails all calls of the channel. */
void tdm__send_queue_fail_all(struct tdm__actor_channel *channel, tdm_status status,
                              const char *reason);

/* Writes the method and the actor of a call into `text` and how far the call is, as far as its
 * caller knows (pending_call.h). */
void tdm__send_queue_describe_call(const struct tdm__pending_call *pending_call, char *text,
                                   size_t text_bytes);
/* Completes the call as canceled and, if it was sent, asks the actor to cancel it. `children`
 * says whether the calls that its method has made are canceled, too. */
void tdm__send_queue_cancel(struct tdm__pending_call *pending_call, bool children);
/* Allows the actor to send further stream items, after the user has taken the first
 * `items_taken`. */
void tdm__send_queue_send_credit(struct tdm__pending_call *pending_call, uint64_t items_taken);

/* Initializes the fields of the send queue in a new channel. */
void tdm__send_queue_init(struct tdm__actor_channel *channel);
/* Frees the timers. The queue must be idle. */
void tdm__send_queue_fini(struct tdm__actor_channel *channel);

#endif
