/* client.h - the side of a runtime that calls actors: its creation, its end, and blocked calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CLIENT_H
#define TDM_ACTORS_CLIENT_CLIENT_H

#include "actors/client/client_records.h"
#include "actors/objects/object_callbacks.h"

/* Creates the state of the client side and stores it in the runtime. */
tdm_status tdm__client_create(tdm_runtime *runtime);
/* Fails all calls and frees all channels, after the connections have closed. The runtime may lack
 * the state. */
void tdm__client_destroy(tdm_runtime *runtime);
/* Returns what the client side does for references, for tdm__objects_create(). It is constant. */
const struct tdm__object_callbacks *tdm__client_object_callbacks(void);

/* Sends, on every channel, the calls whose arguments have become ready. */
void tdm__actor_channels_flush(tdm_runtime *runtime);

#endif
