/* store_rules.h - what no request to the simulated store may do. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_STORE_RULES_H
#define TDM_TESTS_CLUSTER_SIM_STORE_RULES_H

#include "runtime/store.h"
#include "tests/support/memory_store.h"

/* These rules are invariants (world.h) that only the store can check, because it sees each request
 * at the moment when it is carried out:
 *
 * - A name goes from one actor to another only if the node of the first actor is lost.
 * - A node is taken over only if something was wrong with its machine since its last renewal: no
 *   outage of the store counts against it.
 * - A node that is in the cluster does not join again.
 * - A renewal names a grace that covers the time that killing takes, and the drift of clocks.
 *
 * The first and the third one are not checked once the store was restarted, after which records may
 * be missing. */

/* Forgets what an earlier cluster has done. */
void store_rules_begin(void);
/* Notes what the store has before a commit of `machine`. */
void store_rules_before_commit(const struct tdm__store *memory,
                               const struct tdm__store_write *writes, uint32_t writes_count);
/* Checks what the commit has changed, whose outcome is `status`. */
void store_rules_after_commit(const struct tdm__store *memory, uint32_t machine,
                              const struct tdm__store_write *writes, uint32_t writes_count,
                              tdm_status status);
/* Checks a renewal of `machine` before it is carried out. */
void store_rules_before_renewal(uint32_t machine, const struct tdm__store_renewal *renewal);
/* Checks the outcome of a renewal of the node whose ID is `writer`. */
void store_rules_after_renewal(uint32_t machine, const char *writer, tdm_status status);

#endif
