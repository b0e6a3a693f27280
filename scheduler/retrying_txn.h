/* retrying_txn.h - transactions that are repeated until their outcome is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RETRYING_TXN_H
#define TDM_SCHEDULER_RETRYING_TXN_H

#include "runtime/store.h"
#include "runtime/store/txn.h"

/* Runs a transaction as tdm__txn_run() does, and repeats it after TDM_E_STORE, when the outcome is
 * unknown, until the deadline. The body must recognise from the records that it was committed
 * before, and then change nothing. */
tdm_status tdm__retrying_txn_run(struct tdm__store *store, const char *const *patterns,
                                 uint32_t patterns_count, int64_t deadline_ms,
                                 tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg);

/* Runs a transaction that writes records shared with others, such as a node's free resources. The
 * transactions of one process run one after the other, in the order of the calls, instead of
 * causing conflicts with each other. They start from the store's read cache, if it has one. The
 * time in the queue counts towards the deadline. */
tdm_status tdm__retrying_txn_run_queued(struct tdm__store *store, const char *const *patterns,
                                        uint32_t patterns_count, int64_t deadline_ms,
                                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg);

/* Like tdm__retrying_txn_run_queued(), for a body that may share its commit with the next ones in
 * the queue: each is then a part of one body (tdm__txn_next_part()). The body must find what it
 * needs by tdm__txn_find_record() or tdm__nodes_snapshot_read(). A body that fails keeps no other
 * from being committed; if the shared commit fails, each transaction is run alone. The fewer share
 * a commit, the more commits of this process have lost races lately. */
tdm_status tdm__retrying_txn_run_shared(struct tdm__store *store, const char *const *patterns,
                                        uint32_t patterns_count, int64_t deadline_ms,
                                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg);
/* Largest number of transactions that share a commit. */
enum { TDM__SHARED_TXNS_MAX = 16 };

#endif
