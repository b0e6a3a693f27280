/* turnstile_service.h - the daemon's service "turn": one turnstile per GPU of the node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TURNSTILE_SERVICE_H
#define TDM_COLOCATE_TURNSTILE_SERVICE_H

#include "colocate/memory/broker.h"
#include "runtime/service.h"

/* The tenant is the peer that calls.
 *
 *   method        arguments                         reply
 *   turn.wish     gpu u, tag s, bytes u,            –, when the memory may be made;
 *                 timeout_ms i (-1: no end)         TDM_E_DEVICE_FULL
 *   turn.leaving  gpu u, tag s, bytes u             –; so many bytes of this line are on
 *                                                   their way out
 *   turn.forgo    gpu u, tag s                      –; what was granted for this tag and is
 *                                                   not made yet may go to others
 *
 * What is really made and released the turnstiles learn from the broker, not from promises. */
extern const struct tdm__service_ops tdm__turnstile_service;

/* The service's `self`.  `broker` (borrowed) is destroyed after it, and gets its hook. */
tdm_status tdm__turnstile_service_create(struct tdm__loop *loop, struct tdm__broker *broker,
                                         void **self_out);

#endif
