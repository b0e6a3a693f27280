/* worker_processes.h - the processes of a node: started by exec or by fork from a fork_server,
 * watched, reaped. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_PROCESSES_H
#define TDM_ACTORS_DAEMON_WORKER_PROCESSES_H

#include "actors/common/actor_spec.h"
#include "runtime/process/spawn.h"
#include "runtime/rpc/rpc.h"

struct tdm__workers;
struct tdm__worker_logs;
struct tdm__log_source;

/* One worker process.  Lives from tdm__workers_start() until its end has been told. */
struct tdm__worker_process {
    pid_t pid;                      /* 0 until the fork_server that forks it has answered */
    struct tdm__conn *conn;         /* its line to this daemon; NULL once closed */
    struct tdm__log_source *output; /* borrowed; NULL when it prints where the daemon does */
};

/* Told once, later: the process has ended and been reaped.  `worker` is freed afterwards. */
typedef void tdm__worker_ended_fn(void *arg, struct tdm__worker_process *worker, int wait_status);

/* `worker_program` runs classes that live in libtandem or in shared libraries; borrowed.
 * `exempt_child` may name a child of this process that is no worker (Redis); may be NULL. */
tdm_status tdm__workers_create(struct tdm__rpc *rpc, const char *worker_program,
                               pid_t (*exempt_child)(void), struct tdm__workers **workers_out);
/* From now on what workers print goes into files.  `logs` is borrowed. */
void tdm__workers_set_logs(struct tdm__workers *workers, struct tdm__worker_logs *logs);
/* Kills what is left and waits for it. */
void tdm__workers_destroy(struct tdm__workers *workers);

struct tdm__worker_start_options {
    const struct tdm__actor_spec *spec;
    uint32_t incarnation;
    const char *devices; /* "NAME=value" for its environment, or NULL */
    int bootstrap_fd;    /* it gets a copy */
};

/* Starts the program of the spec with descriptor 3 a line to this daemon and descriptor 4 the
 * bootstrap.  The first worker of a (program, environment, directory) is executed; later ones
 * are forked from a fork_server of the same, unless that runs threads, or the spec sets variables
 * of the dynamic linker ("LD_..."). */
tdm_status tdm__workers_start(struct tdm__workers *workers,
                              const struct tdm__worker_start_options *order,
                              tdm__worker_ended_fn *fn, void *arg,
                              struct tdm__worker_process **worker_out);
void tdm__worker_kill(struct tdm__worker_process *public);
/* It was asked to leave in good order, and may close its line before it ends.  (One that closes
 * its line unasked is killed: a worker without a daemon has no business here.) */
void tdm__worker_expect_exit(struct tdm__worker_process *public);

/* Kills children of this process that nobody here started: orphans of dead workers, which came
 * to this process because it is a subreaper.  Those of a living worker bear its mark, and stay;
 * without a readable mark they stay while a worker lives that is older than they are. */
void tdm__workers_sweep_orphans(struct tdm__workers *workers);
/* Within a moment: it looks at every process of the machine, too much for each death. */
void tdm__workers_schedule_sweep(struct tdm__workers *workers);

#endif
