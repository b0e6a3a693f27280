/* store.h - the interface of the store: the cluster's shared state in versioned records. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_H
#define TDM_RUNTIME_STORE_H

#include "runtime/loop/loop.h"

#include <stddef.h>
#include <tandem/value.h>

/* The store holds the state that the daemons of a cluster share.  A record is a key
 * ("actor/3f...", 1 to 200 bytes of printable ASCII without '*'), opaque bytes and a version.
 * The store assigns a new version with every change and never reuses one, not even after a
 * deletion.  All records that one commit writes get the same version.
 *
 * All changes go through one operation, commit: the store checks the versions that the caller has
 * read and then writes all records or none.  So every protocol on top (placement, names, weight
 * versions) reads, decides, commits, and repeats after TDM_E_CONFLICT.  A lost reply does no
 * harm: each commit has a number, and the store replies to a repeated commit with the first
 * outcome.
 *
 * The product has one implementation, runtime/redis/store.h, which uses Redis.  Tests have two
 * more: memory_store.h in tests/support, and cli/faulty_store.h, which injects faults into another
 * store.  runtime/store/txn.h builds transactions on the operations of any implementation.
 *
 * All operations are asynchronous: the functions return at once and the callbacks run later on
 * the loop thread, exactly once.  A callback gets TDM_E_STORE if the store could not be reached
 * by the deadline.  All functions must be called with the loop lock held. */

struct tdm__store;
/* Cache of the records that this process last read or wrote; see runtime/store/read_cache.h. */
struct tdm__read_cache;

/* One record as it was read from the store. All memory is borrowed until the callback returns. */
struct tdm__store_record {
    const char *key;        /* Key of the record, such as "actor/3f20...", NUL-terminated. */
    uint64_t version;       /* Version that the last change has given the record. */
    struct tdm_bytes bytes; /* Contents of the record. */
};

/* Callback that receives the outcome of a read. The records are sorted by key and borrowed until
 * the callback returns. `records_count` is 0 if `status` is not TDM_OK. */
typedef void tdm__store_read_fn(void *arg, tdm_status status,
                                const struct tdm__store_record *records, uint32_t records_count);
/* Callback that receives the outcome of a commit. `version` is the new version of all records that
 * the commit put, or TDM__VERSION_NONE if it put none or failed. */
typedef void tdm__store_commit_fn(void *arg, tdm_status status, uint64_t version);
/* Callback that tells a watcher that the record with the key `key` was written or deleted. `key`
 * equals the watched prefix if changes may have been missed. */
typedef void tdm__store_changed_fn(void *arg, const char *key);

/* What one write of a commit does to its record. */
enum tdm__store_write_kind {
    TDM__STORE_PUT, /* Set the contents of the record; create it if it is absent. */
    /* Remove the record.  An absent record is no error unless `version` says otherwise. */
    TDM__STORE_DELETE,
    TDM__STORE_CHECK_VERSION, /* Change nothing and only check the version of the record. */
    /* Renew the lease of the record and keep bytes and version. TDM_E_CONFLICT if the record has
     * vanished. */
    TDM__STORE_RENEW_LEASE
};

/* Version in a write that accepts any version of the record, and an absent record. */
#define TDM__VERSION_ANY UINT64_MAX
/* Version of a record that does not exist. A write with it requires that the record does not exist.
 * Also the version that a commit reports if it failed or put no record. */
#define TDM__VERSION_NONE 0u

/* One write of a commit to the store. The function commit() copies it, so the memory may be reused
 * after the call. */
struct tdm__store_write {
    enum tdm__store_write_kind kind; /* What the write does to its record. */
    const char *key;                 /* Key of the record, which need not exist. */
    /* Version that the record must have now, TDM__VERSION_ANY or TDM__VERSION_NONE. */
    uint64_t version;
    struct tdm_bytes bytes; /* New contents of the record; used by TDM__STORE_PUT only. */
    /* Milliseconds after which the record vanishes unless it is written or renewed; 0 if it
     * stays. */
    int64_t lease_ms;
};

/* Functions of one implementation of the store. */
struct tdm__store_ops {
    const char *name; /* Name of the implementation for errors and logs; static. */

    /* Closes and frees the store. The callbacks of pending operations run with TDM_E_STORE before
     * close() returns; they must not start further operations. */
    void (*close)(struct tdm__store *store);
    /* Reads a consistent snapshot of the records that match any of the patterns.  A pattern is an
     * exact key, or a prefix followed by '*'. */
    void (*read)(struct tdm__store *store, const char *const *patterns, uint32_t patterns_count,
                 int64_t deadline_ms, tdm__store_read_fn *fn, void *arg);
    /* Commits writes: carries out all of them (at most 10,000) or none. The callback gets TDM_OK,
     * TDM_E_CONFLICT if a version did not match and nothing was written, or TDM_E_STORE if the
     * outcome is unknown. */
    void (*commit)(struct tdm__store *store, const struct tdm__store_write *writes,
                   uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn, void *arg);
    /* Calls fn once for each later change of a record whose key begins with `prefix`. After a
     * reconnect, when changes may have been missed, fn gets the prefix itself, and the watcher must
     * read again. The expiry of a lease is not reported: watchers must check the time themselves.
     * Each prefix can have one watcher. */
    tdm_status (*watch)(struct tdm__store *store, const char *prefix, tdm__store_changed_fn *fn,
                        void *arg);
};

/* A store, as its users see it. It is the first member of each implementation's structure. The loop
 * lock guards it. */
struct tdm__store {
    const struct tdm__store_ops *ops; /* Functions of the store's implementation; static. */
    /* True while the store is being closed: failed operations must not be repeated. */
    bool closing;
    /* Cache with which queued transactions start instead of a read; borrowed from the owner of
     * the store.  NULL if absent. */
    struct tdm__read_cache *read_cache;
    /* Queue of transactions of this process that run one after the other;
     * scheduler/retrying_txn.h owns it.  NULL if it is empty. */
    struct tdm__retrying_txn *queued_txns;
    /* Last entry of `queued_txns`; undefined while that queue is empty. */
    struct tdm__retrying_txn *last_queued_txn;
};

#endif
