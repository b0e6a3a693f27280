/* actor_handle.h - handles to actors: how they are counted, packed and opened. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_ACTOR_HANDLE_H
#define TDM_ACTORS_CLIENT_ACTOR_HANDLE_H

#include "actors/client/client_records.h"

/* Handles that keep an actor alive. An actor that is not detached lives as long as handles to it
 * do. They are counted as references are, with the actor's creator as the owner. Each process
 * with a counted handle holds a reference without a value, which it borrows from the creator.
 * When the last such reference is released, the creator asks the daemon to terminate the actor
 * gracefully. */

/* Creates a handle on `channel` and takes over the caller's hold of the channel, also on
 * failure. `counted` says whether the handle keeps the actor alive. */
tdm_status tdm__handle_create(struct tdm__actor_channel *channel, bool counted,
                              tdm_actor **actor_out);
/* Creates the reference that keeps the actor alive. Called in the actor's creator. */
tdm_status tdm__handle_start_counting(struct tdm__actor_channel *channel);

/* Packs a handle. Fails with TDM_E_STATE while it is unknown which actor has the requested name. */
tdm_status tdm__handle_write(tdm_writer *writer, tdm_actor *actor);
/* Opens a packed handle: creates a handle of this process and, if necessary, the channel. */
tdm_status tdm__handle_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_actor **actor_out);
/* Opens the keep-alive reference in a packed handle and adds a holder; NULL if the handle is not
 * counted. */
tdm_status tdm__handle_bytes_keep_alive(tdm_runtime *runtime, struct tdm_bytes bytes,
                                        tdm_ref **keep_alive_out);

#endif
