/* object_fixture.h - a runtime whose references other processes borrow, and that borrows theirs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_OBJECT_FIXTURE_H
#define TDM_TESTS_SUPPORT_OBJECT_FIXTURE_H

#include "actors/objects/objects.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_records.h"
#include "tests/support/remote_peer.h"

/* A worker process on a loop of its own. The test plays all other processes. */
struct object_fixture {
    tdm_runtime *runtime;
    struct tdm__ref_table *objects;  /* The reference table of the runtime (borrowed). */
    struct tdm__incoming_call *last; /* The latest call that is not for the reference table. */
    char directory[32];
};

/* Set-up and tear-down functions for cmocka; the state is the fixture. At the end all counters must
 * be 0. */
int object_fixture_open(void **state);
int object_fixture_close(void **state);
#define OBJECT_FIXTURE_TEST(test)                                                                  \
    cmocka_unit_test_setup_teardown(test, object_fixture_open, object_fixture_close)

/* Connects a process that may borrow. The runtime listens from then on. */
void object_fixture_borrower(struct object_fixture *scene, struct remote_peer *borrower);
/* Opens a process that owns values, and listens where processes of this node do. */
void object_fixture_owner(struct object_fixture *scene, enum tdm__peer_kind kind,
                          struct remote_peer *owner);
/* Opens the runtime's reference to an object of `owner`. Returns the status of the decoding. */
tdm_status object_fixture_open_reference(struct object_fixture *scene,
                                         const struct remote_peer *owner,
                                         const struct tdm__id *object, tdm_ref **ref_out);
/* Writes a reference to an object of `owner` into a value, as a process of this node does. */
void object_fixture_write_reference(const struct object_fixture *scene,
                                    const struct remote_peer *owner, const struct tdm__id *object,
                                    tdm_writer *writer);
/* Waits for the runtime's next call, which must be of this method. The test replies to it. */
struct tdm__incoming_call *object_fixture_expect(struct remote_peer *end, const char *method);

struct tdm__ref_table_counts object_fixture_count(struct object_fixture *scene);
void object_fixture_settle(struct object_fixture *scene);

#endif
