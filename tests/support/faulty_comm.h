/* faulty_comm.h - a communicator in which one rank fails at its n-th call, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FAULTY_COMM_H
#define TDM_TESTS_FAULTY_COMM_H

#include "colocate/comm/comm.h"

/* Wraps `inner`, which it owns once it returns TDM_OK.  Instead of the n-th call (from 1),
 * `strike` runs; it may end the process or make the rank silent.  If it returns, the call fails
 * with TDM_E_ABORTED. */
tdm_status tdm__comm_faulty_open(struct tdm__comm *inner, uint64_t nth, void (*strike)(void *arg),
                                 void *arg, struct tdm__comm **comm_out);

#endif
