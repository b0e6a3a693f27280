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
 * read and then writes all records or none. (The only others are renewals of leases.)  So every
 * protocol on top (placement, names, weight versions) reads, decides, commits, and repeats after
 * TDM_E_CONFLICT.  A lost reply does no harm: each commit has a number, and the store replies to a
 * repeated commit with the first outcome.
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

/* Bytes of the record PREFIX* in the reply to a read of PREFIX*>VERSION: only changes follow. */
#define TDM__STORE_CHANGES "changes"
/* The same: all records of the prefix follow, because VERSION is 0, records were removed since, the
 * store has a new generation, or it does not keep the changes of this prefix. */
#define TDM__STORE_ALL "all"

/* Callback that receives the outcome of a read. The records are sorted by key and borrowed until
 * the callback returns. `records_count` is 0 if `status` is not TDM_OK. */
typedef void tdm__store_read_fn(void *arg, tdm_status status,
                                const struct tdm__store_record *records, uint32_t records_count);
/* What a commit has done. Pointers are borrowed until the callback returns. */
struct tdm__store_committed {
    /* New version of all records that the commit put; TDM__VERSION_NONE if it put none or failed.
     */
    uint64_t version;
    /* After TDM_E_CONFLICT the records as they are in the store whose versions the commit did not
     * expect, sorted by key; the version of one that is absent is TDM__VERSION_NONE. NULL if the
     * store does not know them any more. */
    const struct tdm__store_record *losers;
    uint32_t losers_count; /* Number of entries in `losers`. */
};
/* Callback that receives the outcome of a commit; `committed` is never NULL. */
typedef void tdm__store_commit_fn(void *arg, tdm_status status,
                                  const struct tdm__store_committed *committed);
/* Callback that tells a watcher that the record with the key `key` was written or deleted. `key`
 * equals the watched prefix if changes may have been missed. */
typedef void tdm__store_changed_fn(void *arg, const char *key);

/* What one write of a commit does to its record. */
enum tdm__store_write_kind {
    TDM__STORE_PUT, /* Set the contents of the record; create it if it is absent. */
    /* Remove the record.  An absent record is no error unless `version` says otherwise. */
    TDM__STORE_DELETE,
    TDM__STORE_CHECK_VERSION, /* Change nothing and only check the version of the record. */
    /* Change nothing and only check that the member whose record is `key` is lost: the record is
     * absent (else TDM_E_CONFLICT), and members may be taken over now (else TDM_E_AGAIN). */
    TDM__STORE_CHECK_LOST,
    /* Change nothing and only check that the generation of the store is `version`, and that it is
     * still the server of that generation (else TDM_E_AGAIN). `key` is the record for which this
     * matters, and may be absent. */
    TDM__STORE_CHECK_GENERATION
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
    /* True for a check of what an earlier commit of this process may have written: if changes count
     * only with replicas (runtime/redis/replicated.h), this commit and all earlier ones must have
     * been confirmed by them. */
    bool needs_replicas;
    const char *key; /* Key of the record, which need not exist. */
    /* Version that the record must have now, TDM__VERSION_ANY or TDM__VERSION_NONE. */
    uint64_t version;       /* TDM__STORE_CHECK_GENERATION: the number of the generation. */
    struct tdm_bytes bytes; /* New contents of the record; used by TDM__STORE_PUT only. */
    /* Milliseconds of a new lease, which makes the record that of a member, see struct
     * tdm__store_renewal; 0 for a record without a lease. Used by TDM__STORE_PUT only. */
    int64_t lease_ms;
};

/* A record with a lease describes a member of the cluster, which is a node. The store keeps a clock
 * that judges leases. Each renewal, and each new lease, advances this kept clock by the time that
 * has passed since the last one of any member, but by at most TDM__STORE_CLOCK_STEP_MS. So a time
 * in which the store did not answer does not count against a member. When the kept clock has passed
 * the end of a lease plus the grace, the next renewal of another member takes the member over: it
 * removes the record, and the member is lost. A renewal of a lost member is refused.
 *
 * After the store was replaced by another server, or has lost changes, no member is taken over for
 * one lease plus the grace, because the members may have renewed leases that this store does not
 * have. The numbers of such changes are the generations of the store. */
