/* replicated.c - a store whose most important changes count only when replicas have them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Redis replicates asynchronously: a server that is replaced by a replica may take the changes of
 * its last moments with it, and during a partition two servers may both accept changes. The wrapper
 * asks with WAIT how many replicas have confirmed what this connection has written. If they are too
 * few, the change fails for the caller, who repeats it. The repeated transaction may find that the
 * change was carried out; it then commits a check of the change, which must be confirmed, too
 * (tdm__txn_require_confirmed()). Everything runs on the loop's thread. */
#include "runtime/redis/replicated.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/redis/store.h"
#include "runtime/store/records.h"

#include <stdlib.h>
#include <string.h>

/* Milliseconds that the server waits for its replicas; commands behind WAIT are delayed. */
enum { WAIT_MS = 1000 };

/* A store whose changes wait for replicas. */
struct replicated_store {
    /* The store as its users see it; first field, because pointers to it are cast to this
     * structure. */
    struct tdm__store store;
    struct tdm__store *inner; /* Store that carries out the operations (owned). */
    uint32_t replicas_count;  /* Number of replicas that must confirm a change. */
};

/* A commit or renewal in progress that has to be confirmed. It is freed when it completes. */
struct confirmation {
    struct replicated_store *replicated; /* Store that carries out the commit. */
    tdm__store_commit_fn *fn;            /* Callback of the caller's commit; NULL for a renewal. */
    tdm__store_renewed_fn *renewed_fn;   /* Callback of the caller's renewal; NULL for a commit. */
    void *arg;                           /* First argument of the callback. */
    uint64_t version;                    /* Version that the commit gave its records. */
    struct tdm__store_renewed renewed;   /* The store's answer to the renewal. */
    /* List of members in that answer (owned); NULL if there is none. */
    struct tdm__store_records *members;
};

/* Reports the outcome of a commit or renewal to the caller and frees the confirmation. */
static void confirmation_end(struct confirmation *confirmation, tdm_status status)
{
    const struct tdm__store_records *members = confirmation->members;

    if (confirmation->fn != NULL) {
        const struct tdm__store_committed committed = {
            .version = status == TDM_OK ? confirmation->version : TDM__VERSION_NONE};

        confirmation->fn(confirmation->arg, status, &committed);
    } else {
        confirmation->renewed_fn(confirmation->arg, status,
                                 status == TDM_OK ? &confirmation->renewed : NULL,
                                 status == TDM_OK && members != NULL ? members->items : NULL,
                                 status == TDM_OK && members != NULL ? members->count : 0);
    }
    free(confirmation->members);
    free(confirmation);
}

bool tdm__commit_needs_replicas(const struct tdm__store_write *writes, uint32_t writes_count)
{
    for (uint32_t i = 0; i < writes_count; i++) {
        bool is_name = strncmp(writes[i].key, "name/", 5) == 0 ||
                       strncmp(writes[i].key, "group_name/", 11) == 0;

        if (writes[i].kind == TDM__STORE_CHECK_LOST || writes[i].needs_replicas ||
            (is_name && writes[i].kind == TDM__STORE_PUT)) {
            return true;
        }
    }
    return false;
}

/* Handles the server's reply to WAIT: `confirmed` replicas have the change. */
static void on_replicas_counted(void *arg, tdm_status status,
                                const struct tdm__store_committed *committed)
{
    struct confirmation *confirmation = arg;
    uint64_t confirmed = committed->version;
    uint32_t wanted = confirmation->replicated->replicas_count;

    if (status == TDM_OK && confirmed < wanted) {
        status =
            tdm__fail(TDM_E_STORE,
                      "%u of the %u replicas that --redis-wait-replicas demands have confirmed "
                      "a change: start more replicas of Redis, or lower the number",
                      (uint32_t)confirmed, wanted);
    }
    confirmation_end(confirmation, status);
}

/* Asks how many replicas have a change that succeeded, or reports its failure. */
static void confirmation_continue(struct confirmation *confirmation, tdm_status status)
{
    struct replicated_store *replicated = confirmation->replicated;

    if (status == TDM_OK && !replicated->store.closing) {
        tdm__store_redis_wait(replicated->inner, replicated->replicas_count, WAIT_MS,
                              on_replicas_counted, confirmation);
    } else {
        confirmation_end(confirmation, status);
    }
}

