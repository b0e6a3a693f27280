/* ref_table_internal.h - what the files of the object table share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_TABLE_INTERNAL_H
#define TDM_ACTORS_OBJECTS_REF_TABLE_INTERNAL_H

#include "actors/objects/pins.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_table.h"
#include "actors/runtime.h"

#include <sys/queue.h>

/* ---- another process that owns what is borrowed here (borrowed_refs.c) --------------------------
 */

/* What a reference says of its owner. */
struct ref_owner_address {
    enum tdm__peer_kind kind;
    struct tdm__id process;
    struct tdm__id node;
    char unix_address[TDM__ADDRESS_BYTES];
    char tcp_address[TDM__ADDRESS_BYTES]; /* "" where its node talks to no other */
    char label[64];
};

struct ref_owner {
    TAILQ_ENTRY(ref_owner) link;
    struct tdm__ref_table *objects; /* borrowed */
    struct ref_owner_address address;
    struct tdm__conn *conn; /* NULL once it has ended */
    bool asking;            /* the daemon, what became of it */
    char end_text[512];     /* how it ended */
    TAILQ_HEAD(, tdm__shared_ref) borrowed;
};

/* ---- another process that borrows (owned_refs.c) ----------------------------------------------
 */

struct borrower {
    struct tdm__close_watcher closer;
    TAILQ_ENTRY(borrower) link;
    struct tdm__ref_table *objects; /* borrowed */
    struct tdm__conn *conn;
    LIST_HEAD(, borrower_pin) borrower_pins;
};

/* One borrower's hold on one object: it holds the reference, too. */
struct borrower_pin {
    LIST_ENTRY(borrower_pin) of_borrower;
    LIST_ENTRY(borrower_pin) of_shared;
    struct tdm__shared_ref *shared;
    struct borrower *borrower;
    bool reads_large_value; /* a large value, to another node, or has: it can be read there from it
                             */
};

/* A question for a value that is not there yet. */
struct value_waiter {
    STAILQ_ENTRY(value_waiter) link;
    struct tdm__incoming_call *incoming;
};

/* ---- the table (ref_table.c) --------------------------------------------------------------- */

struct tdm__shared_ref {
    LIST_ENTRY(tdm__shared_ref) in_bucket;
    struct tdm__ref_table *objects; /* borrowed */
    struct tdm__id id;
    tdm_ref *ref;    /* which owns this */
    int64_t made_ms; /* since when it is shared */

    struct ref_owner *owner; /* NULL: this process */
    TAILQ_ENTRY(tdm__shared_ref) of_owner;
    bool pin_acknowledged; /* its owner has counted the hold, or is gone */
    bool value_requested;  /* for the value … */
    bool asked_sibling;    /* … and was sent to another process of this node, which fetches it */

    LIST_HEAD(, borrower_pin) borrower_pins;
    STAILQ_HEAD(, value_waiter) waiters;
};

/* Waits until holds are settled. */
struct pins_settling {
    TAILQ_ENTRY(pins_settling) link;
    struct tdm__pins pins;
    tdm__pins_settled_fn *fn;
    void *arg;
};

/* What a reply or an item contained, until its receiver has settled. */
struct reply_pins {
    struct tdm__close_watcher closer;
    TAILQ_ENTRY(reply_pins) link;
    struct tdm__ref_table *objects; /* borrowed */
    struct tdm__conn *conn;         /* NULL once it has ended: the caller may come again … */
    int64_t expires_ms;             /* … until then */
    uint64_t call_id;
    uint64_t item;
    struct tdm__passed_refs *passed; /* counted */
};

LIST_HEAD(bucket, tdm__shared_ref);

struct tdm__ref_table {
    tdm_runtime *runtime;             /* borrowed */
    struct ref_owner_address address; /* this process's; filled once it listens */
    bool listening;
    struct bucket *buckets; /* owned */
    uint32_t buckets_count; /* a power of two */
    uint32_t shared_count;
    TAILQ_HEAD(, ref_owner) owners;
    TAILQ_HEAD(, borrower) borrowers;
    TAILQ_HEAD(, pins_settling) pins_settling_list;
    TAILQ_HEAD(, reply_pins) reply_pins;
    struct tdm__timer *reply_pins_timer; /* owned; NULL until it is needed */
    bool reply_pins_timer_runs;
};

struct tdm__shared_ref *tdm__shared_ref_find(struct tdm__ref_table *objects,
                                             const struct tdm__id *id);
/* Enters `ref`, which owns it from then on. */
tdm_status tdm__shared_ref_create(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  tdm_ref *ref, struct tdm__shared_ref **shared_out);
/* Looks again at what waits to be settled. */
void tdm__ref_table_check_settling(struct tdm__ref_table *objects);

/* borrowed_refs.c */
tdm_status tdm__borrowed_ref_open(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  const struct ref_owner_address *address, tdm_ref **ref_out);
void tdm__borrowed_ref_release(struct tdm__shared_ref *shared);
void tdm__borrowed_ref_fetch(struct tdm__shared_ref *shared);
void tdm__owners_destroy(struct tdm__ref_table *objects);

/* owned_refs.c */
tdm_status tdm__ref_table_listen(struct tdm__ref_table *objects);
/* Those who asked for a value get it; or, without a value, TDM_E_VALUE_LOST. */
void tdm__value_waiters_reply(struct tdm__shared_ref *shared);
void tdm__value_waiters_fail(struct tdm__shared_ref *shared, const char *why);
void tdm__borrowers_destroy(struct tdm__ref_table *objects);
bool tdm__owned_refs_serve(struct tdm__ref_table *objects, struct tdm__incoming_call *incoming);

/* reply_pins.c */
void tdm__reply_pins_serve_settled(struct tdm__ref_table *objects,
                                   struct tdm__incoming_call *incoming);
void tdm__reply_pins_destroy(struct tdm__ref_table *objects);

#endif
