/* comm_suite.h - the promises that every communicator must keep. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CONFORMANCE_COMM_SUITE_H
#define TDM_TESTS_CONFORMANCE_COMM_SUITE_H

#include "colocate/comm/comm.h"

enum { COMM_SUITE_RANKS_MAX = 4 };

/* Functions by which a suite gets its communicators: `make` creates a rendezvous for `ranks_count`
 * ranks and returns its descriptor; each rank calls `open` once, in a process or thread of its
 * own. */
struct comm_suite_maker {
    int (*make)(uint32_t ranks_count, size_t slot_bytes);
    tdm_status (*open)(int rendezvous_fd, uint32_t rank, int64_t timeout_ms,
                       struct tdm__comm **comm_out);
    /* Largest number of ranks that this machine can connect; 0 for COMM_SUITE_RANKS_MAX.
     * Promises that need more ranks are skipped. */
    uint32_t ranks_max;
};

/* Runs all promises as a cmocka group, with ranks as processes or as threads. Returns the exit
 * code. */
int comm_suite_run(const char *name, const struct comm_suite_maker *maker, int threads);

#endif
