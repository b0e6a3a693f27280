/* node_fixture.h - a node in this process, of which a test is the rest of the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_NODE_FIXTURE_H
#define TDM_TESTS_SUPPORT_NODE_FIXTURE_H

#include "actors/daemon/actor_entry.h"
#include "tests/support/failing_store.h"
#include "tests/support/remote_peer.h"
#include "tests/support/reserve_fixture.h"

/* All on one loop.  The store is in memory; the node serves "actor…", "group…", "node…" and
 * "state…" itself, and hands all else to the test. */
struct node_fixture {
    struct reserve_fixture world;
    struct failing_store deaf; /* the node's way to the store */
    struct tdm__services services;
    struct tdm__node node;
    char directory[32];
    char address[64];
    struct remote_peer driver;       /* connected to the node */
    struct tdm__incoming_call *last; /* call that the test has to answer; NULL: none */
    struct tdm__id gone_ids[8];      /* processes that services were told of */
    uint32_t gone_count;
};

/* For cmocka; the state is the scene. */
int node_fixture_open(void **state);
int node_fixture_close(void **state);
#define NODE_FIXTURE_TEST(test)                                                                    \
    cmocka_unit_test_setup_teardown(test, node_fixture_open, node_fixture_close)

/* An actor as its creator, the driver, describes it: no name, no resources.  Of a program that
 * runs until it is killed; with the variable STILL=n in its environment it ends with n. */
struct tdm__actor_spec *node_fixture_spec(struct node_fixture *scene, const char *class_name);
/* An entry of such a one, without a place. */
struct actor_entry *node_fixture_add(struct node_fixture *scene, enum actor_state state);
/* Its process is there, or the test fails. */
void node_fixture_start(struct actor_entry *entry);
/* From now on the test is at the other end of its process's line. */
void node_fixture_play(struct node_fixture *scene, struct actor_entry *entry,
                       struct remote_peer *worker);
/* It says that it has been constructed. */
void node_fixture_construct(struct actor_entry *entry);
/* A call that came to the node and that the test owns: of the driver, with `answer`. */
struct tdm__incoming_call *node_fixture_incoming(struct node_fixture *scene,
                                                 struct remote_reply *answer);

/* Another daemon, which joins and listens; its calls are held. */
void node_fixture_other(struct node_fixture *scene, struct remote_peer *other, const char *name);

void node_fixture_run(struct node_fixture *scene, bool (*done)(void *arg), void *arg);
void node_fixture_settle(struct node_fixture *scene);
/* Until the node has no actor any more and no place on its way back. */
void node_fixture_run_out(struct node_fixture *scene);

#endif
