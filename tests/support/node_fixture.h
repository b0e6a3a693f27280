/* node_fixture.h - a node in this process; the test plays the rest of the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_NODE_FIXTURE_H
#define TDM_TESTS_SUPPORT_NODE_FIXTURE_H

#include "actors/daemon/actor_table.h"
#include "actors/daemon/worker_processes.h"
#include "tests/support/failing_store.h"
#include "tests/support/remote_peer.h"
#include "tests/support/reserve_fixture.h"

/* A node with its store in memory, on one loop. The node handles its own prefixes and gives all
 * other calls to the test. */
struct node_fixture {
    struct reserve_fixture world;
    struct failing_store deaf; /* The store of the node, which can fail. */
    struct tdm__services services;
    struct tdm__node node;
    char directory[32];
    char address[64];
    struct remote_peer driver; /* A driver that is connected to the node. */
    /* Call that the test has to reply to; NULL if there is none. */
    struct tdm__incoming_call *last;
    struct tdm__id gone_ids[8]; /* Processes whose end was reported to the services. */
    uint32_t gone_count;
};

/* Set-up and tear-down functions for cmocka; the state is the fixture. */
int node_fixture_open(void **state);
int node_fixture_close(void **state);
#define NODE_FIXTURE_TEST(test)                                                                    \
    cmocka_unit_test_setup_teardown(test, node_fixture_open, node_fixture_close)

/* Returns the specification of an actor of the driver without name and resources. Its program runs
 * until it is killed; with the variable STILL=n in its environment it exits with n. */
struct tdm__actor_spec *node_fixture_spec(struct node_fixture *scene, const char *class_name);
/* Adds an entry of such an actor without a node. */
struct actor_entry *node_fixture_add(struct node_fixture *scene, enum actor_state state);
/* Starts the entry's process. The test fails if that fails. */
void node_fixture_start(struct actor_entry *entry);
/* Makes the test the peer of the process's connection to the daemon. */
void node_fixture_play(struct node_fixture *scene, struct actor_entry *entry,
                       struct remote_peer *worker);
/* Reports that the actor was constructed. */
void node_fixture_construct(struct actor_entry *entry);
/* Adds a living actor with this class and name, and makes the test its worker. */
struct actor_entry *node_fixture_add_living(struct node_fixture *scene, const char *class_name,
                                            const char *name, struct remote_peer *worker);
/* Kills all actors and waits for their ends. */
void node_fixture_kill_all(struct node_fixture *scene);
/* Writes the records of an actor into the store, as another daemon does. */
void node_fixture_put(struct node_fixture *scene, const struct tdm__actor_record *record);
/* Returns a call of the driver that came to the node and that the test has to reply to; the reply
 * is stored in `answer`. */
struct tdm__incoming_call *node_fixture_incoming(struct node_fixture *scene,
                                                 struct remote_reply *answer);

/* Connects another daemon, which joins and listens. Its calls are held. */
void node_fixture_other(struct node_fixture *scene, struct remote_peer *other, const char *name);

void node_fixture_run(struct node_fixture *scene, bool (*done)(void *arg), void *arg);
void node_fixture_settle(struct node_fixture *scene);
/* Runs until the node has no actor and no pending release. */
void node_fixture_run_out(struct node_fixture *scene);

#endif
