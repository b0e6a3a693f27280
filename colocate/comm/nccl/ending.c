/* ending.c - ends an ncclComm_t without waiting for other ranks for longer than a limit. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/nccl/ending.h"

#include "colocate/comm/nccl/background.h"
#include "runtime/clock.h"

#include <time.h>

/* Tells NCCL that this rank is done, and waits until its data has arrived at the other ranks.
 * Returns true then, and false if NCCL fails or the patience ends. */
static bool nccl_finalize(const struct tdm__nccl_ending *ending)
{
    static const struct timespec nap = {.tv_nsec = 100000};
    int64_t deadline_ms = tdm__deadline_after(ending->patience_ms);
    int result = ending->library->ncclCommFinalize(ending->comm);
    int state = result;

    while (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) {
        result = ending->library->ncclCommGetAsyncError(ending->comm, &state);
        if (result == NCCL_SUCCESS && state == NCCL_SUCCESS) {
            return true;
        }
        if (state != NCCL_IN_PROGRESS || tdm__deadline_remaining_ms(deadline_ms) == 0) {
            break;
        }
        (void)nanosleep(&nap, NULL);
    }
    return false;
}

void tdm__nccl_end(const struct tdm__nccl_ending *ending)
{
    (void)ending->driver->cuCtxSetCurrent(ending->context);
    if (ending->patience_ms > 0 && nccl_finalize(ending)) {
        (void)ending->library->ncclCommDestroy(ending->comm);
    } else {
        (void)ending->library->ncclCommAbort(ending->comm);
    }
}

/* Ends an ncclComm_t on a thread of its own. */
static void end_on_own_thread(void *arg)
{
    tdm__nccl_end(arg);
}

bool tdm__nccl_end_in_background(const struct tdm__nccl_ending *ending, int64_t limit_ms)
{
    return tdm__background_run(end_on_own_thread, ending, sizeof(*ending), limit_ms);
}
