/* txn.h - optimistic transactions on a store: read, decide, commit, and retry after a conflict. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_TXN_H
#define TDM_RUNTIME_STORE_TXN_H

#include "runtime/store.h"

/* A transaction on the store: the records that were read, and the writes that the transaction's
 * body adds. */
struct tdm__txn;

/* Body of a transaction: looks at the records that were read, adds writes and returns TDM_OK to
 * commit them, or a failure to give up. Without writes there is nothing to commit, which is a
 * success. The body may run several times, so it must have no other effects. */
typedef tdm_status tdm__txn_body_fn(void *arg, struct tdm__txn *txn);
/* Callback that receives the outcome of a transaction. `detail` is the text of the error, borrowed
 * until the callback returns. */
typedef void tdm__txn_done_fn(void *arg, tdm_status status, const char *detail);

/* Returns the record with the key `key` as the transaction read it, or as earlier parts of the body
 * leave it (tdm__txn_next_part()); NULL if it does not exist. The record is valid until the part
 * ends. */
const struct tdm__store_record *tdm__txn_find_record(const struct tdm__txn *txn, const char *key);
/* Returns the number of records that the transaction has read. */
uint32_t tdm__txn_records_count(const struct tdm__txn *txn);
/* Returns the record number `index` that the transaction has read, in the order of the keys.
 * `index` must be less than tdm__txn_records_count(). */
const struct tdm__store_record *tdm__txn_record_at(const struct tdm__txn *txn, uint32_t index);
/* Adds a write of the record `key` to the transaction's commit. The commit checks that the record
 * still has the version that was read, or is still absent. Returns TDM_E_INVAL if no pattern of the
 * transaction matches the key. */
tdm_status tdm__txn_put(struct tdm__txn *txn, const char *key, struct tdm_bytes bytes,
                        int64_t lease_ms);
/* Adds a deletion of the record `key` to the transaction's commit, under the same check as
 * tdm__txn_put(). */
tdm_status tdm__txn_delete(struct tdm__txn *txn, const char *key);
/* Begins the next part of the body. A body may consist of parts that know nothing of each other,
 * such as those of several requests that share one commit. Each part finds the records as the parts
 * before it leave them: tdm__txn_find_record() returns what they have put, with the version
 * TDM__VERSION_PENDING, and nothing for what they have deleted. tdm__txn_record_at() shows the
 * records as they were read; tdm__txn_change_at() has what earlier parts have put. The commit
 * contains the last write of each record. Returns TDM_E_NOMEM without memory. */
tdm_status tdm__txn_next_part(struct tdm__txn *txn);
/* Drops all writes of the body, which begins with its first part again. */
void tdm__txn_restart(struct tdm__txn *txn);
/* Returns the number of writes of the earlier parts. */
uint32_t tdm__txn_changes_count(const struct tdm__txn *txn);
/* Returns the record that write number `index` of the earlier parts has put, or NULL if the write
 * is none that puts a record. Later writes of one record count. */
const struct tdm__store_record *tdm__txn_change_at(const struct tdm__txn *txn, uint32_t index);
/* Version of a record that an earlier part of the body has put. */
#define TDM__VERSION_PENDING UINT64_MAX

/* Makes the transaction's commit fail with TDM_E_CONFLICT unless the record `key`, or its absence,
 * is still as it was read. For records on which the decision rests but which are not written. */
tdm_status tdm__txn_require_unchanged(struct tdm__txn *txn, const char *key);

/* The same, for a record that an earlier commit of this process has written, whose outcome was
 * unknown. If names and takeovers count only with replicas of the store, the commit fails with
 * TDM_E_STORE unless these have confirmed that earlier commit. */
tdm_status tdm__txn_require_confirmed(struct tdm__txn *txn, const char *key);

/* Makes the transaction's commit fail unless the member whose record is `key` is lost: with
 * TDM_E_CONFLICT if the record exists, with TDM_E_AGAIN while absent records mean nothing, because
 * the store has a new generation. For every decision that rests on the loss of a member. */
tdm_status tdm__txn_require_lost(struct tdm__txn *txn, const char *key);

/* Makes the transaction's commit fail with TDM_E_AGAIN unless the store is in the generation with
 * this number. For a decision that rests on the absence of the record `key`, which the transaction
 * reads: a store that was just emptied or restored lacks records of what exists, and the daemon
 * knows that only after the next renewal of its lease. Nothing is checked if `generation` is 0,
 * because no renewal has told it yet. */
tdm_status tdm__txn_require_generation(struct tdm__txn *txn, const char *key, uint64_t generation);

/* Returns the transaction's read cache, whose companion the body may use; NULL if it has none. */
struct tdm__read_cache *tdm__txn_read_cache(const struct tdm__txn *txn);
/* Returns whether the body runs on cached records that no read has confirmed. A body that commits
 * something even if it does not find what it looks for must fail instead: it runs again after a
 * read.
 */
bool tdm__txn_is_guess(const struct tdm__txn *txn);
/* Returns among how many equally good records the body should choose, as a binary logarithm: 0 if
 * no commit has lost a race lately to other processes, more with each that has
 * (tdm__read_cache_spread()). */
uint32_t tdm__txn_spread(const struct tdm__txn *txn);
/* Returns how many commits of this process have lost a race: those of the transaction's read cache
 * if it has one, else its own. */
uint64_t tdm__txn_losses(const struct tdm__txn *txn);

/* Reads the patterns, runs the body and commits its writes.  Repeats all of this after a
 * conflict, until the deadline (TDM_E_TIMEOUT) or a failure of the body.  After TDM_E_STORE the
 * outcome is unknown and nothing is repeated.  `done` runs exactly once, later.  Returns a
 * failure only if the transaction could not be started; `done` does not run then.
 *
 * `read_cache` is borrowed until `done` runs, or NULL.  If it holds enough records, the body
 * first runs with these, before this function returns, and its writes are committed.  That commit
 * also checks the records of all patterns that are keys, even where the body does not rely on
 * them.  If the commit conflicts, its records are read and the body runs on the cache with these.
 * If the body fails, or adds no writes, the cached records count for nothing: what has changed in
 * the patterns is read and the body runs again. */
tdm_status tdm__txn_run(struct tdm__store *store, struct tdm__read_cache *read_cache,
                        const char *const *patterns, uint32_t patterns_count, int64_t deadline_ms,
                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg);

#endif
