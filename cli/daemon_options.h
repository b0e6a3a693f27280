/* daemon_options.h - the args of tandemd's command line. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_DAEMON_OPTIONS_H
#define TDM_CLI_DAEMON_OPTIONS_H

#include "scheduler/resources.h"

#include <stdbool.h>
#include <stdint.h>

#define CLI_UNSET UINT32_MAX
enum { CLI_NAME_BYTES = TDM__NODE_NAME_BYTES };

/* Texts are borrowed from argv and the environment, except `name`. */
struct cli_daemon_options {
    bool is_private;             /* belongs to the process at the other end of descriptor 3 */
    bool print_logs;             /* what workers print comes out here, prefixed */
    const char *directory;       /* NULL: a new one, removed at the end */
    const char *redis_url;       /* NULL: a Redis of its own */
    const char *cluster;         /* prefix of every key in Redis */
    const char *listen_host;     /* NULL: Unix socket only */
    uint32_t port;               /* 0: any */
    const char *metrics_address; /* NULL: nowhere */
    uint32_t cpus;
    const char *device; /* "host" or another kind of them (cli/devices.h) */
    uint32_t gpus;      /* CLI_UNSET: what the device has */
    uint64_t gpu_bytes; /* of each; a multiple of 2 MiB; 0: what the device has */
    char name[CLI_NAME_BYTES];
    struct tdm__resources resources; /* named ones only */
    uint64_t memory_bytes;           /* of the host, for actors */
    uint64_t object_store_bytes;     /* of shared memory, for large values */
    struct tdm__labels labels;
    uint32_t health_timeout_ms; /* 0: never */
    uint64_t fault_seed;        /* for tests: one in `fault_one_in` (0: none) of the store's ... */
    uint32_t fault_one_in;      /* ... operations is lost, answered for nobody, or delayed */
};

/* Prints what is wrong, or the help that was asked for, and returns false. */
bool cli_daemon_options_read(int argc, char **argv, struct cli_daemon_options *options_out);

#endif
