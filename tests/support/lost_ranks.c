/* lost_ranks.c - three ranks in processes, of which one is lost: what the others see. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/lost_ranks.h"

#include "runtime/clock.h"
#include "tests/support/faulty_comm.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void strike_self(void *arg)
{
    (void)kill(getpid(), *(int *)arg);
}

static int meet_until_failure(const struct lost_ranks *ranks, uint32_t rank, int strike_signal)
{
    struct tdm__comm *comm;
    tdm_status status;
    float value = 1;
    int64_t start_ms;

    if (ranks->maker->open(ranks->control_comm, rank, ranks->timeout_ms, &comm) != TDM_OK ||
        (strike_signal != 0 &&
         tdm__comm_faulty_open(comm, 50, strike_self, &strike_signal, &comm) != TDM_OK)) {
        return LOST_RANKS_SAW_OTHER;
    }
    do {
        start_ms = tdm__clock_ms();
        status = comm->ops->all_reduce(comm, &value, 1, TDM__COMM_FLOAT32, TDM_MAX);
    } while (status == TDM_OK);
    if (strstr(tdm_error_detail(), "rank 1 of 3") == NULL) {
        return LOST_RANKS_SAW_NO_NAME;
    }
    if (tdm__clock_ms() - start_ms > 10000) {
        return LOST_RANKS_LATE;
    }
    if (tdm__comm_barrier(comm) != status) {
        return LOST_RANKS_SAW_OTHER; /* The group must stay broken for the same reason. */
    }
    comm->ops->destroy(comm);
    return status == TDM_E_ABORTED   ? LOST_RANKS_SAW_DEATH
           : status == TDM_E_TIMEOUT ? LOST_RANKS_SAW_TIMEOUT
                                     : LOST_RANKS_SAW_OTHER;
}

void lost_ranks_start(const struct lost_ranks *ranks, int strike_signal, pid_t pids[3])
{
    for (uint32_t i = 0; i < 3; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(meet_until_failure(ranks, i, i == 1 ? strike_signal : 0));
        }
    }
}

int exit_code_of(pid_t pid)
{
    int wait_status;

    if (waitpid(pid, &wait_status, 0) != pid) {
        return INT_MIN;
    }
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
}
