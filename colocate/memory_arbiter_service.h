/* memory_arbiter_service.h - the daemon's service "arbiter": one memory_arbiter per GPU of the
 * node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_ARBITER_SERVICE_H
#define TDM_COLOCATE_MEMORY_ARBITER_SERVICE_H

#include "colocate/memory/broker.h"
#include "runtime/service.h"

/* The tenant is the peer that calls.
 *
 *   method        arguments                         reply
 *   arbiter.request     gpu u, tag s, bytes u,            –, when the memory may be made;
 *                 timeout_ms i (-1: no end)         TDM_E_DEVICE_FULL
 *   arbiter.announce_release  gpu u, tag s, bytes u             –; so many bytes of this line are
 * on their way out arbiter.cancel_grant    gpu u, tag s                      –; what was granted
 * for this tag and is not made yet may go to others
 *
 * What is really made and released the arbiters learn from the broker, not from promises. */
extern const struct tdm__service_ops tdm__arbiter_service;

/* The service's `self`.  `broker` (borrowed) is destroyed after it, and gets its hook. */
tdm_status tdm__arbiter_service_create(struct tdm__loop *loop, struct tdm__broker *broker,
                                       void **self_out);

#endif
