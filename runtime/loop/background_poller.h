/* background_poller.h - a thread that drives the loop while nobody else does. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_BACKGROUND_POLLER_H
#define TDM_RUNTIME_LOOP_BACKGROUND_POLLER_H

#include "runtime/loop/loop.h"

/* A process that computes is not deaf: when nobody has driven the loop for about a millisecond,
 * this thread does, and gives it back to whoever wants it.  While the loop is driven by others
 * the thread sleeps, and costs nothing; while it changes hands quickly it looks once a
 * millisecond. */
struct tdm__background_poller;

tdm_status tdm__background_poller_start(struct tdm__loop *loop,
                                        struct tdm__background_poller **poller_out);
/* Waits for the thread's end.  Not while holding the lock.  NULL is allowed. */
void tdm__background_poller_stop(struct tdm__background_poller *background_poller);

#endif
