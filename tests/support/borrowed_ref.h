/* borrowed_ref.h - a reference that a runtime borrows from an owner that the test plays. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_BORROWED_REF_H
#define TDM_TESTS_SUPPORT_BORROWED_REF_H

#include "tests/support/object_fixture.h"

/* A reference that this process borrows from a simulated owner. */
struct borrowed_ref {
    struct object_fixture *scene;
    struct remote_peer owner;
    struct tdm__id id;
    tdm_ref *ref;
};

/* Opens a reference to a new object of a new owner of the given kind, or of a driver. */
void borrowed_ref_open_of(struct borrowed_ref *borrowed, struct object_fixture *scene,
                          enum tdm__peer_kind kind);
void borrowed_ref_open(struct borrowed_ref *borrowed, struct object_fixture *scene);
/* Loop condition: true if the reference in `arg` is complete. */
bool borrowed_ref_is_done(void *arg);
/* Waits until the reference fails with this status and a text that contains `words`. */
void borrowed_ref_expect_failure(struct borrowed_ref *borrowed, tdm_status status,
                                 const char *words);
/* Replies to the pin, which must be the next call of the runtime. */
void borrowed_ref_acknowledge(struct borrowed_ref *borrowed);
/* Releases the reference, expects the unpin and closes the owner. */
void borrowed_ref_close(struct borrowed_ref *borrowed);

#endif
