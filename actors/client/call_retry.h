/* call_retry.h - calls that are made again because the actor answered with a failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CALL_RETRY_H
#define TDM_ACTORS_CLIENT_CALL_RETRY_H

#include "actors/client/pending_call.h"

#include <stdbool.h>

struct tdm__actor_channel;

/* Before it is made again a call pauses, in the list `retry_paused` of its channel: 1 ms after its
 * first failure, twice as long after each further one, a second at most.  It holds up no other
 * call meanwhile. */

/* TDM_E_INVAL for what is no failure.  `options` may be NULL. */
tdm_status tdm__retry_check_options(const struct tdm_call_options *options);
/* Is a call that was answered with `status` to be made again?  Not where its deadline would
 * come first: then the failure is the result. */
bool tdm__retry_is_due(const struct tdm__pending_call *pending_call, tdm_status status);
/* That call, in no list now, pauses; tdm__send_queue_flush() sends it when its time has come. */
void tdm__retry_pause(struct tdm__pending_call *pending_call);
/* Those that have paused for long enough are the first that wait now; were there any? */
bool tdm__retry_resume(struct tdm__actor_channel *channel);

#endif
