/* probe.c - waits until a store can be read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/probe.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>

/* The first read of a store, of no patterns, which shows whether the library of Lua functions is
 * loaded. */
struct probe {
    bool ended;                           /* Whether the first read has completed. */
    tdm_status status;                    /* Outcome of the first read. */
    char detail[TDM__ERROR_DETAIL_BYTES]; /* Error text of the first read's failure. */
};

/* Stores the outcome of the store's first read in the probe `arg`. */
static void probe_on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                          uint32_t records_count)
{
    struct probe *probe = arg;

    (void)records;
    (void)records_count;
    probe->ended = true;
    probe->status = status;
    (void)snprintf(probe->detail, sizeof(probe->detail), "%s", tdm_error_detail());
}

/* Tells the loop whether the first read of the store has completed. */
static bool probe_is_done(void *arg)
{
    return ((const struct probe *)arg)->ended;
}

tdm_status tdm__redis_probe(struct tdm__loop *loop, struct tdm__store *store, int64_t timeout_ms)
{
    struct probe probe = {.ended = false};
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);

    store->ops->read(store, NULL, 0, deadline_ms, probe_on_read, &probe);
    /* The read ends at its deadline, so the result of the loop does not matter. */
    while (!probe.ended) {
        (void)tdm__loop_run(loop, probe_is_done, &probe, deadline_ms);
    }
    return probe.status == TDM_OK ? TDM_OK : tdm__fail(probe.status, "%s", probe.detail);
}
