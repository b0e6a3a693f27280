/* background_poller.h - a thread that drives the loop while no other thread does. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_BACKGROUND_POLLER_H
#define TDM_RUNTIME_LOOP_BACKGROUND_POLLER_H

#include "runtime/loop/loop.h"

/* A thread that keeps a process responsive while its other threads compute.  If no other thread
 * has driven the loop for about a millisecond, this thread drives it, and stops as soon as
 * another thread wants to.  While another thread drives the loop continuously, the poller sleeps
 * and costs nothing.  While threads drive for short times only, it checks once a millisecond. */
struct tdm__background_poller;

/* Starts the background poller of the loop.  The loop must outlive the poller. */
tdm_status tdm__background_poller_start(struct tdm__loop *loop,
                                        struct tdm__background_poller **poller_out);
/* Stops a background poller: waits until its thread has ended and frees the poller.  The caller
 * must not hold the loop lock, which the thread needs to end.  NULL is allowed. */
void tdm__background_poller_stop(struct tdm__background_poller *background_poller);

#endif
