/* call_retry.h - calls that are sent again because the actor replied with a failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CALL_RETRY_H
#define TDM_ACTORS_CLIENT_CALL_RETRY_H

#include "actors/client/client_records.h"

/* Before it is sent again a call pauses in the list `retry_paused` of its channel: 1 ms after
 * the first failure, twice as long after each further one, at most a second. Other calls are not
 * delayed meanwhile. */

/* Returns TDM_E_INVAL if the retry_failures of the options contain a status that is no failure.
 * `options` may be NULL. */
tdm_status tdm__retry_check_options(const struct tdm_call_options *options);
/* Returns true if a call that failed with `status` must be sent again. A call whose deadline
 * would pass during the pause is not; its failure is the result. */
bool tdm__retry_is_due(const struct tdm__pending_call *pending_call, tdm_status status);
/* Puts the call, which is in no list, into `retry_paused`. When the pause of the first call in that
 * list is over, `on_time` is called with the channel; it must lead to tdm__retry_resume(). */
void tdm__retry_pause(struct tdm__pending_call *pending_call, void (*on_time)(void *channel));
/* Moves calls whose pause is over to the front of the waiting calls. Returns true if there were
 * any. */
bool tdm__retry_resume(struct tdm__actor_channel *channel);

#endif
