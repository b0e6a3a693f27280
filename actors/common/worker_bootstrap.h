/* worker_bootstrap.h - the record that the daemon passes to a new worker process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_WORKER_BOOTSTRAP_H
#define TDM_ACTORS_COMMON_WORKER_BOOTSTRAP_H

#include "actors/common/actor_spec.h"
#include "runtime/rpc/rpc.h"

/* Environment variable that is set in a worker. A worker starts with descriptor 3 as a socket to
 * its daemon and descriptor 4 as a sealed memory file with a packed struct tdm__bootstrap. */
#define TDM__WORKER_VARIABLE "TANDEM_WORKER"
/* Format of the name of the socket at which a worker listens for calls, in its node's directory;
 * the argument is its actor's id as text. */
#define TDM__WORKER_SOCKET "a-%.16s"

/* Descriptors that a worker inherits: the socket to its daemon, and the memory file with its
 * bootstrap record. */
enum { TDM__WORKER_DAEMON_FD = 3, TDM__WORKER_BOOTSTRAP_FD = 4 };

/* What the daemon passes to a new worker process. */
struct tdm__bootstrap {
    /* Secret that authenticates the cluster's processes to each other. */
    uint8_t token[TDM__TOKEN_BYTES];
    struct tdm__id node;                     /* Id of the worker's node. */
    char node_name[TDM__NODE_NAME_BYTES];    /* Name of the worker's node. */
    char daemon_address[TDM__ADDRESS_BYTES]; /* Address at which the daemon of the node listens. */
    char directory[TDM__ADDRESS_BYTES]; /* Directory of the node, with its sockets and files. */
    /* Host at which the worker listens for other nodes; "" to serve only this node. */
    char listen_host[TDM__ADDRESS_BYTES];
    struct tdm__tcp_settings tcp; /* How the processes of the node use TCP. */
    uint32_t gpus_count;          /* Number of entries in `gpu_indices`. */
    /* Indices of the node's GPUs that the actor may use. */
    uint32_t gpu_indices[TDM__NODE_GPUS_MAX];
    uint32_t incarnation; /* Number of the actor's workers before this one. */
    /* Milliseconds of silence after which a process or a node is unreachable; 0 for never. */
    int64_t unreachable_ms;
    struct tdm__actor_spec *spec; /* Specification of the worker's actor, owned. */
};

/* Writes the bootstrap to a new sealed memory file; the caller closes `*fd_out`. */
tdm_status tdm__bootstrap_write(const struct tdm__bootstrap *bootstrap, int *fd_out);
/* Reads the bootstrap from such a file. The caller frees `spec` by tdm__actor_spec_destroy(). */
tdm_status tdm__bootstrap_read(int fd, struct tdm__bootstrap *bootstrap_out);

#endif
