/* lease_machine.h - the state of a node's own lease, as a pure state machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_LEASE_MACHINE_H
#define TDM_ACTORS_DAEMON_LEASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* The end of a lease that never ends. */
#define LEASE_NEVER INT64_MAX

/* What the daemon has asked the store and has no reply to. */
enum lease_request {
    LEASE_ASKS_NOTHING, /* Every request has been replied to. */
    LEASE_RENEWS,       /* The store has been asked to renew the lease. */
    LEASE_JOINS         /* The store has been asked to write the node's records. */
};

/* State of the lease of this node. It is a value, copied by assignment; tdm__lease_machine_init()
 * sets it. All times are of this node's own clock. The unit of time is of no concern to the
 * machine; the daemon uses milliseconds of CLOCK_BOOTTIME. */
struct lease_machine {
    int64_t lease;              /* How long a renewal counts. */
    int64_t sent_at;            /* When the request that was sent last was sent. */
    int64_t ends_at;            /* When the lease ends, by the last successful request. */
    enum lease_request request; /* What the store has been asked. */
    /* True if the store has no record of this node, so that the node must join again. */
    bool is_lost;
    /* True if a request to join has failed, but may have been carried out nevertheless. */
    bool may_have_joined;
    /* True if the lease has ended and what other nodes may take over was stopped. */
    bool is_fenced;
    /* True while no other node can reach the store, so that none can take anything over. */
    bool is_alone;
};

/* What happens to the lease. */
enum lease_event {
    LEASE_ON_TIMER,   /* It is time to renew the lease, or the end of the lease has come. */
    LEASE_ON_RENEWED, /* The store has renewed the lease. */
    LEASE_ON_REFUSED, /* The store has no record of this node. */
    LEASE_ON_JOINED,  /* The store has written the records of this node. */
    LEASE_ON_FAILED,  /* The store has not replied, or could not do what it was asked. */
    LEASE_ON_SHARED   /* Another node is about to reach the store. */
};

/* What the daemon has to do after an event, in the order of the members. */
struct lease_actions {
    /* Stop the actors that other nodes may take over: those with names, restarts or GPUs. */
    bool fences;
    /* Tell the supervisor when the lease ends (tdm__lease_machine_fence_at()), because that
     * changed. */
    bool publishes;
    bool has_joined; /* Write the records of actors and groups again. */
    bool renews;     /* Ask the store to renew the lease. */
    bool joins;      /* Ask the store to write the records of this node. */
};

/* Sets `machine` to the lease of a node that has just begun to join, at the time `now`. */
void tdm__lease_machine_init(struct lease_machine *machine, int64_t lease, bool is_alone,
                             int64_t now);
/* Handles one event at the time `now`: changes the state and returns what is to be done. */
struct lease_actions tdm__lease_machine_step(struct lease_machine *machine, enum lease_event event,
                                             int64_t now);
/* Returns the time at which the supervisor kills what other nodes may take over; LEASE_NEVER for a
 * node whose store no other node can reach. */
int64_t tdm__lease_machine_fence_at(const struct lease_machine *machine);

#endif
