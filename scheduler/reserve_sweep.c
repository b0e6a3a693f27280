/* reserve_sweep.c - the records that dead nodes left, removed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/error.h"
#include "scheduler/attempt.h"
#include "scheduler/reserve.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDS_AT_ONCE = 900 }; /* a commit has at most 1,000 writes */

struct sweep {
    uint32_t removed_count;
    tdm__reserve_done *fn;
    void *arg;
};

static bool is_there(const struct tdm__txn *txn, const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];

    return tdm__txn_find(txn, tdm__store_key("node", node, key)) != NULL;
}

static bool is_of_the_dead(const struct tdm__txn *txn, const struct tdm__record *record)
{
    struct tdm__actor_record actor;

    if (strncmp(record->key, "node/", 5) == 0 ||
        tdm__actor_record_read(record, &actor) != TDM_OK) {
        return false;
    }
    return !is_there(txn, &actor.node) && !(actor.returns && is_there(txn, &actor.home));
}

static tdm_status sweep_body(void *arg, struct tdm__txn *txn)
{
    struct sweep *sweep = arg;

    sweep->removed_count = 0;
    for (uint32_t i = 0; i < tdm__txn_count(txn) && sweep->removed_count < RECORDS_AT_ONCE;
         i++) {
        const struct tdm__record *record = tdm__txn_at(txn, i);

        if (is_of_the_dead(txn, record)) {
            TDM_TRY(tdm__txn_delete(txn, record->key));
            sweep->removed_count++;
        }
    }
    return TDM_OK;
}

static void sweep_done(void *arg, tdm_status status, const char *detail)
{
    struct sweep *sweep = arg;
    bool is_over = status != TDM_OK || sweep->removed_count < RECORDS_AT_ONCE;

    sweep->fn(sweep->arg, is_over ? status : TDM_E_AGAIN, detail);
    free(sweep);
}

tdm_status tdm__reserve_sweep(struct tdm__loop *loop, struct tdm__store *store,
                              int64_t deadline_ms, tdm__reserve_done *fn, void *arg)
{
    static const char *const patterns[] = {"node/*", "actor/*", "name/*"};
    struct sweep *sweep = calloc(1, sizeof(*sweep));
    tdm_status status;

    if (sweep == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a sweep of records");
    }
    *sweep = (struct sweep){.fn = fn, .arg = arg};
    status =
        tdm__attempt_run(loop, store, patterns, 3, deadline_ms, sweep_body, sweep_done, sweep);
    if (status != TDM_OK) {
        free(sweep);
    }
    return status;
}
