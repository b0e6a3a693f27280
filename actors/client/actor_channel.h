/* actor_channel.h - the connection of this process to one actor, and its state. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_ACTOR_CHANNEL_H
#define TDM_ACTORS_CLIENT_ACTOR_CHANNEL_H

#include "actors/client/client_records.h"
#include "runtime/messages/messages.h"

/* Creates a channel in state CREATING with one holder. */
tdm_status tdm__actor_channel_create(tdm_runtime *runtime, const struct tdm__id *id,
                                     const char *name, const char *class_name,
                                     struct tdm__actor_channel **channel_out);
/* Returns the channel to the actor `id` and adds a holder; NULL if this process has none. */
struct tdm__actor_channel *tdm__actor_channel_retain_by_id(tdm_runtime *runtime,
                                                           const struct tdm__id *id);
/* Removes a holder. Frees the channel if it is then unused, and releases the actor if no counted
 * handle is left. */
void tdm__actor_channel_release(struct tdm__actor_channel *channel);
/* Releases the reference that keeps the actor alive if this process has no counted handle and no
 * pending call. */
void tdm__actor_channel_release_keep_alive(struct tdm__actor_channel *channel);
/* Releases the keep-alive reference as tdm__actor_channel_release_keep_alive() does, and frees the
 * channel if nothing holds it, no call is pending, and the constructor arguments are not needed
 * again. Returns true if the channel was freed. */
bool tdm__actor_channel_free_if_unused(struct tdm__actor_channel *channel);
/* Fails all calls and frees the channel even if it still has holders. */
void tdm__actor_channel_destroy(struct tdm__actor_channel *channel);

/* Sends a request about the actor to the daemon. The reply is passed to
 * tdm__actor_channel_connect(), tdm__actor_channel_redirect() or tdm__actor_channel_fail(). */
tdm_status tdm__actor_channel_request(struct tdm__actor_channel *channel, struct tdm__conn *daemon,
                                      const struct tdm__rpc_request *request);
/* Connects to a living actor and sends the waiting calls. The daemon's description contains pid,
 * node, GPUs, addresses and incarnation. A malformed description fails the channel. If the
 * connection fails, the daemon is asked how the actor is. */
void tdm__actor_channel_connect(struct tdm__actor_channel *channel, const tdm_value *description);
/* Asks the daemon for the address of the actor, which it knows or will know, and connects when the
 * actor is constructed. `creators_node` is the node of the actor's creator, which learns of the
 * actor first; NULL if it is not known. */
tdm_status tdm__actor_channel_await(struct tdm__actor_channel *channel,
                                    const struct tdm__id *creators_node);
/* Connects a channel in state CREATING to the actor that the daemon found by its name, or awaits it
 * if it is not constructed yet. A failure fails the channel. */
void tdm__actor_channel_use_found(struct tdm__actor_channel *channel,
                                  const struct tdm__actor_found_message *found);
/* Uses the existing actor `id` with the requested name, which `found` describes. If this process
 * already has a channel to it, all handles and calls move there. The caller must hold `channel`. */
void tdm__actor_channel_redirect(struct tdm__actor_channel *channel, const struct tdm__id *id,
                                 const struct tdm__actor_found_message *found);
/* Changes the state to DEAD and fails all calls, because the actor could not be created or has
 * ended. */
void tdm__actor_channel_fail(struct tdm__actor_channel *channel, tdm_status status,
                             const char *detail);

/* Queues a call. Returns the failure if the actor has ended, or TDM_E_AGAIN if too many calls
 * are pending; the caller then completes the call. */
tdm_status tdm__actor_channel_submit(struct tdm__actor_channel *channel,
                                     struct tdm__pending_call *pending_call);

/* Fails all channels to actors of this node, because its daemon has ended and its actors with
 * it. This includes an actor whose connection is kept open by a process that it forked. */
void tdm__actor_channels_fail_all(tdm_runtime *runtime, const char *detail);

/* Fails the calls to actors of the node with the ID `node_id`, except those that may be retried,
 * with TDM_E_ACTOR_UNAVAILABLE and `text`, because the node does not answer. */
void tdm__actor_channels_node_unreachable(tdm_runtime *runtime, const char *node_id,
                                          const char *text);

/* Copies the metadata of the actor into the channel, unless the channel has it already. Without
 * memory the channel stays without. */
void tdm__actor_channel_set_metadata(struct tdm__actor_channel *channel, struct tdm_bytes metadata);

#endif
