/* memory_arbiter_service.h - the daemon's RPC service "arbiter": one memory arbiter per GPU of
 * the node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_ARBITER_SERVICE_H
#define TDM_COLOCATE_MEMORY_ARBITER_SERVICE_H

#include "colocate/broker/broker.h"
#include "runtime/service.h"

/* The table of the daemon's service "arbiter". The tenant of a call is the peer that calls.
 *
 * arbiter.request takes gpu u, tag s, bytes u, timeout_ms i (-1: no timeout). The reply is empty
 * and comes when the tenant may allocate the memory. The call fails with TDM_E_DEVICE_FULL if the
 * request is refused.
 *
 * arbiter.announce_release takes gpu u, tag s, bytes u: the tenant will soon release that many
 * bytes of the tag. The reply is empty.
 *
 * arbiter.report takes gpu u, total_bytes u, free_bytes u: what the real GPU says to the caller,
 * which has a context on it; the daemon has none. What is used beyond the charged blocks is outside
 * usage, which the arbiters do not grant. A caller reports when it opens a GPU and before each
 * request. The reply is a truth value: true if memory of a process that has exited seems to be in
 * use still, which a GPU returns late, so that the caller should report again before it requests.
 *
 * arbiter.outside_usage takes gpu u, tag s, declared_bytes u, bytes u: what the caller and the
 * processes that it has started have declared to use of outside memory, and what the device reports
 * as used for it. The arbiter counts the larger one, and the declared bytes alone if other GPUs of
 * the node are on the same real GPU, whose users a report does not tell apart. A difference of more
 * than tdm__outside_slack_bytes() is logged. The memory stays counted until the caller says that it
 * is released, or has ended with all processes that it had started. The reply is empty.
 *
 * arbiter.cancel_grant takes gpu u, tag s: memory that was granted for the tag and is not
 * allocated yet becomes free for other tenants. The reply is empty.
 *
 * The arbiters learn from the broker's callbacks, not from these calls, which memory is really
 * allocated and released. */
extern const struct tdm__service_ops tdm__arbiter_service;

/* Creates the state of the service "arbiter" in `self_out`, with one arbiter for each GPU of
 * `broker`. The broker is borrowed and must be destroyed after the service. The service installs
 * itself as the broker's callbacks. */
tdm_status tdm__arbiter_service_create(struct tdm__loop *loop, struct tdm__broker *broker,
                                       void **self_out);

#endif
