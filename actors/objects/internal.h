/* internal.h - what the files of the object table share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_INTERNAL_H
#define TDM_ACTORS_OBJECTS_INTERNAL_H

#include "actors/objects/holds.h"
#include "actors/objects/objects.h"
#include "actors/ref.h"
#include "actors/runtime.h"

#include <sys/queue.h>

/* ---- another process that owns what is borrowed here (borrow.c) -------------------------- */

/* What a reference says of its owner. */
struct owner_address {
    enum tdm__peer_kind kind;
    struct tdm__id process;
    struct tdm__id node;
    char unix_address[TDM__ADDRESS_BYTES];
    char tcp_address[TDM__ADDRESS_BYTES]; /* "" where its node talks to no other */
    char label[64];
};

struct owner {
    TAILQ_ENTRY(owner) link;
    struct tdm__objects *objects; /* borrowed */
    struct owner_address address;
    struct tdm__conn *conn; /* NULL once it has ended */
    bool asking;            /* the daemon, what became of it */
    char end[512];          /* how it ended */
    TAILQ_HEAD(, tdm__shared) borrowed;
};

/* ---- another process that borrows (owned.c) ---------------------------------------------- */

struct borrower {
    struct tdm__closer closer;
    TAILQ_ENTRY(borrower) link;
    struct tdm__objects *objects; /* borrowed */
    struct tdm__conn *conn;
    LIST_HEAD(, loan) loans;
};

/* One borrower's hold on one object: it holds the reference, too. */
struct loan {
    LIST_ENTRY(loan) of_borrower;
    LIST_ENTRY(loan) of_shared;
    struct tdm__shared *shared;
    struct borrower *borrower;
    bool fetches; /* a large value, to another node, or has: it can be read there from it */
};

/* A question for a value that is not there yet. */
struct waiter {
    STAILQ_ENTRY(waiter) link;
    struct tdm__incoming *incoming;
};

/* ---- the table (objects.c) --------------------------------------------------------------- */

struct tdm__shared {
    LIST_ENTRY(tdm__shared) in_bucket;
    struct tdm__objects *objects; /* borrowed */
    struct tdm__id id;
    tdm_ref *ref;    /* which owns this */
    int64_t made_ms; /* since when it is shared */

    struct owner *owner; /* NULL: this process */
    TAILQ_ENTRY(tdm__shared) of_owner;
    bool acknowledged; /* its owner has counted the hold, or is gone */
    bool asked;        /* for the value … */
    bool asks_near;    /* … and was sent to another process of this node, which fetches it */

    LIST_HEAD(, loan) loans;
    STAILQ_HEAD(, waiter) waiters;
};

/* Waits until holds are settled. */
struct settling {
    TAILQ_ENTRY(settling) link;
    struct tdm__holds holds;
    tdm__settled_fn *fn;
    void *arg;
};

/* What a reply or an item contained, until its receiver has settled. */
struct kept {
    struct tdm__closer closer;
    TAILQ_ENTRY(kept) link;
    struct tdm__objects *objects; /* borrowed */
    struct tdm__conn *conn;       /* NULL once it has ended: the caller may come again … */
    int64_t until_ms;             /* … until then */
    uint64_t call_id;
    uint64_t item;
    struct tdm__passed *passed; /* counted */
};

LIST_HEAD(bucket, tdm__shared);

struct tdm__objects {
    tdm_runtime *runtime;         /* borrowed */
    struct owner_address address; /* this process's; filled once it listens */
    bool listening;
    struct bucket *buckets; /* owned */
    uint32_t buckets_count; /* a power of two */
    uint32_t shared_count;
    TAILQ_HEAD(, owner) owners;
    TAILQ_HEAD(, borrower) borrowers;
    TAILQ_HEAD(, settling) settlings;
    TAILQ_HEAD(, kept) kept;
    struct tdm__timer *kept_timer; /* owned; NULL until it is needed */
    bool kept_timer_runs;
};

struct tdm__shared *tdm__shared_find(struct tdm__objects *objects, const struct tdm__id *id);
/* Enters `ref`, which owns it from then on. */
tdm_status tdm__shared_create(struct tdm__objects *objects, const struct tdm__id *id,
                              tdm_ref *ref, struct tdm__shared **shared_out);
/* Looks again at what waits to be settled. */
void tdm__objects_settle(struct tdm__objects *objects);

/* borrow.c */
tdm_status tdm__borrow(struct tdm__objects *objects, const struct tdm__id *id,
                       const struct owner_address *address, tdm_ref **ref_out);
void tdm__borrow_end(struct tdm__shared *shared);
void tdm__borrow_want(struct tdm__shared *shared);
void tdm__owners_destroy(struct tdm__objects *objects);

/* owned.c */
tdm_status tdm__objects_listen(struct tdm__objects *objects);
/* Those who asked for a value get it; or, without a value, TDM_E_VALUE_LOST. */
void tdm__waiters_answer(struct tdm__shared *shared);
void tdm__waiters_fail(struct tdm__shared *shared, const char *why);
void tdm__borrowers_destroy(struct tdm__objects *objects);
bool tdm__owned_serve(struct tdm__objects *objects, struct tdm__incoming *incoming);

/* replies.c */
void tdm__reply_settled(struct tdm__objects *objects, struct tdm__incoming *incoming);
void tdm__kept_destroy(struct tdm__objects *objects);

#endif
