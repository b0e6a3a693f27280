/* lease_status.h - what the parts of a daemon know about this node's lease in the store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_LEASE_STATUS_H
#define TDM_ACTORS_DAEMON_LEASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why an actor has ended that its node had to stop because the lease of the node ended. */
#define TDM__LEASE_ENDED_TEXT "its node lost its lease and stopped it"

/* Capacity of the text of tdm__lease_status_explain(). */
enum { TDM__LEASE_TROUBLE_BYTES = 320 };

/* The state of this node's lease in the store, written by node_lease.c and read by the other files
 * of the daemon. All zeros stands for a lease without trouble. */
struct tdm__lease_status {
    /* True while this node joins the cluster again, because the store has lost the node's record,
     * or may have lost it. */
    bool is_joining;
    /* True from the time when this node begins to join again until it knows its new epoch. */
    bool awaits_epoch;
    /* Time at which the store last did not have this node's record, in milliseconds on
     * CLOCK_MONOTONIC; 0 if never. */
    int64_t lost_ms;
    /* Time at which the lease ends and the actors are stopped that other nodes may take over, in
     * milliseconds on CLOCK_BOOTTIME; 0 if it never ends. */
    int64_t fence_ms;
    /* Error text of the last failed renewal of the lease; "" while renewals succeed. */
    char store_error[160];
};

/* True for TDM__NODE_REJOIN_MS after the store has lost this node's record. Other nodes may not
 * have joined again yet, so missing resources may come back. */
bool tdm__lease_status_was_lost(const struct tdm__lease_status *status);
/* True if the lease has ended, so that the supervisor kills the actors that other nodes may take
 * over. */
bool tdm__lease_status_has_ended(const struct tdm__lease_status *status);
/* Copies the error of the last renewal, "" for success, to status->store_error, cut to the
 * capacity. Logs only when a failure begins, changes or ends. */
void tdm__lease_status_set_store_error(struct tdm__lease_status *status, const char *store_error);
/* While renewals fail, writes a sentence to `text` that names Redis, the error, and the time that
 * is left until actors are stopped, and returns true. Otherwise returns false and writes "". */
bool tdm__lease_status_explain(const struct tdm__lease_status *status, char *text, size_t capacity);

#endif
