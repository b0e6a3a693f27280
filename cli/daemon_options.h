/* daemon_options.h - the options of tandemd's command line. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_DAEMON_OPTIONS_H
#define TDM_CLI_DAEMON_OPTIONS_H

#include "runtime/rpc/tcp_settings.h"
#include "scheduler/resources.h"

#include <stdbool.h>
#include <stdint.h>

/* Value of cli_daemon_options.gpus if the option was not given. */
#define CLI_UNSET UINT32_MAX
/* Size in bytes of a node's name, including the terminating NUL. */
enum { CLI_NAME_BYTES = TDM__NODE_NAME_BYTES };

/* The options of tandemd. Texts are borrowed from argv and the environment, except `name`. */
struct cli_daemon_options {
    /* Whether the daemon belongs to the process at the other end of the socket on descriptor 3, and
     * ends with that process. */
    bool is_private;
    /* Whether the daemon also prints the output of workers on its own stdout, with a prefix. */
    bool print_logs;
    /* Directory of the daemon for sockets and logs; NULL creates one and removes it at the end. */
    const char *directory;
    /* Whether `tandem start` started the daemon. The daemon then reports on descriptor 3 that it is
     * ready, and outlives the process that started it. */
    bool is_started;
    /* URL of the Redis server that keeps the cluster's records; NULL if there is no such option.
     * May contain a password. */
    const char *redis_url;
    /* Whether that server may be on another machine although its connections are not encrypted. */
    bool insecure_redis;
    /* Address of the head node's daemon, "host:port", whose Redis server keeps the cluster's
     * records; NULL if there is no such option. Without a URL and an address the daemon starts an
     * embedded server. */
    const char *join_address;
    /* Name of the cluster, part of the prefix of every key in Redis. */
    const char *cluster;
    /* Host name or IP address on which the daemon listens for TCP; NULL for a Unix socket only. */
    const char *listen_host;
    struct tdm__tcp_settings tcp; /* How the node's processes use TCP. */
    uint32_t port; /* TCP port on which the daemon listens; 0 lets the kernel choose one. */
    /* Address on which an HTTP server offers metrics; NULL starts no server. */
    const char *metrics_address;
    /* Address "HOST:PORT" at which the daemon listens for `tandem job`; NULL for the Unix socket
     * only. */
    const char *job_address;
    /* Whether the daemon starts, with a warning, although another process has that port. */
    bool job_optional;
    uint32_t cpus; /* Number of CPUs that the node offers. */
    /* Kind of device, such as "host" or "cuda" (cli/devices.h). */
    const char *device;
    /* Environment variable with the GPUs that a process may use; cli_devices_prepare() sets it. */
    const char *visible_devices_variable;
    /* Number of GPUs that the node offers; CLI_UNSET offers those that exist. */
    uint32_t gpus;
    /* Memory of each GPU in bytes, a multiple of 2 MiB; 0 offers all of it, except the reserve of a
     * real GPU. */
    uint64_t gpu_bytes;
    /* Memory in bytes of each real GPU that is not offered if gpu_bytes is 0, but left to CUDA
     * contexts and libraries; UINT64_MAX for the default of cli_devices_prepare(). */
    uint64_t gpu_reserve_bytes;
    char name[CLI_NAME_BYTES];       /* Name of the node for messages and lists. */
    struct tdm__resources resources; /* Named resources that the node offers. */
    uint64_t memory_bytes;           /* Host memory that the node offers to actors, in bytes. */
    /* Shared memory that large values may use on the node, in bytes. */
    uint64_t object_store_bytes;
    struct tdm__labels labels; /* Labels of the node, to which actors' constraints refer. */
    /* Time in milliseconds after which an actor that does not reply to health checks is killed; 0
     * for never. */
    uint32_t health_timeout_ms;
    /* Time in milliseconds without an answer of another node after which calls to its actors end as
     * unavailable; 0 for never. */
    uint32_t unreachable_ms;
    /* Number of replicas of Redis that must confirm renewals, takeovers and names. */
    uint32_t wait_replicas;
    /* Lease of the node in milliseconds; from TDM__NODE_LEASE_MS_MIN to TDM__NODE_LEASE_MS_MAX. */
    uint32_t lease_ms;
    uint64_t fault_seed; /* For tests: seed of the random faults of the store. */
    /* For tests: one in this number of operations of the store is lost or delayed; 0 disables
     * faults. */
    uint32_t fault_one_in;
};

/* Reads tandemd's options from the environment and the command line. Prints the error and returns
 * false if an option is wrong. Prints the help and exits if the command line requests that. */
bool cli_daemon_options_read(int argc, char **argv, struct cli_daemon_options *options_out);

#endif
