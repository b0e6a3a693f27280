/* node_scene.h - a node in this process, of which a test is the rest of the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_NODE_SCENE_H
#define TDM_TESTS_SUPPORT_NODE_SCENE_H

#include "actors/node/actor_entry.h"
#include "tests/support/deaf_store.h"
#include "tests/support/far_end.h"
#include "tests/support/reserve_world.h"

/* All on one loop.  The store is in memory; the node serves "actor…", "group…", "node…" and
 * "state…" itself, and hands all else to the test. */
struct node_scene {
    struct reserve_world world;
    struct deaf_store deaf; /* the node's way to the store */
    struct tdm__services services;
    struct tdm__node node;
    char directory[32];
    char address[64];
    struct far_end driver;      /* connected to the node */
    struct tdm__incoming *last; /* call that the test has to answer; NULL: none */
    struct tdm__id gone_ids[8]; /* processes that services were told of */
    uint32_t gone_count;
};

/* For cmocka; the state is the scene. */
int node_scene_open(void **state);
int node_scene_close(void **state);
#define NODE_SCENE_TEST(test)                                                                  \
    cmocka_unit_test_setup_teardown(test, node_scene_open, node_scene_close)

/* An actor as its creator, the driver, describes it: no name, no resources.  Of a program that
 * runs until it is killed; with the variable STILL=n in its environment it ends with n. */
struct tdm__actor_spec *node_scene_spec(struct node_scene *scene, const char *class_name);
/* An entry of such a one, without a place. */
struct actor_entry *node_scene_add(struct node_scene *scene, enum actor_state state);
/* Its process is there, or the test fails. */
void node_scene_start(struct actor_entry *entry);
/* From now on the test is at the other end of its process's line. */
void node_scene_play(struct node_scene *scene, struct actor_entry *entry,
                     struct far_end *worker);
/* It says that it has been constructed. */
void node_scene_construct(struct actor_entry *entry);
/* A call that came to the node and that the test owns: of the driver, with `answer`. */
struct tdm__incoming *node_scene_incoming(struct node_scene *scene, struct far_answer *answer);

/* Another daemon, which joins and listens; its calls are held. */
void node_scene_other(struct node_scene *scene, struct far_end *other, const char *name);

void node_scene_run(struct node_scene *scene, bool (*done)(void *arg), void *arg);
void node_scene_settle(struct node_scene *scene);
/* Until the node has no actor any more and no place on its way back. */
void node_scene_run_out(struct node_scene *scene);

#endif
