/* object_scene.h - a runtime whose references others borrow, and who borrows theirs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_OBJECT_SCENE_H
#define TDM_TESTS_SUPPORT_OBJECT_SCENE_H

#include "actors/objects/internal.h"
#include "tests/support/far_end.h"

/* A worker process on a loop of its own, with all other processes played by the test. */
struct object_scene {
    tdm_runtime *runtime;
    struct tdm__objects *objects; /* the runtime's */
    struct tdm__incoming *last;   /* call that is not the objects' */
    char directory[32];
};

/* For cmocka; the state is the scene.  At the end nothing may be counted any more. */
int object_scene_open(void **state);
int object_scene_close(void **state);
#define OBJECT_SCENE_TEST(test)                                                                \
    cmocka_unit_test_setup_teardown(test, object_scene_open, object_scene_close)

/* A process that may borrow, connected to the runtime, which listens from then on. */
void object_scene_borrower(struct object_scene *scene, struct far_end *borrower);
/* One that owns, and listens where processes of this node do. */
void object_scene_owner(struct object_scene *scene, enum tdm__peer_kind kind,
                        struct far_end *owner);
/* The runtime's reference to an object of `owner`; TDM_OK or why there is none. */
tdm_status object_scene_open_reference(struct object_scene *scene, const struct far_end *owner,
                                       const struct tdm__id *object, tdm_ref **ref_out);
/* What the runtime asks next; the test answers. */
struct tdm__incoming *object_scene_expect(struct far_end *end, const char *method);

struct tdm__objects_count object_scene_count(struct object_scene *scene);
void object_scene_settle(struct object_scene *scene);

#endif
