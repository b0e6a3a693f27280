/* reserve_epoch.c - a node that lives gets a new epoch. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reserve_epoch.h"

#include "runtime/error.h"
#include "scheduler/records.h"
#include "scheduler/retrying_txn.h"

#include <stdlib.h>

/* State of tdm__reserve_new_epoch(). */
struct epoch_change {
    struct tdm__id node;      /* ID of the node that gets a new epoch. */
    uint64_t epoch;           /* Epoch than which the new one must be higher. */
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Body of the transaction: writes the node's record again, because the version of the record is the
 * epoch. Does nothing if that was committed before. */
static tdm_status epoch_change_body(void *arg, struct tdm__txn *txn)
{
    const struct epoch_change *change = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("node", &change->node, key));
    struct tdm__node_record node;

    if (record == NULL || record->version > change->epoch) {
        return TDM_OK;
    }
    TDM_TRY(tdm__node_record_read(record, &node));
    if (node.lives_since == 0) {
        node.lives_since = node.epoch;
    }
    return tdm__node_record_put(txn, &node);
}

/* Reports the outcome and frees the operation's state. */
static void epoch_change_done(void *arg, tdm_status status, const char *detail)
{
    struct epoch_change *change = arg;

    change->fn(change->arg, status, detail);
    free(change);
}

tdm_status tdm__reserve_new_epoch(struct tdm__store *store, const struct tdm__id *node,
                                  uint64_t epoch, int64_t deadline_ms, tdm__reserve_done_fn *fn,
                                  void *arg)
{
    struct epoch_change *change = calloc(1, sizeof(*change));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("node", node, key)};
    tdm_status status;

    if (change == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a new epoch of a node");
    }
    *change = (struct epoch_change){*node, epoch, fn, arg};
    status = tdm__retrying_txn_run(store, patterns, 1, deadline_ms, epoch_change_body,
                                   epoch_change_done, change);
    if (status != TDM_OK) {
        free(change);
    }
    return status;
}
