/* template.h - a started program that forks workers, so that the second one costs a fork. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_TEMPLATE_H
#define TDM_ACTORS_TEMPLATE_H

#include <stdint.h>
#include <sys/types.h>

/* A program started with TANDEM_WORKER=template stops here, in its first Tandem call, single
 * threaded and with nothing open but the control socket (SOCK_SEQPACKET, descriptor 3).
 *
 *   daemon → template   struct tdm__template_order, with the descriptors {daemon socket,
 *                       bootstrap file} and, if they are kept, {stdout, stderr}
 *   template → daemon   struct tdm__template_news: FORKED with the child's pidfd, or REFUSED
 *                       (it runs threads: the daemon executes each worker instead), or ENDED
 *                       with the child's wait status
 *
 * A worker is the template's child, so only the template can reap it.  When the control socket
 * closes the template ends, and its children die with it. */

/* In the environment of each worker, and of what it starts: whose process it is. */
#define TDM__MARK_VARIABLE "TANDEM_PROCESS_OF"
enum { TDM__MARK_BYTES = 42 }; /* actor id, dot, incarnation in 8 digits, NUL */

struct tdm__template_order {
    uint64_t serial;
    uint32_t has_output;
    char mark[TDM__MARK_BYTES];
};

enum tdm__template_news_kind {
    TDM__TEMPLATE_FORKED = 1,
    TDM__TEMPLATE_REFUSED = 2,
    TDM__TEMPLATE_ENDED = 3
};

struct tdm__template_news {
    uint32_t kind;
    int32_t pid;
    int32_t wait_status;
    uint32_t threads_count; /* with REFUSED */
    uint64_t serial;        /* of the order, with FORKED and REFUSED */
};

/* Serves orders; returns only in a forked worker, its descriptors 3 and 4 in place. */
void tdm__template_run(void);

#endif
