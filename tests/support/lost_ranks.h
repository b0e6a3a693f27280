/* lost_ranks.h - three ranks in processes, of which one is lost: what the others see. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_LOST_RANKS_H
#define TDM_TESTS_LOST_RANKS_H

#include "tests/conformance/comm_suite.h"

#include <sys/types.h>

struct lost_ranks {
    const struct comm_suite_maker *maker;
    int control_comm; /* Descriptor at which the three ranks find each other. */
    int64_t timeout_ms;
};

/* What a rank's exit code tells: it met the others until a call failed. */
enum {
    LOST_RANKS_SAW_DEATH = 11,
    LOST_RANKS_SAW_TIMEOUT,
    LOST_RANKS_SAW_OTHER,
    LOST_RANKS_SAW_NO_NAME, /* The failure did not name rank 1. */
    LOST_RANKS_LATE
};

/* Rank 1 strikes itself with that signal in its 50th call. */
void lost_ranks_start(const struct lost_ranks *ranks, int strike_signal, pid_t pids[3]);
/* Waits for the end of any child: its exit code, or minus the signal that ended it. */
int exit_code_of(pid_t pid);

#endif
