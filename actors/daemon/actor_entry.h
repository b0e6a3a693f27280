/* actor_entry.h - one actor in the table of its node's daemon, shared by the actor_*.c files of
 * this folder. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_ENTRY_H
#define TDM_ACTORS_DAEMON_ACTOR_ENTRY_H

#include "actors/daemon/actor_lifecycle.h"
#include "actors/daemon/node.h"

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

/* ---- the table (actor_table.c) ---------------------------------------------------------- */

/* Returns the entry of the actor, or NULL. */
struct actor_entry *tdm__actor_entry_find(struct tdm__node *node, const struct tdm__id *id);
/* Returns the tombstone of the actor, or NULL if it has not ended here or was forgotten. */
const struct actor_tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id);
/* Adds an entry to the table and takes ownership of `spec`. Returns NULL, and leaves `spec` to the
 * caller, when out of memory. */
struct actor_entry *tdm__actor_entry_add(struct tdm__node *node, struct tdm__actor_spec *spec);
/* Removes the entry from the table, leaves a tombstone and frees it. Calls that wait for its start
 * fail with `status` and `text`. */
void tdm__actor_entry_remove(struct actor_entry *entry, tdm_status status, const char *text);
/* Makes `incoming`, which the entry takes over, wait for the start or the end of the actor. */
void tdm__actor_entry_add_waiter(struct actor_entry *entry, enum actor_waiter_kind kind,
                                 struct tdm__incoming_call *incoming);
/* Removes all calls that wait for the start, and calls reply(arg, call) for each. */
void tdm__actor_entry_reply_waiters(struct actor_entry *entry,
                                    void (*reply)(void *arg, struct tdm__incoming_call *incoming),
                                    void *arg);
/* Calls the callbacks of end waits for which no matching actor is left. */
void tdm__node_actors_check_end_waits(struct tdm__node *node);

/* ---- events and actions (actor_actions.c) ----------------------------------------------- */

/* Adds the facts to the event, hands it to the lifecycle and carries out the resulting actions. The
 * entry may have been freed afterwards. */
void tdm__actor_entry_handle(struct actor_entry *entry, struct actor_event event);
/* Returns what the lifecycle needs to know about the actor and its node. */
struct actor_facts tdm__actor_entry_facts(const struct actor_entry *entry);

/* ---- placement (actor_placement.c) ------------------------------------------------------ */

/* Asks the store for resources and the name; the result arrives as an event. */
void tdm__actor_entry_reserve(struct actor_entry *entry);
/* Gives the actor's resources and its name back to the store, again and again until the store has
 * them. Calls that wait for the end of the actor are replied to when its name is free. */
void tdm__actor_entry_release_placement(struct actor_entry *entry,
                                        enum actor_reservation reservation);
/* True while the store has not yet taken back resources of this actor, or the name that it wants.
 */
bool tdm__actor_entry_is_returning(const struct actor_entry *entry);
/* Writes the actor's record into the store again; the result arrives as ACTOR_ON_REWRITTEN. */
void tdm__actor_entry_rewrite(struct actor_entry *entry);
/* Writes to `grants` the resources of pending releases that the store may have forgotten, and
 * returns their number. With `grants` NULL it only counts. */
uint32_t tdm__node_pending_releases(const struct tdm__node *node, struct tdm__grant *grants);

/* ---- on another node (actor_remote.c) --------------------------------------------------- */

/* Asks the daemon of the reserved node to start the actor. */
void tdm__actor_entry_start_remote(struct actor_entry *entry);
/* Asks the daemon of the actor's node to kill the actor. */
void tdm__actor_entry_end_remote(struct actor_entry *entry);
/* Tells the daemon of the actor's node that the last handle is gone. */
void tdm__actor_entry_release_on_other(const struct actor_entry *entry);
/* Sends the other daemon's reply to the calls that wait for the start. */
void tdm__actor_entry_pass_reply(struct actor_entry *entry, const struct tdm__rpc_reply *reply);
/* Tells the daemon of the owner's node, if that is another node, that the actor has ended and is
 * not restarted. */
void tdm__actor_entry_notify_owner(const struct actor_entry *entry, tdm_status status,
                                   const char *text);
/* Handles the message of node `other` that an actor owned by this node has ended there. */
void tdm__node_remote_actor_ended(struct tdm__node *node, const struct tdm__id *other,
                                  const struct tdm__id *actor, tdm_status status, const char *text);
