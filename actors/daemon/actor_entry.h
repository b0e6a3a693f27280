/* actor_entry.h - an actor in its node's table, between the actor_*.c of this folder. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_ENTRY_H
#define TDM_ACTORS_DAEMON_ACTOR_ENTRY_H

#include "actors/daemon/actor_lifecycle.h"
#include "actors/daemon/node.h"

/* Each worker of an actor is an *incarnation*, counted from 0.  The daemon of its node restarts
 * an actor whose worker died.  The daemon of the creator's node creates the actor again when
 * the node where it runs is lost.  actor_lifecycle.h has the states and decides what follows
 * each event.
 *
 * An entry leaves the table when its worker has been reaped and its place given back; how it
 * ended is remembered for those who ask later. */
enum actor_waiter_kind {
    WAITER_FOR_START, /* answered with the description, or the death */
    WAITER_FOR_END    /* killed it: answered with nothing, once its name is free */
};

struct actor_waiter {
    struct actor_waiter *next;
    enum actor_waiter_kind kind;
    struct tdm__incoming_call *incoming; /* owned */
};

struct actor_entry {
    struct actor_entry *next;
    struct tdm__node *node;           /* borrowed */
    struct actor_lifecycle lifecycle; /* Changed by tdm__actor_entry_handle() alone. */
    struct tdm__actor_spec *spec;     /* owned */
    char label[80];
    struct actor_waiter *waiters;
    struct tdm__actor_record record; /* its place; valid from STARTING on */
    char placement_node_name[TDM__NODE_NAME_BYTES];
    struct tdm__worker_process *worker; /* NULL if the actor has no worker. */
    int64_t started_ms;
    int64_t pid;
    char unix_address[TDM__ADDRESS_BYTES];
    char tcp_address[TDM__ADDRESS_BYTES];
    char failure[TDM__ADDRESS_BYTES * 4];   /* why it ends, where its process cannot say; "" */
    char waits_for[TDM__ADDRESS_BYTES * 2]; /* WAITING: what it does not get; else "" */
    int64_t lost_since_ms;                  /* Since when the store has been without the record. */
    const struct ping *ping;   /* The daemon's own ping of the worker; NULL if none is pending. */
    struct tdm__id owner_node; /* The creator's node; all zeros if that is this node. */
    struct tdm__timer *timer;  /* Reports ACTOR_ON_TIMER; NULL if it was never set. */
};

struct actor_tombstone {
    struct tdm__id id;
    tdm_status status;
    char *text; /* owned */
};

/* Those who wait until no entry matches. */
struct actors_end_wait {
    struct actors_end_wait *next;
    bool (*matches)(const struct tdm__actor_spec *spec, const void *key);
    struct tdm__id key;
    void (*fn)(void *arg);
    void *arg;
};

/* A question about an actor that is expected here: its start or its creation is under way. */
struct early_query {
    struct early_query *next;
    struct tdm__id actor;
    struct tdm__incoming_call *incoming; /* owned */
    int64_t deadline_ms;
};

enum { ACTOR_TOMBSTONES_MAX = 512 };

struct tdm__node_actors {
    struct actor_entry *all;
    struct actors_end_wait *actors_end_waits;
    struct placement_release
        *pending_releases; /* places that are on their way back into the store */
    struct early_query *early_queries;
    struct actor_tombstone tombstones[ACTOR_TOMBSTONES_MAX]; /* a ring */
    uint32_t next_tombstone;
    struct tdm__timer *health_timer;
};

/* ---- the table (actor_table.c) ---------------------------------------------------------- */

struct actor_entry *tdm__actor_entry_find(struct tdm__node *node, const struct tdm__id *id);
const struct actor_tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id);
/* Takes `spec` and puts the entry into the table; NULL when out of memory. */
struct actor_entry *tdm__actor_entry_add(struct tdm__node *node, struct tdm__actor_spec *spec);
/* Takes it out of the table and frees it; whoever waits for its life reads `text`. */
void tdm__actor_entry_remove(struct actor_entry *entry, tdm_status status, const char *text);
/* Takes `incoming`. */
void tdm__actor_entry_add_waiter(struct actor_entry *entry, enum actor_waiter_kind kind,
                                 struct tdm__incoming_call *incoming);
/* Answers those that wait for its life. */
void tdm__actor_entry_reply_waiters(struct actor_entry *entry,
                                    void (*reply)(void *arg, struct tdm__incoming_call *incoming),
                                    void *arg);
void tdm__node_actors_check_end_waits(struct tdm__node *node);

/* ---- events and actions (actor_actions.c) ----------------------------------------------- */

/* Hands the event, to which it adds the facts, to the lifecycle and carries out the actions.
 * The entry may be gone afterwards. */
void tdm__actor_entry_handle(struct actor_entry *entry, struct actor_event event);
/* What the lifecycle needs to know of the actor and its node. */
struct actor_facts tdm__actor_entry_facts(const struct actor_entry *entry);

