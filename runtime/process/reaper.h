/* reaper.h - the reaper of a worker: its parent process, which ends everything that the worker
 * leaves behind. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_REAPER_H
#define TDM_RUNTIME_PROCESS_REAPER_H

#include "runtime/process/process_tree.h"

#include <stdint.h>
#include <sys/types.h>
#include <tandem/error.h>

/* Every worker has a parent of its own, the reaper, a process that does nothing but wait. It is a
 * subreaper: a process that the worker starts, and whose own parent ends, becomes a child of the
 * reaper, whatever session, process group or environment it has chosen.  When the worker ends, the
 * reaper kills and reaps all that is left of the worker's tree, tells the daemon, and ends.
 *
 * The daemon holds one end of a socket (SOCK_SEQPACKET), the reaper the other.  The reports that
 * the daemon receives are, in this order:
 *
 * - TDM__REAPER_STARTED with pidfds of the worker and of the reaper, or TDM__REAPER_REFUSED, which
 *   is the last one;
 * - TDM__REAPER_WORKER_ENDED when the tree has been reaped, or if that takes longer than
 *   TDM__REAPER_PATIENCE_MS;
 * - the end of the socket when the last process of the tree has been reaped.  An end without a
 *   report that the worker has ended means that the reaper itself was killed.  The kernel then
 *   kills the worker, and the rest of the tree becomes children of the daemon; they are that as
 *   soon as the reaper's pidfd is readable, which is later than the end of the socket. */

/* The descriptors that come with TDM__REAPER_STARTED. */
struct tdm__reaper_pidfds {
    int worker; /* Pidfd of the worker; -1 with other reports. */
    int reaper; /* Pidfd of the reaper; -1 with other reports. */
};

/* Milliseconds after the end of a worker for which its reaper waits for the rest of the tree, which
 * it has killed, before it reports the end of the worker. */
enum { TDM__REAPER_PATIENCE_MS = 2000 };

/* What a reaper reports. */
enum tdm__reaper_report_kind {
    TDM__REAPER_STARTED = 1,     /* The worker was forked. */
    TDM__REAPER_REFUSED = 2,     /* No worker was forked, and there is no reaper. */
    TDM__REAPER_WORKER_ENDED = 3 /* The worker has ended. */
};

/* A report of a reaper to the daemon. Fields that the kind does not name are 0. */
struct tdm__reaper_report {
    uint32_t kind;       /* One of enum tdm__reaper_report_kind. */
    int32_t pid;         /* TDM__REAPER_STARTED: process id of the worker. */
    int32_t wait_status; /* TDM__REAPER_WORKER_ENDED: status of the worker from waitpid(2). */
    /* TDM__REAPER_WORKER_ENDED: further processes of the tree, which were killed and reaped. */
    struct tdm__reaped reaped;
    /* TDM__REAPER_WORKER_ENDED: number of killed processes that have not ended, and that are
     * children of the reaper. */
    uint32_t left_count;
    int32_t left_pid; /* TDM__REAPER_WORKER_ENDED: process id of one of them. */
    /* TDM__REAPER_REFUSED: number of threads of the process that was asked to fork; more than 1
     * prevent a fork. */
    uint32_t threads_count;
};

/* Makes this process, which `parent` has just forked, a reaper, and forks the worker.  Returns only
 * in the worker, which the kernel kills when the reaper ends; the reaper is killed when the thread
 * that forked it ends.  The worker closes `report_fd` and all other descriptors that it does not
 * need; the reaper closes all but `report_fd`. */
void tdm__reaper_become(int report_fd, pid_t parent);
/* Reports that no worker was forked. */
void tdm__reaper_refuse(int report_fd, uint32_t threads_count);

/* Receives one report; blocks until it is there.  The caller owns the pidfds.  TDM_E_CLOSED: the
 * reaper has ended. */
tdm_status tdm__reaper_receive(int socket_fd, struct tdm__reaper_report *report_out,
                               struct tdm__reaper_pidfds *pidfds_out);

#endif