/* True if the actor will be created on another node when its node is lost. */
bool tdm__actor_entry_survives_node_loss(const struct actor_entry *entry);

/* ---- starting (actor_start.c) ----------------------------------------------------------- */

/* Starts the worker with the resources in entry->record; a failure is reported as
 * ACTOR_ON_WORKER_FAILED. */
void tdm__actor_entry_start(struct actor_entry *entry);
/* Handles the end of the constructor in the worker: success with its addresses, or failure with
 * `status` and `detail`. */
void tdm__actor_entry_constructed(struct actor_entry *entry, int64_t pid, tdm_status status,
                                  const char *detail, const char *unix_address,
                                  const char *tcp_address);
/* Sends the description of the actor to the calls that wait for its start. */
void tdm__actor_entry_answer_waiters(struct actor_entry *entry);
/* Writes (pid, node id, [gpu ...], unix address, tcp address or nil, incarnation). */
void tdm__actor_entry_describe(const struct actor_entry *entry, tdm_writer *writer);
/* Replies to `incoming` with the description of the actor. */
void tdm__actor_entry_reply_description(const struct actor_entry *entry,
                                        struct tdm__incoming_call *incoming);

/* ---- ending (actor_end.c) --------------------------------------------------------------- */

/* Handles the end of the actor's worker process; `arg` is the entry. Its type is
 * tdm__worker_ended_fn. */
void tdm__actor_entry_worker_ended(void *arg, struct tdm__worker_process *worker, int wait_status);
/* Ends the actor without a restart: at once, or gracefully. */
void tdm__actor_entry_end(struct actor_entry *entry, bool at_once);
/* Kills the worker; the actor is restarted if it has restarts left. */
void tdm__actor_entry_kill_process(struct actor_entry *entry);
/* Handles the release of the last handle: the actor ends after the calls that were made. */
void tdm__actor_entry_release(struct actor_entry *entry);
/* Handles the actor's own request to end after the methods that are running. */
void tdm__actor_entry_exit_requested(struct actor_entry *entry);
/* Expects the worker to exit by itself, and kills it after `patience_ms`; 0 means no limit. */
void tdm__actor_entry_expect_exit(struct actor_entry *entry, int64_t patience_ms);
/* Asks the worker to exit, with `drain` after the calls that it has received, and kills it after
 * `patience_ms`. */
void tdm__actor_entry_ask_to_leave(struct actor_entry *entry, bool drain, int64_t patience_ms);
/* Kills the worker, if there is one. */
void tdm__actor_entry_kill_now(struct actor_entry *entry);
/* Reports ACTOR_ON_TIMER after `delay_ms`. */
void tdm__actor_entry_start_later(struct actor_entry *entry, int64_t delay_ms);

/* ---- health (actor_health.c) ------------------------------------------------------------ */

/* Starts pinging the workers, if the node has a health timeout. */
tdm_status tdm__node_health_start(struct tdm__node *node);
/* Stops pinging the workers. */
void tdm__node_health_stop(struct tdm__node *node);
/* Pings the worker for a caller that lost its connection, then replies to `incoming` with the
 * description. If the worker does not respond, the reply comes from the next incarnation or the
 * death. Takes `incoming`. */
void tdm__actor_entry_ping(struct actor_entry *entry, struct tdm__incoming_call *incoming);

/* ---- queries (actor_queries.c) ---------------------------------------------------------- */

/* Serves "actor.await", "actor.fate", "actor.kill", "actor.why" and "actor.release"; takes
 * `incoming`. */
void tdm__node_serve_actor_query(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Serves "actor.find"; takes `incoming`. */
void tdm__node_serve_actor_find(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Serves "actor.known": does this node still have the actor in its table? Takes `incoming`. */
void tdm__node_serve_actor_known(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Repeats the early queries whose actor is in the table now, and fails those that are overdue at
 * `now_ms`. */
void tdm__node_retry_early_queries(struct tdm__node *node, int64_t now_ms);
/* Replies to the calls that wait for the start with the actor that holds the wanted name
 * (get_if_exists). Reports to the lifecycle whether that actor was found. */
void tdm__actor_entry_reply_name_holder(struct actor_entry *entry);

#endif
