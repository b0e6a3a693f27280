/* nccl_suite.h - what the communicator over NCCL promises, on whatever its ranks meet. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CONFORMANCE_NCCL_SUITE_H
#define TDM_TESTS_CONFORMANCE_NCCL_SUITE_H

#include "colocate/comm/nccl/nccl.h"
#include "tests/conformance/comm_suite.h"

#include <stdio.h>
#include <sys/types.h>

struct nccl_suite_maker {
    /* Opens the communicator for control messages, which NCCL needs. */
    struct comm_suite_maker control_comm;
    /* Tells the other ranks that a rank's process has ended; NULL if they notice it themselves. */
    void (*lose)(int control_comm, uint32_t rank);
};

/* Runs the promises that comm_suite.h does not have. Returns the exit code. */
int nccl_suite_run(const char *name, const struct nccl_suite_maker *how);
/* Runs those about data on GPUs only, which every communicator for GPUs keeps. */
int nccl_suite_run_data(const char *name, const struct nccl_suite_maker *how);

/* ---- for more tests of it --------------------------------------------------------------- */

/* Opens a communicator on GPU number `place` modulo the number of GPUs. Takes ownership of
 * options->control_comm. */
tdm_status nccl_suite_open_on(uint32_t place, struct tdm__comm_gpu_options *options,
                              struct tdm__comm **comm_out);

/* The code of one rank. Returns 0, or another value after printing the error. */
typedef int nccl_rank_fn(int fd, uint32_t rank, uint32_t ranks_count);

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, tdm_error_detail());          \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Each in a process of its own, at a control_comm. */
void nccl_suite_start(int fd, uint32_t ranks_count, nccl_rank_fn *fn, pid_t *pids);
/* At a new control_comm, to their ends, which all must be 0. */
void nccl_suite_run_ranks(const struct comm_suite_maker *control_comm, uint32_t ranks_count,
                          nccl_rank_fn *fn);

#endif
