/* worker_processes.h - the worker processes of a node: starting them by exec or from a fork server,
 * watching and reaping them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_PROCESSES_H
#define TDM_ACTORS_DAEMON_WORKER_PROCESSES_H

#include "actors/common/actor_spec.h"
#include "runtime/process/spawn.h"
#include "runtime/rpc/rpc.h"

/* All worker processes and fork servers of a daemon. Only the daemon's loop thread uses it. */
struct tdm__workers;
struct tdm__worker_logs;
struct tdm__fence;
struct tdm__log_source;

/* One worker process. It lives from tdm__workers_start() until its end has been reported. */
struct tdm__worker_process {
    pid_t pid;              /* Process id of the worker; 0 until the fork server has reported it. */
    struct tdm__conn *conn; /* Connection between the worker and this daemon; NULL once closed. */
    /* Log files of the worker, borrowed; NULL if the worker prints where the daemon does. */
    struct tdm__log_source *output;
    /* Number of processes that the worker has left, that were killed and that have not ended. It is
     * not 0 only once the worker has ended, and then tdm__worker_tree_ended_fn follows. */
    uint32_t left_count;
    struct tdm__peer_identity
        identity; /* Who the worker was, if the callback of its end sets it. */
};

/* Called once, after tdm__workers_start() has returned, when the worker process and all processes
 * that it has started have ended and been reaped. If some cannot be killed and the actor has no
 * restarts, it is called two seconds after the worker's end with their number in
 * worker->left_count. `worker` is freed afterwards, or after tdm__worker_tree_ended_fn. */
typedef void tdm__worker_ended_fn(void *arg, struct tdm__worker_process *worker, int wait_status);
/* Called when the last process of a worker has been reaped whose end was reported before with a
 * left_count over 0. `worker` is freed afterwards. */
typedef void tdm__worker_tree_ended_fn(void *arg, struct tdm__worker_process *worker);

/* Creates the table of workers. `worker_program`, borrowed, is the program for classes in libtandem
 * or in shared libraries. `exempt_child`, which may be NULL, returns the pid of a child of this
 * process that is not a worker (Redis). */
tdm_status tdm__workers_create(struct tdm__rpc *rpc, const char *worker_program,
                               pid_t (*exempt_child)(void), struct tdm__workers **workers_out);
/* Sets the callback for worker trees that outlive the reported end of their worker. */
void tdm__workers_on_tree_ended(struct tdm__workers *workers, tdm__worker_tree_ended_fn *fn,
                                void *arg);
/* Sets the function that says which children of this process another part of the daemon has started
 * and reaps: fn(arg, pid) is true for them. They are spared when children without a reaper are
 * killed. */
void tdm__workers_spare(struct tdm__workers *workers, bool (*fn)(void *arg, pid_t pid), void *arg);
/* Kills and reaps, soon and until none is left, all children of this process that no part of the
 * daemon has started: processes whose reaper or supervisor was killed. Never blocks. */
void tdm__workers_schedule_sweep(struct tdm__workers *workers);
/* Makes later workers print into files of `logs`, which is borrowed. */
void tdm__workers_set_logs(struct tdm__workers *workers, struct tdm__worker_logs *logs);
/* Kills all workers with the processes that they have started, and all fork servers, waits at most
 * two seconds for their ends, and frees `workers`. */
void tdm__workers_destroy(struct tdm__workers *workers);

/* How to start a worker; all pointers are borrowed during the call. */
struct tdm__worker_start_options {
    const struct tdm__actor_spec *spec; /* Spec of the actor that the worker runs. */
    /* Setting of the environment variable for visible GPUs, "NAME=value"; NULL to leave the
     * variable as it is. */
    const char *devices;
    /* Working directory of a worker whose spec has the creator's, if this node lacks that one. */
    const char *node_directory;
    /* Descriptor of the file with the worker's bootstrap message; the worker gets a duplicate. */
    int bootstrap_fd;
    /* Page by which the supervisor learns that it must kill the worker when the lease of the node
     * ends, borrowed for the life of the worker; NULL if it need not. */
    struct tdm__fence *fence;
};

/* Starts the program of the spec with descriptor 3 connected to this daemon and descriptor 4 the
 * bootstrap. The first worker of a (program, environment, directory) is executed; later ones are
 * forked from a fork server with the same key. They are executed if the fork server runs threads,
 * or if the spec sets variables of the dynamic linker ("LD_..."). */
tdm_status tdm__workers_start(struct tdm__workers *workers,
                              const struct tdm__worker_start_options *options,
                              tdm__worker_ended_fn *fn, void *arg,
                              struct tdm__worker_process **worker_out);
/* Number of descriptors that the daemon keeps for each worker: its connection, the socket of its
 * reaper, and the pidfds of both. */
enum { TDM__WORKER_FDS = 4 };
/* Sends SIGKILL to the worker process, as soon as its pid is known. */
void tdm__worker_kill(struct tdm__worker_process *public);
/* Allows the worker to close its connection before it ends, because it was asked to exit. A worker
 * that closes its connection without being asked is killed. */
void tdm__worker_expect_exit(struct tdm__worker_process *public);

#endif
