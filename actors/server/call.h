/* call.h - what a method may do with its call, and what the executor calls for each call. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_CALL_H
#define TDM_ACTORS_SERVER_CALL_H

#include "actors/server/received_call.h"

/* Runs the constructor of the class on `self` without the loop's lock. Takes ownership of
 * `arguments`, an array, which the constructor may keep. Returns TDM_OK if the class has no
 * constructor. */
tdm_status tdm__call_construct(struct tdm__loop *loop, const struct tdm_actor_class *actor_class,
                               void *self, tdm_document *arguments);

/* Arrival hook: holds the call while large arguments are fetched from another node, so that it is
 * not run before they are here. A call sent again is fetched over its new connection. */
void tdm__call_fetch_arguments(void *arg, tdm_call *call);

/* Reply hook: delays the reply until the references among the arguments are registered with this
 * process, and passes the references in the reply to the caller. */
void tdm__call_pin_reply_refs(void *arg, tdm_call *call, struct tdm__method_reply *reply);

#endif
