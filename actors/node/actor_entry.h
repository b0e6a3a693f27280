/* actor_entry.h - an actor in its node's table, between actor_life.c and actor_service.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NODE_ACTOR_ENTRY_H
#define TDM_NODE_ACTOR_ENTRY_H

#include "actors/node/node.h"

/*   PLACING    a place is being looked for; nothing is held yet
 *   WAITING    there is none now: tried again when resources come free
 *   STARTING   it has a place and a process, and runs its constructor
 *   ALIVE
 *   ENDING     asked to leave in good order, or killed; its process still exists
 *   REMOTE     it lives on another node; kept here to end with its creator
 *
 * An entry leaves the table when its process has been reaped and its place given back; how it
 * ended is remembered for those who ask later. */
enum actor_state {
    ACTOR_PLACING,
    ACTOR_WAITING,
    ACTOR_STARTING,
    ACTOR_ALIVE,
    ACTOR_ENDING,
    ACTOR_REMOTE
};

enum waiter_kind {
    WAITS_FOR_LIFE, /* answered with the description, or the death */
    WAITS_FOR_END   /* answered with the death */
};

struct waiter {
    struct waiter *next;
    enum waiter_kind kind;
    struct tdm__incoming *incoming; /* owned */
    bool end_is_success;            /* the one who killed it reads TDM_OK */
};

struct actor_entry {
    struct actor_entry *next;
    struct tdm__node *node; /* borrowed */
    enum actor_state state;
    struct tdm__actor_spec *spec; /* owned */
    char label[80];
    struct waiter *waiters;
    struct tdm__actor_record record; /* its place; valid from STARTING on */
    struct tdm__worker_process *worker;
    int64_t pid;
    char unix_address[TDM__ADDRESS_BYTES];
    char tcp_address[TDM__ADDRESS_BYTES];
    char failure[TDM__ADDRESS_BYTES * 4]; /* why its constructor failed; "" */
    bool unwanted;                        /* to be ended as soon as its placing is decided */
    bool start_pending;                   /* REMOTE: the other node has not answered yet */
    bool end_pending;                     /* REMOTE: the other node has been asked to end it */
    struct tdm__id home;          /* the node that asked for it; none when that is this one */
    struct tdm__timer *end_timer; /* kills what does not leave */
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

enum { TOMBSTONES_MAX = 512 };

struct tdm__node_actors {
    struct actor_entry *all;
    struct ender *enders;
    struct release *releases; /* places that are on their way back into the store */
    struct tombstone tombstones[TOMBSTONES_MAX]; /* a ring */
    uint32_t tombstones_next;
};

struct actor_entry *tdm__actor_entry_find(struct tdm__node *node, const struct tdm__id *id);
const struct tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id);
/* Takes `spec` and puts the entry into the table; NULL when out of memory. */
struct actor_entry *tdm__actor_entry_add(struct tdm__node *node, struct tdm__actor_spec *spec,
                                         enum actor_state state);
/* Takes `incoming`. */
void tdm__actor_entry_wait(struct actor_entry *entry, enum waiter_kind kind,
                           bool end_is_success, struct tdm__incoming *incoming);
/* Looks for a place; then starts it here or hands it to the node that has one. */
void tdm__actor_entry_place(struct actor_entry *entry);
/* Starts the process in the place that `record` describes. */
void tdm__actor_entry_start(struct actor_entry *entry, const struct tdm__actor_record *record);
/* Its constructor has returned. */
void tdm__actor_entry_constructed(struct actor_entry *entry, int64_t pid, tdm_status status,
                                  const char *detail, const char *unix_address,
                                  const char *tcp_address);
void tdm__actor_entry_end(struct actor_entry *entry, bool at_once);
/* (pid, node id, [gpu …], unix address, tcp address or nil) */
void tdm__actor_entry_describe(const struct actor_entry *entry, tdm_writer *writer);
/* Answers with the description behind what `writer` holds already. */
void tdm__actor_entry_answer_described(const struct actor_entry *entry,
                                       struct tdm__incoming *incoming);

#endif
