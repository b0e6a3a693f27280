/* actor_handle.h - handles to actors: who counts, and how they travel. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_ACTOR_HANDLE_H
#define TDM_ACTORS_CLIENT_ACTOR_HANDLE_H

#include "actors/client/actor_channel.h"

/* An actor that is not detached lives as long as handles to it do.  They are counted as
 * references are, with the actor's creator as the owner: each process that has a counted handle
 * keeps a hold, a reference without a value, on the creator's; with the last of them the
 * creator's runtime asks the daemon to end the actor in good order. */

/* A handle on `channel`, whose hold by the caller it takes, also on failure. */
tdm_status tdm__handle_create(struct tdm__actor_channel *channel, bool counted,
                              tdm_actor **actor_out);
/* Makes this process, the creator, the one that counts. */
tdm_status tdm__handle_start_counting(struct tdm__actor_channel *channel);
/* Nothing of this process uses the actor any more? Then its hold goes. */
void tdm__handle_release_unused(struct tdm__actor_channel *channel);

tdm_status tdm__handle_write(tdm_writer *writer, tdm_actor *actor);
tdm_status tdm__handle_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_actor **actor_out);
/* What keeps the actor alive for the one who got those bytes; NULL where nothing counts. */
tdm_status tdm__handle_bytes_keep_alive(tdm_runtime *runtime, struct tdm_bytes bytes,
                                        tdm_ref **hold_out);

#endif
