/* daemon_options.h - the options of tandemd's command line. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_DAEMON_OPTIONS_H
#define TDM_CLI_DAEMON_OPTIONS_H

#include "scheduler/resources.h"

#include <stdbool.h>
#include <stdint.h>

/* Value of an option that was not given. */
#define CLI_UNSET UINT32_MAX
/* Capacity of a node's name, with the NUL. */
enum { CLI_NAME_BYTES = TDM__NODE_NAME_BYTES };

/* The options of tandemd. Texts are borrowed from argv and the environment, except `name`. */
struct cli_daemon_options {
    /* Whether the daemon belongs to the process at the other end of descriptor 3 and ends with it.
     */
    bool is_private;
    /* Whether the output of workers is also printed here, with a prefix. */
    bool print_logs;
    /* Directory for sockets and logs; NULL creates one and removes it at the end. */
    const char *directory;
    /* URL of the cluster's Redis; NULL starts an embedded one. */
    const char *redis_url;
    /* Name of the cluster, part of the prefix of every key in Redis. */
    const char *cluster;
    /* Host name or IP address for TCP; NULL listens on a Unix socket only. */
    const char *listen_host;
    uint32_t port; /* TCP port; 0 lets the kernel choose one. */
    /* Address of the HTTP server for metrics; NULL starts none. */
    const char *metrics_address;
    uint32_t cpus; /* Number of CPUs that the node offers. */
    /* Kind of device, such as "host" or "cuda" (cli/devices.h). */
    const char *device;
    /* Environment variable with the GPUs that a process may use; cli_devices_prepare() sets it. */
    const char *visible_devices_variable;
    /* Number of GPUs that the node offers; CLI_UNSET offers those that exist. */
    uint32_t gpus;
    /* Memory of each GPU in bytes, a multiple of 2 MiB; 0 offers all of it. */
    uint64_t gpu_bytes;
    char name[CLI_NAME_BYTES];       /* Name of the node. */
    struct tdm__resources resources; /* Named resources that the node offers. */
    uint64_t memory_bytes;           /* Host memory for actors, in bytes. */
    uint64_t object_store_bytes;     /* Shared memory for large values, in bytes. */
    struct tdm__labels labels;       /* Labels of the node. */
    /* Milliseconds without a reply after which an actor is killed; 0 disables this. */
    uint32_t health_timeout_ms;
    uint64_t fault_seed; /* For tests: seed of the faults of the store. */
    /* For tests: one in this number of operations of the store is lost or delayed; 0 disables
     * faults. */
    uint32_t fault_one_in;
};

/* Reads the environment and the command line. Prints the error and returns false if an option is
 * wrong. Prints the help and exits if that is requested. */
bool cli_daemon_options_read(int argc, char **argv, struct cli_daemon_options *options_out);

#endif
