/* worker.h - the main function of a worker process, which runs one actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_WORKER_H
#define TDM_ACTORS_WORKER_H

/* Returns at once in a driver. In a process that the daemon started as a worker or as a fork server
 * of workers it runs the actor to its end and exits. */
void tdm__worker_run_if_one(void);

#endif
