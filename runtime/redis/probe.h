/* probe.h - waits until a store can be read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_PROBE_H
#define TDM_REDIS_PROBE_H

#include "runtime/store.h"

/* Blocks until the store has replied to a read of no records, at most `timeout_ms` milliseconds.
 * The store runs on `loop`. Returns the outcome of the read. */
tdm_status tdm__redis_probe(struct tdm__loop *loop, struct tdm__store *store, int64_t timeout_ms);

#endif
