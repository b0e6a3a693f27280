/* ref_records.h - the table of references that other processes know, and its records. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_RECORDS_H
#define TDM_ACTORS_OBJECTS_REF_RECORDS_H

#include "actors/process/runtime.h"
#include "actors/process/text_sizes.h"
#include "runtime/rpc/rpc.h"

#include <sys/queue.h>
#include <tandem/actor.h>

struct tdm__object_callbacks;
struct tdm__passed_refs;

/* ---- owners of references that are borrowed here (ref_owners.c) ------------------------- */

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

/* ---- the table ------------------------------------------------------------------------------ */

/* The entry of a reference that other processes know. */
struct tdm__shared_ref {
    LIST_ENTRY(tdm__shared_ref) in_bucket; /* Link in its hash bucket. */
    struct tdm__ref_table *objects;        /* Reference table of the runtime, borrowed. */
    struct tdm__id id;                     /* Id of the object, chosen at random by its owner. */
    tdm_ref *ref;                          /* The reference; it owns this entry. */
    int64_t created_ms; /* Milliseconds on CLOCK_MONOTONIC at which the entry was created. */

    struct ref_owner *owner;               /* Owner of the reference; NULL if it is this process. */
    TAILQ_ENTRY(tdm__shared_ref) of_owner; /* Link in the owner's list of borrowed references. */
    /* True after the owner has replied to "object.pin", even with a failure, or can no longer be
     * reached. */
    bool pin_acknowledged;
    bool value_requested; /* True after the value was requested. */
    /* True while the request is at another process of this node, which fetches the value. */
    bool sibling_requested;
    /* True after a process has exported the reference. An owner then holds the reference until its
     * runtime stops; a borrower has told the owner so. */
    bool is_kept;

    /* Pins of other processes; empty for a borrowed reference. */
    LIST_HEAD(, borrower_pin) borrower_pins;
    STAILQ_HEAD(, value_waiter) waiters; /* Calls that wait for the value. */
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

/* What a reference tells the table about its entry, since the functions that then reply to other
 * processes lie above ref.c. Both are called with the loop's lock. */
struct tdm__shared_ref_callbacks {
    /* Sends the value to all processes that wait for it. Called when the reference completes. */
    void (*on_done)(struct tdm__shared_ref *shared);
    /* Removes the entry from the table and frees it. Called when the last holder releases the
     * reference. */
    void (*on_last_release)(struct tdm__shared_ref *shared);
};

/* The table of references that other processes know. A process owns the references that it
 * creates. A reference that it passes on gets an id and enters the table of its runtime. A
 * reference that it borrows from another process enters the table, too; the owner counts at most
 * one pin for it ("object.pin" to "object.unpin"), however many handles the user has. Guarded by
 * the loop's lock. */
struct tdm__ref_table {
    tdm_runtime *runtime; /* The runtime that it belongs to, borrowed. */
    /* What references tell the table, constant. */
    const struct tdm__shared_ref_callbacks *callbacks;
    /* What the client side does for references (object_callbacks.h), constant. */
    const struct tdm__object_callbacks *client;
    /* Address of this process as an owner; filled when it starts to listen. */
    struct ref_owner_address address;
    bool listening;         /* True after this process has started to listen for borrowers. */
    struct bucket *buckets; /* Owned array of hash buckets. */
    uint32_t buckets_count; /* Length of `buckets`, a power of two. */
    uint32_t shared_count;  /* Number of entries in all buckets. */
    TAILQ_HEAD(, ref_owner) owners;   /* Processes whose references are borrowed here. */
    TAILQ_HEAD(, borrower) borrowers; /* Processes that borrow references of this one. */
    /* Callbacks that wait for references to settle (settling.c). */
    TAILQ_HEAD(, pins_settling) pins_settling_list;
    TAILQ_HEAD(, reply_pins) reply_pins; /* Replies and items whose receivers have not settled. */
    /* Owned timer that releases `reply_pins` whose caller did not reconnect; NULL before the
     * first. */
    struct tdm__timer *reply_pins_timer;
    bool reply_pins_timer_is_set; /* True while `reply_pins_timer` is set. */
};

#endif
