/* two_nodes.h - two daemons on one machine, one Redis, TCP between them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_TWO_NODES_H
#define TDM_TESTS_TWO_NODES_H

#include "tests/support/redis_fixture.h"

#include <sys/types.h>
#include <tandem/runtime.h>

/* One of the two; what is started here is its supervisor. */
struct test_node {
    pid_t supervisor;
    pid_t daemon;
    char address[160];
};

/* "first" and "second", each with 2 GPUs, 4 CPUs, a GB, 2 of "disk" and the label side=NAME. */
struct two_nodes {
    struct redis_fixture redis;
    char token_path[128];
    struct test_node first;
    struct test_node second;
};

/* 0, or what went wrong is in tdm_error_detail().  Sets TANDEM_TOKEN_FILE for drivers. */
int two_nodes_open(struct two_nodes *nodes);
void two_nodes_close(struct two_nodes *nodes);

/* For main(): a cluster and a driver of its first node; NULL, and said on stderr, if there is
 * none.  In a process that is to be a worker it never returns.  two_nodes_leave() ends both and
 * returns how much was left behind. */
tdm_runtime *two_nodes_join(struct two_nodes *nodes);
int two_nodes_leave(struct two_nodes *nodes, tdm_runtime *runtime);

/* Starts one more daemon; 0 if it says that it is ready.  `said` (1,024 bytes) is what it
 * says. */
int test_node_start(const struct two_nodes *nodes, const char *name, struct test_node *node,
                    char *said);
void test_node_stop(struct test_node *node);

#endif
