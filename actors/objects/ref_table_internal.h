/* ref_table_internal.h - what the files of the reference table share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_TABLE_INTERNAL_H
#define TDM_ACTORS_OBJECTS_REF_TABLE_INTERNAL_H

#include "actors/objects/pins.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_table.h"
#include "actors/process/runtime.h"

#include <sys/queue.h>

/* ---- owners of references that are borrowed here (borrowed_refs.c) --------------------- */

/* Identity and addresses of a reference's owner, as the packed reference contains them. */
struct ref_owner_address {
    enum tdm__peer_kind kind;              /* Driver or worker. */
    struct tdm__id process;                /* Id of the owner's process. */
    struct tdm__id node;                   /* Id of the owner's node. */
    char unix_address[TDM__ADDRESS_BYTES]; /* Where processes of the same node connect. */
    /* Where processes of other nodes connect; "" if the node serves none. */
    char tcp_address[TDM__ADDRESS_BYTES];
    char label[64]; /* Name of the owner for messages. */
};

/* A process that owns references that are borrowed here. It is freed when its connection has
 * closed and the last such reference is gone. */
struct ref_owner {
    TAILQ_ENTRY(ref_owner) link;
    struct tdm__ref_table *objects; /* Reference table of the runtime, borrowed. */
    struct ref_owner_address address;
    /* Connection to the owner; NULL after it has closed or if it could not be opened. */
    struct tdm__conn *conn;
    bool fate_requested; /* True while the daemon is asked how the owner ended. */
    char end_text[512];  /* Why the connection closed or could not be opened. */
    TAILQ_HEAD(, tdm__shared_ref) borrowed; /* References that are borrowed from this owner. */
};

/* ---- borrowers of references that this process owns (owned_refs.c) ---------------------- */

/* A process that borrows references of this one, known by its connection. It is freed when the
 * connection closes. */
struct borrower {
    /* Called when the connection closes; must be the first field. */
    struct tdm__close_watcher closer;
    TAILQ_ENTRY(borrower) link;
    struct tdm__ref_table *objects; /* Reference table of the runtime, borrowed. */
    struct tdm__conn *conn;         /* Borrowed; the borrower ends with it. */
    /* The pins of this borrower, one for each reference. */
    LIST_HEAD(, borrower_pin) borrower_pins;
};

/* The pin of one borrower on one reference. It is a holder of the reference. */
struct borrower_pin {
    LIST_ENTRY(borrower_pin) of_borrower; /* Link in the borrower's list of pins. */
    LIST_ENTRY(borrower_pin) of_shared;   /* Link in the reference's list of pins. */
    struct tdm__shared_ref *shared;       /* Table entry of the pinned reference, borrowed. */
    struct borrower *borrower;            /* The borrower that the pin belongs to, borrowed. */
    /* True if the borrower, on another node, was offered the large value. Other processes of its
     * node can then read it from there. */
    bool reads_large_value;
};

/* A call that waits for the value of a reference. */
struct value_waiter {
    STAILQ_ENTRY(value_waiter) link;
    struct tdm__incoming_call *incoming; /* Owned; replied to when the value is set. */
};

/* ---- the table (ref_table.c) --------------------------------------------------------------- */

/* The entry of a reference that other processes know. */
struct tdm__shared_ref {
    LIST_ENTRY(tdm__shared_ref) in_bucket; /* Link in its hash bucket. */
    struct tdm__ref_table *objects;        /* Reference table of the runtime, borrowed. */
    struct tdm__id id;                     /* Id of the object, chosen at random by its owner. */
    tdm_ref *ref;                          /* The reference; it owns this entry. */
    int64_t created_ms; /* Milliseconds on CLOCK_MONOTONIC at which the entry was created. */

    struct ref_owner *owner;               /* Owner of the reference; NULL if it is this process. */
    TAILQ_ENTRY(tdm__shared_ref) of_owner; /* Link in the owner's list of borrowed references. */
    bool pin_acknowledged; /* True after the owner has counted the pin, or has ended. */
    bool value_requested;  /* True after the value was requested. */
    /* True while the request is at another process of this node, which fetches the value. */
    bool sibling_requested;

    /* Pins of other processes; empty for a borrowed reference. */
    LIST_HEAD(, borrower_pin) borrower_pins;
    STAILQ_HEAD(, value_waiter) waiters; /* Calls that wait for the value. */
};

/* A callback that waits until pinned references are settled. */
struct pins_settling {
    TAILQ_ENTRY(pins_settling) link;
    struct tdm__pins pins;    /* The references, retained until the callback has been called. */
    tdm__pins_settled_fn *fn; /* Function to call once. */
    void *arg;                /* Argument of `fn`. */
};

