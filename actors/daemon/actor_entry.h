/* actor_entry.h - one actor in the table of its node's daemon, and that table; the actor_*.c files
 * share both. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_ENTRY_H
#define TDM_ACTORS_DAEMON_ACTOR_ENTRY_H

#include "actors/daemon/actor_lifecycle.h"
#include "actors/daemon/node_state.h"

struct ping;                /* A ping of a worker, defined in actor_health.c. */
struct placement_release;   /* A pending release, defined in actor_placement.c. */
struct tdm__worker_process; /* See worker_processes.h. */

/* Event of an actor for which a pending call waits. */
enum actor_waiter_kind {
    WAITER_FOR_START, /* The reply is the description of the started actor, or its death. */
    /* The caller killed the actor; the reply is empty and sent once the actor's name is free. */
    WAITER_FOR_END
};

/* A call that waits for the start or the end of an actor. The entry owns it. */
struct actor_waiter {
    struct actor_waiter *next;           /* Next waiter of the same actor. */
    enum actor_waiter_kind kind;         /* Event for which the call waits. */
    struct tdm__incoming_call *incoming; /* The call to reply to, owned. */
};

/* An actor that this daemon runs, starts, or has asked another node to run. The table owns it. */
struct actor_entry {
    struct actor_entry *next; /* Next entry of the table. */
    struct tdm__node *node;   /* The daemon's state, borrowed. */
    /* State of the actor; changed by tdm__actor_entry_handle() alone. */
    struct actor_lifecycle lifecycle;
    struct tdm__actor_spec *spec; /* What the creator asked for, owned. */
    char label[80];               /* Name or class and id of the actor, for messages. */
    /* Calls that wait for the start or the end of the actor, owned. */
    struct actor_waiter *waiters;
    /* The actor's record in the store, with its node and resources; valid from ACTOR_STARTING on.
     */
    struct tdm__actor_record record;
    /* Name of the node in `record`, for messages. */
    char placement_node_name[TDM__NODE_NAME_BYTES];
    /* Worker process on this node, borrowed; NULL if absent. */
    struct tdm__worker_process *worker;
    int64_t started_ms; /* Start of the current worker in milliseconds on CLOCK_MONOTONIC. */
    int64_t pid;        /* Process id of the constructed worker; 0 before that. */
    /* Address of the worker for callers on this node; "" until it is constructed. */
    char unix_address[TDM__ADDRESS_BYTES];
    /* Address of the worker for callers on other nodes; "" if absent. */
    char tcp_address[TDM__ADDRESS_BYTES];
    /* Why the worker ends, where its exit status cannot tell; "" if that is not known. */
    char failure[TDM__ADDRESS_BYTES * 4];
    /* In state ACTOR_WAITING the resource, name or argument that is missing; else "". */
    char waits_for[TDM__ADDRESS_BYTES * 2];
    /* Time since when the store may lack the record, in milliseconds on CLOCK_MONOTONIC. */
    int64_t lost_since_ms;
    /* The daemon's own ping of the worker, borrowed; NULL if none is pending. */
    const struct ping *ping;
    struct tdm__id owner_node; /* Node of the creator; all zeros if that is this node. */
    /* Timer that reports ACTOR_ON_TIMER, owned; NULL if it was never set. */
    struct tdm__timer *timer;
};

/* How an actor of this node ended, remembered for later queries. */
struct actor_tombstone {
    struct tdm__id id; /* Id of the ended actor. */
    tdm_status status; /* Status that calls of the actor fail with. */
    char *text;        /* Cause of the end, owned; NULL in an unused tombstone. */
};

/* A callback that waits until no matching actor is left. The table owns it. */
struct actors_end_wait {
    struct actors_end_wait *next; /* Next wait of the table. */
    /* Returns true for the actors that must end. */
    bool (*matches)(const struct tdm__actor_spec *spec, const void *key);
    struct tdm__id key;    /* Second argument of `matches`. */
    void (*fn)(void *arg); /* Callback, called once. */
    void *arg;             /* Argument of `fn`. */
};

/* A query about an actor that is not in the table yet, because its start or its creation is on its
 * way to this node. */
struct early_query {
    struct early_query *next;            /* Next early query of the table. */
    struct tdm__id actor;                /* Id of the expected actor. */
    struct tdm__incoming_call *incoming; /* The call to reply to, owned. */
    int64_t deadline_ms; /* Milliseconds on CLOCK_MONOTONIC after which the query fails. */
};

/* Number of ended actors that a daemon remembers. */
enum { ACTOR_TOMBSTONES_MAX = 512 };

/* The table of actors of a daemon. struct tdm__node owns it. */
struct tdm__node_actors {
    struct actor_entry *all; /* List of all entries, owned, newest first. */
    /* Callbacks that wait for the end of actors, owned. */
    struct actors_end_wait *actors_end_waits;
    /* Placements and names that the store has not taken back yet, owned. */
    struct placement_release *pending_releases;
    struct early_query *early_queries; /* Queries about expected actors, owned. */
    /* Ring of the actors that ended last. */
    struct actor_tombstone tombstones[ACTOR_TOMBSTONES_MAX];
    uint32_t next_tombstone; /* Index of the tombstone to overwrite next. */
    /* Timer for pinging workers, owned; NULL if health checks are off. */
    struct tdm__timer *health_timer;
};

#endif
