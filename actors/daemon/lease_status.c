/* lease_status.c - what the parts of a daemon know about this node's lease in the store. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/lease_status.h"

#include "runtime/clock.h"
#include "runtime/log.h"
#include "scheduler/records.h"

#include <stdio.h>
#include <string.h>

bool tdm__lease_status_was_lost(const struct tdm__lease_status *status)
{
    return status->lost_ms != 0 && tdm__clock_ms() - status->lost_ms < TDM__NODE_REJOIN_MS;
}

bool tdm__lease_status_has_ended(const struct tdm__lease_status *status)
{
    return status->fence_ms != 0 && tdm__clock_boot_ms() >= status->fence_ms;
}

bool tdm__lease_status_explain(const struct tdm__lease_status *status, char *text, size_t capacity)
{
    int64_t left_ms = status->fence_ms - tdm__clock_boot_ms();

    if (status->store_error[0] == '\0') {
        (void)snprintf(text, capacity, "%s", "");
        return false;
    }
    if (status->fence_ms == 0) {
        (void)snprintf(text, capacity, "Redis is unavailable: %s", status->store_error);
    } else if (left_ms > 0) {
        (void)snprintf(text, capacity,
                       "Redis is unavailable; if it stays so for %lld s more, the node stops its "
                       "actors with names, restarts or GPUs: %s",
                       (long long)(left_ms + 999) / 1000, status->store_error);
    } else {
        (void)snprintf(text, capacity,
                       "Redis is unavailable, and the node has stopped its actors with names, "
                       "restarts or GPUs because its lease ended %lld s ago: %s",
                       (long long)-left_ms / 1000, status->store_error);
    }
    return true;
}

void tdm__lease_status_set_store_error(struct tdm__lease_status *status, const char *store_error)
{
    char text[TDM__LEASE_TROUBLE_BYTES];

    if (strcmp(status->store_error, store_error) == 0) {
        return;
    }
    (void)snprintf(status->store_error, sizeof(status->store_error), "%s", store_error);
    if (tdm__lease_status_explain(status, text, sizeof(text))) {
        tdm__log(TDM__WARN, "node", "%s", text);
    } else {
        tdm__log(TDM__INFO, "node", "the lease is renewed again");
    }
}
