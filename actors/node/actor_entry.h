/* actor_entry.h - an actor in its node's table, between the actor_*.c of this folder. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NODE_ACTOR_ENTRY_H
#define TDM_NODE_ACTOR_ENTRY_H

#include "actors/node/node.h"

/*   PLACING    a place is being looked for; nothing is held yet
 *   WAITING    there is none now: tried again when resources come free
 *   STARTING   it has a place and a process, and runs its constructor
 *   ALIVE
 *   RESTARTING its process has died, the next one is about to be started in the same place
 *   ENDING     asked to leave in good order, or killed; its process still exists
 *   REMOTE     it lives on another node; kept here to end with its creator, and to be placed
 *              anew if that node is lost
 *
 * Each process of an actor is an *incarnation*, counted from 0.  Its node restarts an actor
 * whose process died; its home, the node of its creator, places it anew when its node is gone.
 *
 * An entry leaves the table when its process has been reaped and its place given back; how it
 * ended is remembered for those who ask later. */
enum actor_state {
    ACTOR_PLACING,
    ACTOR_WAITING,
    ACTOR_STARTING,
    ACTOR_ALIVE,
    ACTOR_RESTARTING,
    ACTOR_ENDING,
    ACTOR_REMOTE
};

enum waiter_kind {
    WAITS_FOR_LIFE, /* answered with the description, or the death */
    WAITS_FOR_END   /* killed it: answered with nothing, once its name is free */
};

struct waiter {
    struct waiter *next;
    enum waiter_kind kind;
    struct tdm__incoming *incoming; /* owned */
};

struct actor_entry {
    struct actor_entry *next;
    struct tdm__node *node; /* borrowed */
    enum actor_state state;
    struct tdm__actor_spec *spec; /* owned */
    char label[80];
    struct waiter *waiters;
    struct tdm__actor_record record; /* its place; valid from STARTING on */
    bool may_hold_place;             /* though it has none: on a lost node, or nobody knows */
    char place_name[TDM__NODE_NAME_BYTES];
    struct tdm__worker_process *worker; /* NULL but in STARTING, ALIVE and ENDING */
    uint32_t incarnation;
    uint32_t quick_ends; /* in a row: each makes the next start wait longer */
    int64_t started_ms;
    int64_t pid;
    char unix_address[TDM__ADDRESS_BYTES];
    char tcp_address[TDM__ADDRESS_BYTES];
    char failure[TDM__ADDRESS_BYTES * 4];   /* why it ends, where its process cannot say; "" */
    char waits_for[TDM__ADDRESS_BYTES * 2]; /* WAITING: what it does not get; else "" */
    bool construction_failed;
    bool released;    /* its last handle is gone: it ends when it has been constructed */
    bool killed_here; /* wanted, but it may be restarted */
    bool
        place_is_lost; /* this node's lease ended: it is placed anew when its process is gone */
    bool record_is_lost;   /* its node joined again: the store may not know it any more */
    bool rewriting;        /* and is being told */
    int64_t lost_since_ms; /* for how long it has been tried */
    bool unwanted;         /* to be ended as soon as its placing is decided */
    bool start_pending;    /* REMOTE: the other node has not answered yet */
    bool start_unsure;     /* REMOTE: the connection ended before it did */
    bool end_pending;      /* REMOTE: the other node has been asked to end it */
    bool ping_pending;
    struct tdm__id home;      /* the node that asked for it; none when that is this one */
    struct tdm__timer *timer; /* ENDING: kills what does not leave.  RESTARTING: starts it */
};

struct tombstone {
    struct tdm__id id;
    tdm_status status;
    char *text; /* owned */
};

/* Those who wait until no entry matches. */
struct ender {
    struct ender *next;
    bool (*matches)(const struct tdm__actor_spec *spec, const void *key);
    struct tdm__id key;
    void (*fn)(void *arg);
    void *arg;
};

/* A question about an actor that is expected here: its start or its creation is under way. */
struct early_question {
    struct early_question *next;
    struct tdm__id actor;
    struct tdm__incoming *incoming; /* owned */
    int64_t deadline_ms;
};

enum { TOMBSTONES_MAX = 512, LEAVE_MS = 5000, DRAIN_MS = 30000 };

struct tdm__node_actors {
    struct actor_entry *all;
    struct ender *enders;
    struct release *releases; /* places that are on their way back into the store */
    struct early_question *early;
    struct tombstone tombstones[TOMBSTONES_MAX]; /* a ring */
    uint32_t tombstones_next;
    struct tdm__timer *health_timer;
};

/* ---- the table (actor_table.c) ---------------------------------------------------------- */

struct actor_entry *tdm__actor_entry_find(struct tdm__node *node, const struct tdm__id *id);
const struct tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id);
/* Takes `spec` and puts the entry into the table; NULL when out of memory. */
struct actor_entry *tdm__actor_entry_add(struct tdm__node *node, struct tdm__actor_spec *spec,
                                         enum actor_state state);
