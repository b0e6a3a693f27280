/* ref.h - the result of a call or of a put, present or to come. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_H
#define TDM_ACTORS_OBJECTS_REF_H

#include "actors/objects/pins.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <tandem/actor.h>

struct tdm__large;
struct tdm__shared_ref;

/* Held by the user (until tdm_ref_release), by the call in flight that will complete it, and by
 * calls that wait for it as an argument, by documents that contain it, and by each process that
 * borrows it: freed with the last of them.
 *
 * Guarded by the loop's lock, but for two things that a user does with each result.  A value
 * that is there never changes: who sees it may read it.  And a last holder is alone: what needs
 * no lock to be freed is freed without. */
struct tdm_ref {
    tdm_runtime *runtime;      /* borrowed */
    atomic_uint holders_count; /* letting go is a release, to find oneself alone an acquire */
    tdm_status status;
    bool done;
    bool is_small;                  /* its value was found to need no segment */
    bool is_of_call;                /* of this process: it can be canceled */
    char *detail;                   /* owned; NULL when there is none */
    tdm_document *document;         /* owned; NULL unless done and well, and for a large value of
                                       this process until it is read here */
    const tdm_value *_Atomic value; /* in the document: an array; set last (a release) */
    struct tdm__pins nested;        /* the references in the document */
    struct tdm__large *large; /* counted; where the value lies, if this process put it there */
    struct tdm__shared_ref *shared; /* owned; NULL while no other process knows it */
    struct tdm__id actor;           /* of a hold on an actor, which never has a value; else none */
    void (*on_end)(tdm_ref *ref);   /* when the last holder goes; may be NULL */
    struct tdm__pending_call *pending_call; /* borrowed: the call that completes it; NULL: none */
    struct tdm__done *done_callbacks; /* owned: who is told when it is done (ref_callbacks.c) */
};

tdm_status tdm__ref_create(tdm_runtime *runtime, tdm_ref **ref_out); /* one holder */
void tdm__ref_retain(tdm_ref *ref);
void tdm__ref_release_locked(tdm_ref *ref); /* tdm_ref_release() for who has the lock */
/* Completes it, once.  Takes `document` (may be NULL).  References in it that cannot be opened
 * make it a failure. */
void tdm__ref_complete(tdm_ref *ref, tdm_status status, const char *detail, tdm_document *document);
/* The same with a value that this process made, which it reads when it is asked for; takes
 * `large`. */
void tdm__ref_complete_large(tdm_ref *ref, struct tdm__large *large);
/* The value of one that is done, read back from disk if need be; as tdm__ref_status(). */
tdm_status tdm__ref_value(tdm_ref *ref, const tdm_value **value_out);
/* It is done: those who asked are told, once, soon. */
void tdm__ref_notify_done(tdm_ref *ref);
/* The status; on failure its detail becomes this thread's. */
tdm_status tdm__ref_status(const tdm_ref *ref);

#endif
