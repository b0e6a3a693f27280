/* actor.h - the creation of actors: constructor arguments that are sent later. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_ACTOR_H
#define TDM_ACTORS_CLIENT_ACTOR_H

#include "actors/client/client_records.h"

/* Sends the constructor arguments to the daemon if it waits for them and they are ready, or the
 * reason why they never will be. */
void tdm__actor_channel_send_arguments(struct tdm__actor_channel *channel);

#endif
