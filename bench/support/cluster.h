/* cluster.h - starts two nodes on this machine: one Redis server, two daemons, TCP between them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_CLUSTER_H
#define TDM_BENCH_CLUSTER_H

#include <stdint.h>
#include <sys/types.h>

/* Number of processes of the cluster: redis-server and two daemons. */
enum { BENCH_CLUSTER_PROCESSES = 3 };

/* A running cluster. The benchmark owns it. */
struct bench_cluster {
    /* Temporary directory with the sockets, the token and the state of the daemons. */
    char directory[64];
    /* Process IDs in the order in which the processes were started. */
    pid_t pids[BENCH_CLUSTER_PROCESSES];
    /* Owned read ends of the processes' stdout pipes, open so that writing does not fail. */
    int outputs[BENCH_CLUSTER_PROCESSES];
    /* Number of processes that were started. */
    uint32_t count;
    /* Address of the first node, for struct tdm_runtime_options. */
    char address[160];
};

/* Resources that each node reports to the cluster. */
struct bench_node {
    /* Number of CPUs. */
    uint32_t cpus;
    /* Number of virtual GPUs. */
    uint32_t gpus;
    /* Memory of each virtual GPU in bytes. */
    unsigned long long gpu_bytes;
};

/* Starts redis-server and two daemons, which are the tandemd built with this program. Drivers
 * find the token beside the first node's socket. Exits with 1 on failure. */
void bench_cluster_start(struct bench_cluster *cluster, const struct bench_node *node);
/* Ends all processes, waits for them and removes the directory. */
void bench_cluster_stop(struct bench_cluster *cluster);

/* Removes a directory with all its contents; errors are ignored. */
void bench_remove_tree(const char *directory);

#endif