/* Takes it out of the table and frees it; whoever waits for its life reads `text`. */
void tdm__actor_entry_remove(struct actor_entry *entry, tdm_status status, const char *text);
/* Takes `incoming`. */
void tdm__actor_entry_wait(struct actor_entry *entry, enum waiter_kind kind,
                           struct tdm__incoming *incoming);
/* Answers those that wait for its life. */
void tdm__actor_entry_answer_life(struct actor_entry *entry,
                                  void (*answer)(void *arg, struct tdm__incoming *incoming),
                                  void *arg);
void tdm__node_actors_tell_enders(struct tdm__node *node);

/* ---- placing (actor_place.c) ------------------------------------------------------------ */

/* Looks for a place; then starts it here or hands it to the node that has one. */
void tdm__actor_entry_place(struct actor_entry *entry);
/* There is none now; `why` in words, or "".  Removes one that nobody has a handle to. */
void tdm__actor_entry_wait_for_place(struct actor_entry *entry, const char *why);
/* Gives back its place and its name; takes those who wait for its end along. */
void tdm__actor_entry_give_place_back(struct actor_entry *entry);
/* The same for one that may hold a place: what the store has of it. */
void tdm__actor_entry_give_any_place_back(struct actor_entry *entry);
/* The grants of places on their way back that the store may not know any more; `grants` NULL:
 * only how many. */
uint32_t tdm__node_releases_lost(const struct tdm__node *node, struct tdm__grant *grants);
/* Does it hold one on this node? */
bool tdm__actor_entry_has_place(const struct actor_entry *entry);
/* May it have one more process? */
bool tdm__actor_entry_may_restart(const struct actor_entry *entry);

/* ---- on another node (actor_remote.c) --------------------------------------------------- */

void tdm__actor_entry_start_on_other(struct actor_entry *entry);
void tdm__actor_entry_end_on_other(struct actor_entry *entry);
/* Tells its home, if that is another node, that it has ended for good. */
void tdm__actor_entry_tell_home(const struct actor_entry *entry, tdm_status status,
                                const char *text);
/* Its node says that it has ended for good. */
void tdm__node_actor_ended_there(struct tdm__node *node, const struct tdm__id *other,
                                 const struct tdm__id *actor, tdm_status status,
                                 const char *text);
/* Will it be placed anew if its node is lost? */
bool tdm__actor_entry_outlives_node(const struct actor_entry *entry);

/* ---- starting (actor_start.c) ----------------------------------------------------------- */

/* Starts the process in the place that entry->record describes. */
void tdm__actor_entry_start(struct actor_entry *entry);
/* Its constructor has returned. */
void tdm__actor_entry_constructed(struct actor_entry *entry, int64_t pid, tdm_status status,
                                  const char *detail, const char *unix_address,
                                  const char *tcp_address);
/* (pid, node id, [gpu …], unix address, tcp address or nil, incarnation) */
void tdm__actor_entry_describe(const struct actor_entry *entry, tdm_writer *writer);
/* Answers with the description. */
void tdm__actor_entry_answer_described(const struct actor_entry *entry,
                                       struct tdm__incoming *incoming);

/* ---- ending (actor_end.c) --------------------------------------------------------------- */

void tdm__actor_entry_worker_ended(void *arg, struct tdm__worker_process *worker,
                                   int wait_status);
/* For good: it is not restarted. */
void tdm__actor_entry_end(struct actor_entry *entry, bool at_once);
/* Kills its process, which is restarted if it may be. */
void tdm__actor_entry_kill_process(struct actor_entry *entry);
/* Its last handle is gone: it ends after the calls that were made. */
void tdm__actor_entry_release(struct actor_entry *entry);
/* It ends by itself, after the methods that run. */
void tdm__actor_entry_exits(struct actor_entry *entry);
/* Its process ends by itself now, or is killed when it takes longer than `patience_ms`. */
void tdm__actor_entry_leaves_soon(struct actor_entry *entry, int64_t patience_ms);

/* ---- health (actor_health.c) ------------------------------------------------------------ */

tdm_status tdm__node_health_start(struct tdm__node *node);
void tdm__node_health_stop(struct tdm__node *node);
/* Asks the process whether it lives, then answers with the description; if it does not, its
 * next life or its death answers.  Takes `incoming`. */
void tdm__actor_entry_ask(struct actor_entry *entry, struct tdm__incoming *incoming);

/* ---- questions (actor_questions.c) ------------------------------------------------------- */

void tdm__node_serve_question(struct tdm__node *node, struct tdm__incoming *incoming);
void tdm__node_serve_find(struct tdm__node *node, struct tdm__incoming *incoming);
/* "actor.known" (id): does this node still count on it? */
void tdm__node_serve_known(struct tdm__node *node, struct tdm__incoming *incoming);
/* Questions that came before the actor did are asked again; overdue ones fail. */
void tdm__node_early_questions(struct tdm__node *node, int64_t now_ms);
/* Another has its name, and that one is meant: answers with (id, class, description) of it and
 * removes the entry; if that one ends just now, the entry waits for the name. */
void tdm__actor_entry_give_holder(struct actor_entry *entry);

#endif
