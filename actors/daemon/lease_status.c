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
    return status->lost_ms != 0 && tdm__clock_ms() - status->lost_ms < TDM__NODE_LEASE_MS;
}

void tdm__lease_status_set_store_error(struct tdm__lease_status *status, const char *store_error)
{
    if (strcmp(status->store_error, store_error) == 0) {
        return;
    }
    if (store_error[0] == '\0') {
        tdm__log(TDM__INFO, "node", "the lease is renewed again");
    } else {
        tdm__log(TDM__WARN, "node", "renewing the lease, again each second: %s", store_error);
    }
    (void)snprintf(status->store_error, sizeof(status->store_error), "%s", store_error);
}
