/* cluster.h - two nodes on this machine: one Redis, two daemons, TCP between them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_CLUSTER_H
#define TDM_BENCH_CLUSTER_H

#include <stdint.h>
#include <sys/types.h>

enum { BENCH_CLUSTER_PROCESSES = 3 };

struct bench_cluster {
    char directory[64];
    pid_t pids[BENCH_CLUSTER_PROCESSES];
    int outputs[BENCH_CLUSTER_PROCESSES]; /* what they print, which nobody reads */
    uint32_t count;
    char address[160]; /* of the first node */
};

/* Each node has so much. */
struct bench_node {
    uint32_t cpus;
    uint32_t gpus;
    unsigned long long gpu_bytes;
};

/* Runs redis-server and the tandemd that was built with this program; drivers find the token
 * beside the first node's socket.  Ends the program when it cannot. */
void bench_cluster_start(struct bench_cluster *cluster, const struct bench_node *node);
void bench_cluster_stop(struct bench_cluster *cluster);

void bench_remove_tree(const char *directory);

#endif