/* ---- placing (actor_placement.c) ------------------------------------------------------------ */

/* Asks the store for a place. */
void tdm__actor_entry_reserve(struct actor_entry *entry);
/* Gives back its place and its name; takes those who wait for its end along. */
void tdm__actor_entry_release_placement(struct actor_entry *entry,
                                        enum actor_reservation reservation);
/* True while its place, or the name that it wants, is on its way back into the store. */
bool tdm__actor_entry_is_returning(const struct actor_entry *entry);
/* Writes its record into the store again. */
void tdm__actor_entry_rewrite(struct actor_entry *entry);
/* The grants of places on their way back that the store may not know any more; `grants` NULL:
 * only how many. */
uint32_t tdm__node_pending_releases(const struct tdm__node *node, struct tdm__grant *grants);

/* ---- on another node (actor_remote.c) --------------------------------------------------- */

void tdm__actor_entry_start_remote(struct actor_entry *entry);
void tdm__actor_entry_end_remote(struct actor_entry *entry);
void tdm__actor_entry_release_on_other(const struct actor_entry *entry);
/* Answers those that wait for its life as the other node did. */
void tdm__actor_entry_pass_reply(struct actor_entry *entry, const struct tdm__rpc_reply *reply);
/* Tells its owner_node, if that is another node, that it has ended for good. */
void tdm__actor_entry_notify_owner(const struct actor_entry *entry, tdm_status status,
                                   const char *text);
/* Its node says that it has ended for good. */
void tdm__node_remote_actor_ended(struct tdm__node *node, const struct tdm__id *other,
                                  const struct tdm__id *actor, tdm_status status, const char *text);
/* Will it be placed anew if its node is lost? */
bool tdm__actor_entry_survives_node_loss(const struct actor_entry *entry);

/* ---- starting (actor_start.c) ----------------------------------------------------------- */

/* Starts the process in the place that entry->record describes; reports a failure. */
void tdm__actor_entry_start(struct actor_entry *entry);
/* Its constructor has returned. */
void tdm__actor_entry_constructed(struct actor_entry *entry, int64_t pid, tdm_status status,
                                  const char *detail, const char *unix_address,
                                  const char *tcp_address);
/* Answers those that wait for its life with the description. */
void tdm__actor_entry_answer_waiters(struct actor_entry *entry);
/* (pid, node id, [gpu …], unix address, tcp address or nil, incarnation) */
void tdm__actor_entry_describe(const struct actor_entry *entry, tdm_writer *writer);
/* Answers with the description. */
void tdm__actor_entry_reply_description(const struct actor_entry *entry,
                                        struct tdm__incoming_call *incoming);

/* ---- ending (actor_end.c) --------------------------------------------------------------- */

void tdm__actor_entry_worker_ended(void *arg, struct tdm__worker_process *worker, int wait_status);
/* For good: it is not restarted. */
void tdm__actor_entry_end(struct actor_entry *entry, bool at_once);
/* Kills its process, which is restarted if it may be. */
void tdm__actor_entry_kill_process(struct actor_entry *entry);
/* Its last handle is gone: it ends after the calls that were made. */
void tdm__actor_entry_release(struct actor_entry *entry);
/* It ends by itself, after the methods that run. */
void tdm__actor_entry_exit_requested(struct actor_entry *entry);
/* Its process ends by itself now, or is killed when it takes longer than `patience_ms`; 0: for
 * as long as it takes. */
void tdm__actor_entry_expect_exit(struct actor_entry *entry, int64_t patience_ms);
/* Asks its process to leave; with `drain` after the calls that it has been sent. */
void tdm__actor_entry_ask_to_leave(struct actor_entry *entry, bool drain, int64_t patience_ms);
void tdm__actor_entry_kill_now(struct actor_entry *entry);
void tdm__actor_entry_start_later(struct actor_entry *entry, int64_t delay_ms);

/* ---- health (actor_health.c) ------------------------------------------------------------ */

tdm_status tdm__node_health_start(struct tdm__node *node);
void tdm__node_health_stop(struct tdm__node *node);
/* Asks the process whether it lives, then answers with the description; if it does not, its
 * next life or its death answers.  Takes `incoming`. */
void tdm__actor_entry_ping(struct actor_entry *entry, struct tdm__incoming_call *incoming);

/* ---- questions (actor_queries.c) ------------------------------------------------------- */

void tdm__node_serve_actor_query(struct tdm__node *node, struct tdm__incoming_call *incoming);
void tdm__node_serve_actor_find(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* "actor.known" (id): does this node still count on it? */
void tdm__node_serve_actor_known(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Questions that came before the actor did are asked again; overdue ones fail. */
void tdm__node_retry_early_queries(struct tdm__node *node, int64_t now_ms);
/* Another has its name, and that one is meant: answers with (id, class, description) of it, and
 * reports whether that one was found. */
void tdm__actor_entry_reply_name_holder(struct actor_entry *entry);

#endif
