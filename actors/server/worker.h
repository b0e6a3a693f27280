/* worker.h - the life of a process that is an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_WORKER_H
#define TDM_ACTORS_SERVER_WORKER_H

struct tdm__worker;

/* Returns at once unless the daemon started this process as a worker (or as a fork_server of
 * workers); then it runs the actor to its end and exits. */
void tdm__worker_run_if_one(void);

/* The daemon is gone: so is this worker. */
_Noreturn void tdm__worker_exit_without_daemon(struct tdm__worker *worker);

#endif
