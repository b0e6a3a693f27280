/* object_fixture.h - a runtime whose references others borrow, and who borrows theirs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_OBJECT_FIXTURE_H
#define TDM_TESTS_SUPPORT_OBJECT_FIXTURE_H

#include "actors/objects/ref_table_internal.h"
#include "tests/support/remote_peer.h"

/* A worker process on a loop of its own, with all other processes played by the test. */
struct object_fixture {
    tdm_runtime *runtime;
    struct tdm__ref_table *objects;  /* the runtime's */
    struct tdm__incoming_call *last; /* call that is not the objects' */
    char directory[32];
};

/* For cmocka; the state is the scene.  At the end nothing may be counted any more. */
int object_fixture_open(void **state);
int object_fixture_close(void **state);
#define OBJECT_FIXTURE_TEST(test)                                                                  \
    cmocka_unit_test_setup_teardown(test, object_fixture_open, object_fixture_close)

/* A process that may borrow, connected to the runtime, which listens from then on. */
void object_fixture_borrower(struct object_fixture *scene, struct remote_peer *borrower);
/* One that owns, and listens where processes of this node do. */
void object_fixture_owner(struct object_fixture *scene, enum tdm__peer_kind kind,
                          struct remote_peer *owner);
/* The runtime's reference to an object of `owner`; TDM_OK or why there is none. */
tdm_status object_fixture_open_reference(struct object_fixture *scene,
                                         const struct remote_peer *owner,
                                         const struct tdm__id *object, tdm_ref **ref_out);
/* What the runtime asks next; the test answers. */
struct tdm__incoming_call *object_fixture_expect(struct remote_peer *end, const char *method);

struct tdm__ref_table_counts object_fixture_count(struct object_fixture *scene);
void object_fixture_settle(struct object_fixture *scene);

#endif
