/* actor_entry.h - one actor in the table of its node's daemon, and that table; the actor_*.c files
 * share both. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_ENTRY_H
#define TDM_ACTORS_DAEMON_ACTOR_ENTRY_H

#include "actors/daemon/actor_lifecycle.h"
#include "actors/daemon/node_state.h"
#include "scheduler/reserve_reconcile.h"

struct end_report; /* A report of an actor's end to another daemon, see actor_remote.c. */
struct ping;       /* A ping of a worker process, defined in actor_health.c. */
/* Resources on their way back to the store, defined in actor_placement.c. */
struct placement_release;
struct tdm__worker_process; /* See worker_processes.h. */

/* What a pending call to this daemon waits for. */
enum actor_waiter_kind {
    /* The call waits for the actor's start; the reply is its description, or its death. */
    WAITER_FOR_START,
    /* The call asks which actor has a name, and waits until it is decided whether the actor gets
     * the name, or until the actor ends; the reply is a message actor_found, or its death. */
    WAITER_FOR_NAME,
    /* The call killed the actor and waits for its end; the empty reply is sent once the actor's
     * name is free. */
    WAITER_FOR_END
};

/* A call to this daemon that waits for the start, the name or the end of an actor. The actor's
 * entry owns it. */
struct actor_waiter {
    struct actor_waiter *next;   /* Next call that waits for the same actor. */
    enum actor_waiter_kind kind; /* What the call waits for. */
    /* The waiting call, to which the daemon must reply, owned. */
    struct tdm__incoming_call *incoming;
};

/* An actor that this daemon runs, starts, or has asked another node to run. The daemon's table of
 * actors owns it. */
struct actor_entry {
    struct actor_entry *next; /* Next actor of the table. */
    struct tdm__node *node;   /* State of this node's daemon, borrowed. */
    /* State of the actor in its state machine; changed by tdm__actor_entry_handle() alone. */
    struct actor_lifecycle lifecycle;
    /* Class, resources and options that the creator asked for, owned. */
    struct tdm__actor_spec *spec;
    char label[80]; /* Name of the actor, or its class and id, for messages. */
    /* Calls that wait for the start, the name or the end of the actor, owned. */
    struct actor_waiter *waiters;
    /* The actor's record in the store, with its node and resources; valid from ACTOR_STARTING on.
     */
    struct tdm__actor_record record;
    /* Generation of the store in which the actor was placed last. */
    uint64_t placed_generation;
    /* Epoch of the actor's node in which the actor was placed there last; 0 if another node placed
     * the actor on this node. */
    uint64_t placed_epoch;
    /* Epoch of the creator's node in which that node placed the actor last. */
    uint64_t owner_epoch;
    /* Name of the node on which the actor is placed, for messages. */
    char placement_node_name[TDM__NODE_NAME_BYTES];
    /* Worker process of the actor on this node, borrowed; NULL if absent. */
    struct tdm__worker_process *worker;
    /* Start of the actor's current worker in milliseconds on CLOCK_MONOTONIC. */
    int64_t started_ms;
    int64_t pid; /* Process id of the worker; 0 until the actor is constructed. */
    /* Address of the worker for callers on this node; "" until the actor is constructed. */
    char unix_address[TDM__ADDRESS_BYTES];
    /* Address of the worker for callers on other nodes; "" if the worker has none. */
    char tcp_address[TDM__ADDRESS_BYTES];
    /* Why the worker ends, if its exit status cannot tell; "" if the reason is not known. It has
     * space for a traceback of Python. */
    char failure[1400];
    /* First line of the death report of the actor's latest process that has ended on this node; ""
     * if none has. */
    char previous_end[TDM__ADDRESS_BYTES * 2];
    /* In state ACTOR_WAITING the resource, name or argument that is missing; else "". */
    char waits_for[TDM__ADDRESS_BYTES * 2];
    /* True if the store has the record of an actor that was marked as lost, except maybe its name.
     */
    bool record_is_written;
    /* Time since when the store may lack the actor's record, in milliseconds on CLOCK_MONOTONIC. */
    int64_t lost_since_ms;
    bool lends_cpus;        /* True while the actor lends its CPUs, because its method waits. */
    bool cpus_are_changing; /* True while the store is told that CPUs are lent or taken back. */
    /* Pending ping of the daemon's health check of the worker, borrowed; NULL if absent. */
    const struct ping *ping;
    /* True if the actor runs on another node, which may have ended it without a report, because
     * this node was lost for a while; false again once that node has said what it knows. */
    bool may_have_ended_elsewhere;
    struct tdm__id owner_node; /* Node of the creator; all zeros if that is this node. */
    /* True once the daemon of the creator's node has given the actor up and lists it as dead. */
    bool is_disowned;
    /* Incarnation with which the actor was created or started on this node. */
    uint32_t start_incarnation;
    /* True once the node on which the actor ran was lost, until the actor has another place. */
    bool is_lost_with_node;
    /* Timer of restarts and of workers that must exit, reported as ACTOR_ON_TIMER; owned, NULL if
     * it was never set. */
    struct tdm__timer *timer;
};