/* Handles the outcome of a commit that has to be confirmed. */
static void on_committed(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    struct confirmation *confirmation = arg;

    if (status == TDM_E_CONFLICT) {
        confirmation->fn(confirmation->arg, status, committed);
        free(confirmation);
        return;
    }
    confirmation->version = committed->version;
    confirmation_continue(confirmation, status);
}

/* Handles the outcome of a renewal. */
static void on_renewed(void *arg, tdm_status status, const struct tdm__store_renewed *renewed,
                       const struct tdm__store_record *members, uint32_t members_count)
{
    struct confirmation *confirmation = arg;

    if (status == TDM_OK) {
        confirmation->renewed = *renewed;
    }
    if (status == TDM_OK && members != NULL) {
        status = tdm__store_records_copy(members, members_count, &confirmation->members);
    }
    confirmation_continue(confirmation, status);
}

/* Allocates a confirmation. Running out of memory ends the process. */
static struct confirmation *confirmation_create(struct replicated_store *replicated,
                                                tdm__store_commit_fn *fn,
                                                tdm__store_renewed_fn *renewed_fn, void *arg)
{
    struct confirmation *confirmation = calloc(1, sizeof(*confirmation));

    TDM_ASSERT(confirmation != NULL);
    *confirmation = (struct confirmation){
        .replicated = replicated, .fn = fn, .renewed_fn = renewed_fn, .arg = arg};
    return confirmation;
}

/* Forwards a commit to the inner store, and has it confirmed if that is needed. */
static void replicated_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                              uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                              void *arg)
{
    struct replicated_store *replicated = (struct replicated_store *)store;
    struct tdm__store *inner = replicated->inner;

    if (!tdm__commit_needs_replicas(writes, writes_count)) {
        inner->ops->commit(inner, writes, writes_count, deadline_ms, fn, arg);
        return;
    }
    inner->ops->commit(inner, writes, writes_count, deadline_ms, on_committed,
                       confirmation_create(replicated, fn, NULL, arg));
}

/* Forwards a renewal to the inner store, and has it confirmed. */
static void replicated_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                             int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    struct replicated_store *replicated = (struct replicated_store *)store;

    replicated->inner->ops->renew(replicated->inner, renewal, deadline_ms, on_renewed,
                                  confirmation_create(replicated, NULL, fn, arg));
}

/* Forwards a read to the inner store. */
static void replicated_read(struct tdm__store *store, const char *const *patterns,
                            uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                            void *arg)
{
    struct tdm__store *inner = ((struct replicated_store *)store)->inner;

    inner->ops->read(inner, patterns, patterns_count, deadline_ms, fn, arg);
}

/* Forwards a watch to the inner store. */
static tdm_status replicated_watch(struct tdm__store *store, const char *prefix,
                                   tdm__store_changed_fn *fn, void *arg)
{
    struct tdm__store *inner = ((struct replicated_store *)store)->inner;

    return inner->ops->watch(inner, prefix, fn, arg);
}

/* Closes the inner store and frees the wrapper. */
static void replicated_close(struct tdm__store *store)
{
    struct replicated_store *replicated = (struct replicated_store *)store;

    store->closing = true;
    /* Closing completes all pending operations with a failure. */
    replicated->inner->ops->close(replicated->inner);
    free(replicated);
}

/* The functions of a store whose changes wait for replicas. */
static const struct tdm__store_ops replicated_ops = {
    .name = "replicated",
    .close = replicated_close,
    .read = replicated_read,
    .commit = replicated_commit,
    .watch = replicated_watch,
    .renew = replicated_renew,
};

tdm_status tdm__store_replicated_open(struct tdm__store *inner, uint32_t replicas_count,
                                      struct tdm__store **store_out)
{
    struct replicated_store *replicated = calloc(1, sizeof(*replicated));

    if (replicated == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a replicated store");
    }
    replicated->store.ops = &replicated_ops;
    replicated->inner = inner;
    replicated->replicas_count = replicas_count;
    *store_out = &replicated->store;
    return TDM_OK;
}
