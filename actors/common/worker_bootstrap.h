/* worker_bootstrap.h - what the daemon hands to a process that is to become an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_WORKER_BOOTSTRAP_H
#define TDM_ACTORS_COMMON_WORKER_BOOTSTRAP_H

#include "actors/common/actor_spec.h"
#include "runtime/rpc/rpc.h"

/* A worker starts with the environment variable TANDEM_WORKER set, descriptor 3 a socket to its
 * daemon, and descriptor 4 a sealed memory file with a struct tdm__bootstrap. */
#define TDM__WORKER_VARIABLE "TANDEM_WORKER"
/* Where a worker listens for calls, in its node's directory: with its actor's id as text. */
#define TDM__WORKER_SOCKET "a-%.16s"

enum { TDM__WORKER_DAEMON_FD = 3, TDM__WORKER_BOOTSTRAP_FD = 4 };

struct tdm__bootstrap {
    uint8_t token[TDM__TOKEN_BYTES];
    struct tdm__id node;
    char node_name[TDM__NODE_NAME_BYTES];
    char daemon_address[TDM__ADDRESS_BYTES];
    char directory[TDM__ADDRESS_BYTES];   /* of the node */
    char listen_host[TDM__ADDRESS_BYTES]; /* "" or where to listen for other nodes */
    uint32_t gpus_count;
    uint32_t gpu_indices[TDM__NODE_GPUS_MAX];
    uint32_t incarnation;         /* how often the actor was restarted so far */
    struct tdm__actor_spec *spec; /* owned */
};

/* Writes it to a new sealed memory file; the caller closes `fd_out`. */
tdm_status tdm__bootstrap_write(const struct tdm__bootstrap *bootstrap, int *fd_out);
/* Reads it from one; free with tdm__actor_spec_destroy(bootstrap->spec). */
tdm_status tdm__bootstrap_read(int fd, struct tdm__bootstrap *bootstrap_out);

#endif