struct tdm__store_renewal {
    const char *key;  /* Key of the record of the member that renews its lease. */
    int64_t lease_ms; /* Milliseconds of the kept clock for which the renewal counts. */
    /* Milliseconds of the kept clock between the end of a lease and the loss of its member. */
    int64_t grace_ms;
    /* Epoch of the list of members that the caller knows; TDM__VERSION_NONE if it knows none. */
    uint64_t members_epoch;
    /* Count of the last renewal of this member that the store has acknowledged since the member
     * joined; 0 if none. A store of the same generation with a lower count has lost changes. */
    uint64_t renewals_count;
    uint64_t generation; /* Generation of the store at that renewal; 0 if none. */
};
/* Most milliseconds by which one renewal advances the kept clock. */
enum { TDM__STORE_CLOCK_STEP_MS = 2000 };

/* The store's answer to a renewal. */
struct tdm__store_renewed {
    uint64_t clock_ms; /* Time of the kept clock in milliseconds. */
    /* Version of the member's own record: its epoch, which is new whenever it joins. */
    uint64_t epoch;
    uint64_t members_epoch;  /* Epoch of the list of members, which is new at each change. */
    uint64_t renewals_count; /* Count of this renewal, to be passed with the next one. */
    uint64_t generation;     /* Number of the store's generation; it only grows. */
    /* Milliseconds of the kept clock for which no member is taken over, because the generation has
     * changed; 0 usually. An absent record means nothing until then. */
    uint64_t held_ms;
};
/* Callback that receives the outcome of a renewal. `renewed` is NULL unless `status` is TDM_OK.
 * TDM_E_CONFLICT: the member's record does not exist, so the member must join again. `members` are
 * the records of all members, sorted by key, or NULL if the caller knows their list already; they
 * are borrowed until the callback returns. */
typedef void tdm__store_renewed_fn(void *arg, tdm_status status,
                                   const struct tdm__store_renewed *renewed,
                                   const struct tdm__store_record *members, uint32_t members_count);

/* Functions of one implementation of the store. */
struct tdm__store_ops {
    const char *name; /* Name of the implementation for errors and logs; static. */

    /* Closes and frees the store. The callbacks of pending operations run with TDM_E_STORE before
     * close() returns; they must not start further operations. */
    void (*close)(struct tdm__store *store);
    /* Reads a consistent snapshot of the records that match any of the patterns.  A pattern is an
     * exact key, a prefix followed by '*', or PREFIX*>VERSION, VERSION being decimal: what has
     * changed since that version.  The last one begins with a record whose key is PREFIX*, whose
     * version is that of the store now (to be passed with the next read), and whose bytes say
     * TDM__STORE_CHANGES if the records that follow are those put since VERSION and none was
     * removed, and else TDM__STORE_ALL if they are all records of the prefix. */
    void (*read)(struct tdm__store *store, const char *const *patterns, uint32_t patterns_count,
                 int64_t deadline_ms, tdm__store_read_fn *fn, void *arg);
    /* Commits writes: carries out all of them (at most 10,000) or none. The callback gets TDM_OK,
     * TDM_E_CONFLICT if a version did not match and nothing was written, TDM_E_AGAIN if it relied
     * on the loss of a member when no loss counts, or on a generation that has ended, or
     * TDM_E_STORE if the outcome is unknown. */
    void (*commit)(struct tdm__store *store, const struct tdm__store_write *writes,
                   uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn, void *arg);
    /* Calls fn once for each later change of a record whose key begins with `prefix`. After a
     * reconnect, when changes may have been missed, fn gets the prefix itself, and the watcher must
     * read again. Each prefix can have one watcher. */
    tdm_status (*watch)(struct tdm__store *store, const char *prefix, tdm__store_changed_fn *fn,
                        void *arg);
    /* Renews the lease of a member, and takes over the members whose leases and grace have ended.
     * Works also while the server has no memory for other commits. `renewal` is copied. */
    void (*renew)(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                  int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg);
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
