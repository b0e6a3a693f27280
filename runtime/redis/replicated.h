/* replicated.h - a store whose most important changes count only when replicas have them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_REPLICATED_H
#define TDM_REDIS_REPLICATED_H

#include "runtime/store.h"

/* Wraps the store `inner`, which tdm__store_redis_open() has opened. Commits that write names, rely
 * on the loss of a node, or check a write that needs replicas, and renewals of leases, succeed only
 * after `replicas_count` replicas of the server have confirmed them with the command WAIT. Else
 * they fail with TDM_E_STORE and both numbers, and may have been carried out. The wrapper owns
 * `inner`. */
tdm_status tdm__store_replicated_open(struct tdm__store *inner, uint32_t replicas_count,
                                      struct tdm__store **store_out);

/* Returns whether a commit of these writes has to be confirmed by replicas. */
bool tdm__commit_needs_replicas(const struct tdm__store_write *writes, uint32_t writes_count);

#endif
