/* ref.h - the present or future result of a call or of a put. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_H
#define TDM_ACTORS_OBJECTS_REF_H

#include "runtime/id.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <tandem/actor.h>

struct tdm__large;
struct tdm__shared_ref;

/* ---- a list of references -------------------------------------------------------------------- */

/* A list of retained references. A process that passes references on pins them until the
 * receiver has registered with their owners, which is called "settled". A caller pins the
 * references in its arguments until the reply arrives, and the callee replies only after it has
 * settled. A callee pins the references in a reply until the caller reports that it has settled.
 * docs/protocols/references.md specifies the protocol. */
struct tdm__pins {
    tdm_ref **refs;    /* Owned array; each reference in it is retained once. */
    uint32_t count;    /* Number of references in `refs`. */
    uint32_t capacity; /* Number of references that fit into `refs`. */
};
/* Retains `ref` and appends it to the list. */
tdm_status tdm__pins_add(struct tdm__pins *pins, tdm_ref *ref);
/* Releases all references and empties the list. */
void tdm__pins_release(struct tdm__pins *pins);

/* ---- one reference --------------------------------------------------------------------------- */

/* A reference to a value. Its holders are the user (until tdm_ref_release()) and the call in flight
 * that will complete it. Calls that wait for it as an argument, documents that contain it, and
 * processes that borrow it are holders, too. The last holder frees it.
 *
 * Guarded by the loop's lock, with two exceptions. A value that has been set never changes, so
 * any thread that sees it may read it. A last holder that needs no lock to free the reference
 * does not take it. */
struct tdm_ref {
    tdm_runtime *runtime; /* The runtime that it belongs to, borrowed. */
    /* Number of holders; decremented with release order, tested for 1 with acquire order. */
    atomic_uint holders_count;
    tdm_status status; /* Outcome; valid after `done` is true. */
    bool done;         /* True after the call has completed or the value was put. */
    bool is_small;     /* True after the value was found too small for a segment. */
    bool is_of_call; /* True if a call of this process completes it, so that it can be canceled. */
    char *detail;    /* Text of the failure, owned; NULL if absent. */
    /* Parsed value, owned; NULL before completion, and for a large value of this process until it
     * is read here. After a failure the values that the failure carries; NULL if it carries none.
     */
    tdm_document *document;
    /* Array in `document`; set last, with release order. NULL while `document` is, and after a
     * failure. */
    const tdm_value *_Atomic value;
    struct tdm__pins nested; /* References and handles inside the value. */
    /* Large value that this process created for it, retained; NULL if absent. */
    struct tdm__large *large;
    /* Entry in the reference table, owned by the table; NULL while no other process knows the
     * reference. */
    struct tdm__shared_ref *shared;
    /* Actor that this reference keeps alive; it never has a value. The none id for all other
     * references. */
    struct tdm__id actor;
    /* Called when the last holder releases the reference; may be NULL. */
    void (*on_end)(tdm_ref *ref);
    /* Borrowed: the call that will complete the reference; NULL if absent. */
    struct tdm__pending_call *pending_call;
    /* Owned list of callbacks for completion (tdm_ref_on_done()). */
    struct tdm__done *done_callbacks;
};

/* Creates an incomplete reference with one holder. */
tdm_status tdm__ref_create(tdm_runtime *runtime, tdm_ref **ref_out);
/* Adds a holder; any thread may call it. */
void tdm__ref_retain(tdm_ref *ref);
/* As tdm_ref_release(), for a caller that has the loop's lock. */
void tdm__ref_release_locked(tdm_ref *ref);
/* Returns the value of a completed reference, reading it back from disk if it was spilled. Fails
 * as tdm__ref_status() does. */
tdm_status tdm__ref_value(tdm_ref *ref, const tdm_value **value_out);
/* Returns the status of a completed reference. On failure its text becomes this thread's error
 * detail. */
tdm_status tdm__ref_status(const tdm_ref *ref);

/* ---- for ref_complete.c and failures ------------------------------------------------------- */

/* Completes a reference that has no outcome with a failure, and wakes its waiters. `detail` is
 * copied; NULL if there is no text. */
void tdm__ref_fail(tdm_ref *ref, tdm_status status, const char *detail);
/* Publishes the parsed value, so that threads may read it without the lock. Takes ownership of
 * `document`, which may be NULL. */
void tdm__ref_set_document(tdm_ref *ref, tdm_document *document);
/* Wakes the processes that wait for the outcome, and schedules the completion callbacks of this
 * process. Each callback is called once, outside of the current function. */
void tdm__ref_wake_waiters(tdm_ref *ref);
/* Does what tdm_ref_on_done() does, with the loop's lock held, but does not request the value of a
 * borrowed reference. */
tdm_status tdm__ref_on_done(tdm_ref *ref, tdm_done_fn *fn, void *arg);

#endif