/* How an actor of this node ended, remembered for later queries. */
struct actor_tombstone {
    struct tdm__id id; /* Id of the ended actor. */
    /* Incarnation with which the actor was started on this node. */
    uint32_t start_incarnation;
    /* Number of the last placement that the actor had on this node. */
    uint32_t placements;
    /* Status with which calls of the ended actor fail; TDM_E_ACTOR_RESTARTING if its creator's node
     * places it again. */
    tdm_status status;
    char *text; /* Cause of the end, owned; NULL in an unused tombstone. */
};

/* A callback of this daemon that waits until no matching actor is left. The table of actors owns
 * it. */
struct actors_end_wait {
    struct actors_end_wait *next; /* Next waiting callback of the table. */
    /* Returns true for the actors that must end. */
    bool (*matches)(const struct tdm__actor_spec *spec, const void *key);
    struct tdm__id key;    /* Second argument of `matches`, such as the id of a creator. */
    void (*fn)(void *arg); /* Callback, called once when no matching actor is left. */
    void *arg;             /* Argument of `fn`, borrowed. */
};

/* A query about an actor that is not in the table of actors yet, because the request to start or
 * create the actor is on its way to this node. */
struct early_query {
    struct early_query *next; /* Next early query of the table. */
    struct tdm__id actor;     /* Id of the actor that is expected in the table. */
    /* Call of the query, to which the daemon must reply, owned. */
    struct tdm__incoming_call *incoming;
    int64_t deadline_ms; /* Milliseconds on CLOCK_MONOTONIC after which the query fails. */
};

enum {
    ACTOR_TOMBSTONES_MAX = 512,    /* Number of ended actors whose ends a daemon remembers. */
    REMOVED_PLACEMENTS_MAX = 1500, /* Number of removed placements that a daemon remembers. */
};

/* The table of actors of a daemon. struct tdm__node owns it. */
struct tdm__node_actors {
    struct actor_entry *all; /* List of the actors, owned, newest first. */
    /* Callbacks that wait for the end of actors, owned. */
    struct actors_end_wait *actors_end_waits;
    /* Resources and names of ended actors that the store has not taken back yet, owned. */
    struct placement_release *pending_releases;
    /* Reports of ends that daemons of creators have not confirmed (actor_remote.c), owned. */
    struct end_report *end_reports;
    /* True while releases are not sent, because this node is making the store agree with its table
     * of actors: what it is about to write must not be given back at the same time. */
    bool releases_are_paused;
    /* True if the store may have a placement on this node that no daemon will start or give back.
     * This node must then compare the store with its table of actors. */
    bool recount_is_due;
    /* Queries about actors that are not in the table yet, owned. */
    struct early_query *early_queries;
    /* Ring of the actors that ended last. */
    struct actor_tombstone tombstones[ACTOR_TOMBSTONES_MAX];
    uint32_t next_tombstone; /* Index of the tombstone to overwrite next. */
    /* Ring of the placements on this node whose records this node has removed from the store
     * because the actors did not run here. */
    struct tdm__removed_placement removed_placements[REMOVED_PLACEMENTS_MAX];
    uint32_t next_removed_placement; /* Index of the removed placement to overwrite next. */
    /* Timer for pinging workers, owned; NULL if health checks are off. */
    struct tdm__timer *health_timer;
};

#endif