/* The references of one reply or stream item, registered until its receiver has settled. */
struct reply_pins {
    /* Called when the connection closes; must be the first field. */
    struct tdm__close_watcher closer;
    TAILQ_ENTRY(reply_pins) link;
    struct tdm__ref_table *objects; /* Reference table of the runtime, borrowed. */
    /* Connection on which the reply was last sent; NULL after it has closed, while the caller
     * may still reconnect. */
    struct tdm__conn *conn;
    /* Milliseconds on CLOCK_MONOTONIC at which the references are released if `conn` is NULL. */
    int64_t expires_ms;
    uint64_t call_id;                /* Call whose reply contains the references. */
    uint64_t item;                   /* Number of the stream item; 0 for the reply. */
    struct tdm__passed_refs *passed; /* The references, retained. */
};

/* Hash bucket of table entries. */
LIST_HEAD(bucket, tdm__shared_ref);

/* The reference table of one runtime. Guarded by the loop's lock. */
struct tdm__ref_table {
    tdm_runtime *runtime; /* The runtime that it belongs to, borrowed. */
    /* Address of this process as an owner; filled when it starts to listen. */
    struct ref_owner_address address;
    bool listening;         /* True after this process has started to listen for borrowers. */
    struct bucket *buckets; /* Owned array of hash buckets. */
    uint32_t buckets_count; /* Length of `buckets`, a power of two. */
    uint32_t shared_count;  /* Number of entries in all buckets. */
    TAILQ_HEAD(, ref_owner) owners;   /* Processes whose references are borrowed here. */
    TAILQ_HEAD(, borrower) borrowers; /* Processes that borrow references of this one. */
    /* Callbacks that wait for references to settle. */
    TAILQ_HEAD(, pins_settling) pins_settling_list;
    TAILQ_HEAD(, reply_pins) reply_pins; /* Replies and items whose receivers have not settled. */
    /* Owned timer that releases `reply_pins` whose caller did not reconnect; NULL before the
     * first. */
    struct tdm__timer *reply_pins_timer;
    bool reply_pins_timer_is_set; /* True while `reply_pins_timer` is set. */
};

/* Returns the entry of the object with this id, or NULL. */
struct tdm__shared_ref *tdm__shared_ref_find(struct tdm__ref_table *objects,
                                             const struct tdm__id *id);
/* Creates the entry of `ref` under `id`; the reference owns it. Grows the table if necessary. */
tdm_status tdm__shared_ref_create(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  tdm_ref *ref, struct tdm__shared_ref **shared_out);
/* Calls the callbacks whose pinned references have all settled. Called after a pin was
 * acknowledged or an owner ended. */
void tdm__ref_table_check_settling(struct tdm__ref_table *objects);

/* ---- borrowed_refs.c -------------------------------------------------------------------- */
/* Creates a reference to an object of another process, connects to that owner and sends the pin.
 * A failure to connect makes the reference fail with TDM_E_OWNER_DIED. */
tdm_status tdm__borrowed_ref_open(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  const struct ref_owner_address *address, tdm_ref **ref_out);
/* Removes a borrowed entry from its owner and sends the unpin. */
void tdm__borrowed_ref_release(struct tdm__shared_ref *shared);
/* Requests the value from the owner unless that has been done. */
void tdm__borrowed_ref_fetch(struct tdm__shared_ref *shared);
/* Frees all owners, at the end of the runtime. */
void tdm__owners_destroy(struct tdm__ref_table *objects);

/* ---- owned_refs.c ----------------------------------------------------------------------- */
/* Starts to listen for borrowers, once, and fills the table's address. */
tdm_status tdm__ref_table_listen(struct tdm__ref_table *objects);
/* Replies with the value, or with its failure, to all calls that wait for it. */
void tdm__value_waiters_reply(struct tdm__shared_ref *shared);
/* Replies with TDM_E_VALUE_LOST and the text `why` to all calls that wait for the value. */
void tdm__value_waiters_fail(struct tdm__shared_ref *shared, const char *why);
/* Releases all pins of all borrowers, at the end of the runtime. */
void tdm__borrowers_destroy(struct tdm__ref_table *objects);
/* Replies to "object.pin", "object.unpin", "object.get", "object.fetch" and "object.sibling".
 * Returns false and does nothing for any other method. */
bool tdm__owned_refs_serve(struct tdm__ref_table *objects, struct tdm__incoming_call *incoming);

/* ---- reply_pins.c ----------------------------------------------------------------------- */
/* Replies to "object.settled": releases the references of the reply or item that the caller
 * names. */
void tdm__reply_pins_serve_settled(struct tdm__ref_table *objects,
                                   struct tdm__incoming_call *incoming);
/* Releases all references in replies, at the end of the runtime. */
void tdm__reply_pins_destroy(struct tdm__ref_table *objects);

#endif
