/* two_nodes.h - two daemons on one machine, one Redis, TCP between them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_TWO_NODES_H
#define TDM_TESTS_TWO_NODES_H

#include "tests/support/redis_fixture.h"

#include <sys/types.h>
#include <tandem/runtime.h>

/* One of the two nodes. The test starts its supervisor. */
struct test_node {
    pid_t supervisor;
    pid_t daemon;
    char address[160];
};

/* "first" and "second", each with 2 GPUs, 4 CPUs, a GB, 2 of "disk" and the label side=NAME. */
struct two_nodes {
    struct redis_fixture redis;
    const char *redis_url; /* URL of Redis for the next node; NULL for that of `redis`. */
    char token_path[128];
    struct test_node first;
    struct test_node second;
};

/* Starts both nodes. Returns 0, or sets tdm_error_detail(). Sets TANDEM_TOKEN_FILE for drivers. */
int two_nodes_open(struct two_nodes *nodes);
void two_nodes_close(struct two_nodes *nodes);

/* For main(): starts the nodes and joins the first one as a driver. Returns NULL after a message on
 * stderr if that fails. In a worker process it never returns. */
tdm_runtime *two_nodes_join(struct two_nodes *nodes);
int two_nodes_leave(struct two_nodes *nodes, tdm_runtime *runtime);

/* Starts one more daemon. Returns 0 if it reports that it is ready. `said` (1,024 bytes) gets its
 * output. */
int test_node_start(const struct two_nodes *nodes, const char *name, struct test_node *node,
                    char *said);
void test_node_stop(struct test_node *node);

#endif
