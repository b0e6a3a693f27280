/* store_node.h - a node without an endpoint, for what a daemon writes into the store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_STORE_NODE_H
#define TDM_TESTS_SUPPORT_STORE_NODE_H

#include "actors/daemon/node_state.h"
#include "runtime/service.h"
#include "tests/support/failing_store.h"
#include "tests/support/reserve_fixture.h"

/* A node with a store in memory, which can fail. */
struct store_node {
    struct reserve_fixture world;
    struct failing_store deaf; /* The store of the node. */
    struct tdm__services services;
    struct tdm__node node;
};

/* Opens the node "this" with `gpus` GPUs and eight CPUs, which has joined. */
void store_node_open(struct store_node *scene, double gpus);
void store_node_close(struct store_node *scene);

#endif
