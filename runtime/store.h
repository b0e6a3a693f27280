/* store.h - the cluster's shared state: versioned records, changed by transactions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_H
#define TDM_RUNTIME_STORE_H

#include "runtime/loop/loop.h"

#include <stddef.h>
#include <tandem/value.h>

/* A record is a key ("actor/3f…", 1 to 200 bytes of printable ASCII without '*'), opaque bytes,
 * and a version that is new with every change and never used twice, not even after a deletion;
 * the records of one commit share theirs.
 * All changes go through one operation, commit: *check the versions that were read, write all
 * or nothing*.  So every protocol above (placement, names, weight versions) is: read, decide,
 * commit, and on TDM_E_CONFLICT again.  A lost reply is no danger: a commit carries an id, and
 * the store answers a repeated id with the first outcome.
 *
 * The product has one implementation, with Redis.  Tests have two more: memory_store.h in
 * tests/support, and cli/faulty_store.h, which wraps another store.  Everything is
 * asynchronous: functions return at once, callbacks run later on the loop thread, exactly once,
 * with TDM_E_STORE when the store could not be reached by the deadline. */

struct tdm__store;
struct tdm__read_cache; /* runtime/store/read_cache.h */

struct tdm__store_record {
    const char *key;
    uint64_t version;
    struct tdm_bytes bytes;
};

/* Borrowed until the callback returns; records sorted by key. */
typedef void tdm__store_read_fn(void *arg, tdm_status status,
                                const struct tdm__store_record *records, uint32_t records_count);
/* `version`: what every record that this commit put has now; TDM__VERSION_NONE where it put
 * none, or failed. */
typedef void tdm__store_commit_fn(void *arg, tdm_status status, uint64_t version);
typedef void tdm__store_changed_fn(void *arg, const char *key);

enum tdm__store_write_kind {
    TDM__STORE_PUT,    /* set the bytes */
    TDM__STORE_DELETE, /* remove; fine if it is not there (unless a version says otherwise) */
    TDM__STORE_CHECK_VERSION, /* change nothing, only check the version */
    TDM__STORE_RENEW_LEASE /* renew the lease, keep bytes and version; TDM_E_CONFLICT if it is gone
                            */
};

#define TDM__VERSION_ANY  UINT64_MAX /* do not check */
#define TDM__VERSION_NONE 0u         /* must not exist */

struct tdm__store_write {
    enum tdm__store_write_kind kind;
    const char *key;
    uint64_t version; /* that the record must have now */
    struct tdm_bytes bytes;
    int64_t lease_ms; /* 0: stays; else it vanishes unless written or touched in time */
};

struct tdm__store_ops {
    const char *name;

    /* Operations that wait get TDM_E_STORE before it returns; they may not ask for more. */
    void (*close)(struct tdm__store *store);
    /* Reads the records that match any pattern: an exact key, or a prefix followed by '*'; one
     * consistent snapshot. */
    void (*read)(struct tdm__store *store, const char *const *patterns, uint32_t patterns_count,
                 int64_t deadline_ms, tdm__store_read_fn *fn, void *arg);
    /* Copies the writes (at most 10,000).  TDM_OK, TDM_E_CONFLICT (nothing was written),
     * TDM_E_STORE (unknown outcome). */
    void (*commit)(struct tdm__store *store, const struct tdm__store_write *writes,
                   uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn, void *arg);
    /* From now on tells every key with this prefix that was written or deleted, once per
     * change; after a reconnect, where changes may have been missed, tells `prefix` itself:
     * read again. An expired lease is not told: its watchers look at the clock.  One per
     * prefix. */
    tdm_status (*watch)(struct tdm__store *store, const char *prefix, tdm__store_changed_fn *fn,
                        void *arg);
};

/* First member of every filling. */
struct tdm__store {
    const struct tdm__store_ops *ops;
    bool closing; /* what fails now is not to be asked for again */
    /* Lent by who opened it, or NULL: what transactions that wait for each other begin with. */
    struct tdm__read_cache *read_cache;
    /* Of the scheduler (scheduler/retrying_txn.h): transactions that wait for each other. */
    struct tdm__retrying_txn *queued_txns;
    struct tdm__retrying_txn *last_queued_txn; /* valid while there are turns */
};

/* The real one.  `url`: "unix:///path/sock", "redis://[user:password@]host:port[/db]".
 * `cluster` prefixes every key.  Connects, loads the function library if its version is
 * missing, reconnects by itself with back-off; blocks only for the first connection, at most
 * `timeout_ms`. */
tdm_status tdm__store_redis_open(struct tdm__loop *loop, const char *url, const char *cluster,
                                 int64_t timeout_ms, struct tdm__store **store_out);

/* ---- transactions ----------------------------------------------------------------------- */

/* What a transaction's body sees and collects. */
struct tdm__txn;

/* Looks at the records read; adds writes; returns TDM_OK to commit them (none: nothing to do, a
 * success), or a failure to give up with it.  Pure: it may run several times. */
typedef tdm_status tdm__txn_body_fn(void *arg, struct tdm__txn *txn);
typedef void tdm__txn_done_fn(void *arg, tdm_status status, const char *detail);

const struct tdm__store_record *tdm__txn_find_record(const struct tdm__txn *txn, const char *key);
uint32_t tdm__txn_records_count(const struct tdm__txn *txn);
const struct tdm__store_record *tdm__txn_record_at(const struct tdm__txn *txn, uint32_t index);
/* Writes check the version of the record as it was read (none if it was not there).  A key that
 * no pattern of the transaction matches is TDM_E_INVAL. */
tdm_status tdm__txn_put(struct tdm__txn *txn, const char *key, struct tdm_bytes bytes,
                        int64_t lease_ms);
tdm_status tdm__txn_delete(struct tdm__txn *txn, const char *key);
/* The decision rests on this record (or its absence): commit only if it is still so. */
tdm_status tdm__txn_require_unchanged(struct tdm__txn *txn, const char *key);

/* Reads the patterns, runs the body, commits; on conflict again, until the deadline
 * (TDM_E_TIMEOUT) or the body's own failure.  After TDM_E_STORE the outcome is unknown: it is
 * not tried again.  `done` runs exactly once, later.
 *
 * `read_cache` (borrowed until `done`; NULL: none) may hold enough to begin without a read: the
 * body then runs before this returns.  If it wants to commit, that is tried, and checks the
 * patterns that are keys even where the body does not rely on them.  If it fails, or writes
 * nothing, or the commit is a conflict, what was read_cache decides nothing: the patterns are read,
 * and the body runs again. */
tdm_status tdm__txn_run(struct tdm__store *store, struct tdm__read_cache *read_cache,
                        const char *const *patterns, uint32_t patterns_count, int64_t deadline_ms,
                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg);

#endif
