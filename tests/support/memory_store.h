/* memory_store.h - a store in the memory of this process, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_MEMORY_STORE_H
#define TDM_TESTS_MEMORY_STORE_H

#include "runtime/redis/commit_session.h"
#include "runtime/store.h"
#include "runtime/store/records.h"

/* Opens an empty store.  Every operation takes effect when it is called, and no reply is lost.
 */
tdm_status tdm__store_memory_open(struct tdm__loop *loop, struct tdm__store **store_out);
/* Pretends that another server has taken over the store with all data, so that the next renewal
 * begins a new generation. */
void memory_store_replace(struct tdm__store *store);
/* The same, and a renewal that holds no takeover back has begun the generation already. Returns its
 * number. */
uint64_t memory_store_new_generation(struct tdm__store *store);

/* Pretends that the server was restarted without its data. */
void memory_store_clear(struct tdm__store *store);
/* Removes the records whose keys begin with `prefix`, as if an older snapshot had been restored
 * that does not have them yet. */
void memory_store_forget(struct tdm__store *store, const char *prefix);

/* The operations of the interface, carried out at once, for a test that delivers requests and
 * replies itself. The caller frees the records with free(). */
tdm_status memory_store_read(const struct tdm__store *store, const char *const *patterns,
                             uint32_t patterns_count, struct tdm__store_records **records_out);
/* `*members_out` is NULL if the member knows the list. */
tdm_status memory_store_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                              struct tdm__store_renewed *renewed_out,
                              struct tdm__store_records **members_out);

/* The operations below are those of a server that numbers the commits of its writers, as the Lua
 * functions do. A test delivers the copies of a commit itself: late, repeated, or not at all. */

/* Opens a session of a writer, whose commits have numbers from `lowest` on, and drops the outcomes
 * of its earlier session. Returns the number of the session. */
uint64_t memory_store_open_session(struct tdm__store *store, const char *writer, uint64_t lowest);
/* Delivers one copy of a commit. Returns its outcome, which is the first one if the commit was
 * delivered before; TDM_E_NOT_FOUND if the writer has no such session, and TDM_E_STATE if the
 * writer has settled the number. */
tdm_status memory_store_deliver(struct tdm__store *store, const char *writer,
                                const struct tdm__redis_commit_stamp *stamp,
                                const struct tdm__store_write *writes, uint32_t writes_count,
                                uint64_t *version_out);
/* The number of outcomes that the store keeps of a writer. */
uint32_t memory_store_outcomes_count(const struct tdm__store *store, const char *writer);

#endif
