/* operation.c - an operation of the communicator "nccl": its start, its waits and its failures. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Each operation first synchronises on the control communicator, so that a missing or different
 * call fails with the name of the rank. NCCL calls are nonblocking; this file polls them and the
 * stream every 20 microseconds, and checks the control communicator and the deadline.
 *
 * A failure ends the group: abort on the control communicator for the others, then ncclCommAbort
 * here, in the background. When the process of a rank ends, NCCL may report a lost connection
 * before the control communicator knows who died; it gets REMOTE_ERROR_WAIT_MS to say so.
 * One thread uses a communicator. */

#include "colocate/comm/nccl/operation.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <time.h>

/* Milliseconds for which the control communicator may say which rank has died, after NCCL has
 * reported that it lost one. */
enum { REMOTE_ERROR_WAIT_MS = 500 };

tdm_status tdm__nccl_enter(const struct tdm__nccl *nccl, struct tdm__cuda_scope *scope)
{
    return tdm__wrap(tdm__cuda_scope_enter(nccl->driver, nccl->context, scope), "rank %u",
                     nccl->base.rank);
}

tdm_status tdm__nccl_op_begin(struct tdm__nccl *nccl, const struct tdm__collective_op *call)
{
    nccl->deadline_ms = tdm__deadline_after(nccl->timeout_ms);
    return nccl->control_comm->ops->synchronize(nccl->control_comm, call);
}

tdm_status tdm__nccl_abort_group(struct tdm__nccl *nccl, tdm_status status)
{
    char why[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(why, sizeof(why), "%s", tdm_error_detail());
    /* First, because the abort of NCCL waits for the other ranks of the node. */
    nccl->control_comm->ops->abort(nccl->control_comm);
    if (nccl->comm != NULL) {
        const struct tdm__nccl_ending ending = tdm__nccl_ending_of(nccl, 0);

        nccl->comm = NULL;
        if (!tdm__nccl_end_in_background(&ending, TDM__NCCL_END_WAIT_MS)) {
            tdm__log(TDM__WARN, "comm",
                     "rank %u of %u: ncclCommAbort has not ended within %d ms, perhaps because "
                     "another rank has not made a call since: it goes on in the background",
                     nccl->base.rank, nccl->base.ranks_count, TDM__NCCL_END_WAIT_MS);
        }
    }
    return tdm__fail(status, "%s", why);
}

struct tdm__nccl_ending tdm__nccl_ending_of(const struct tdm__nccl *nccl, int64_t patience_ms)
{
    return (struct tdm__nccl_ending){.library = nccl->library,
                                     .driver = nccl->driver,
                                     .context = nccl->context,
                                     .comm = nccl->comm,
                                     .patience_ms = patience_ms};
}

/* Sleeps a moment and returns TDM_OK if the caller may wait on. Fails if the group has ended or
 * the deadline has passed. */
static tdm_status nccl_check_waiting(struct tdm__nccl *nccl, const char *call)
{
    static const struct timespec nap = {.tv_nsec = 20000};

    TDM_TRY(nccl->control_comm->ops->check(nccl->control_comm));
    if (tdm__deadline_remaining_ms(nccl->deadline_ms) == 0) {
        return tdm__fail(TDM_E_TIMEOUT, "rank %u of %u: %s did not end within %lld ms",
                         nccl->base.rank, nccl->base.ranks_count, call,
                         (long long)nccl->timeout_ms);
    }
    (void)nanosleep(&nap, NULL);
    return TDM_OK;
}

tdm_status tdm__nccl_fail(const struct tdm__nccl *nccl, int result, const char *call)
{
    const char *more = nccl->library->ncclGetLastError(nccl->comm);

    return tdm__fail(TDM_E_DEVICE, "rank %u of %u: %s: %s (%d)%s%s", nccl->base.rank,
                     nccl->base.ranks_count, call, nccl->library->ncclGetErrorString(result),
                     result, more != NULL && more[0] != '\0' ? ": " : "", more != NULL ? more : "");
}

/* Fails because of NCCL's error `result`, or, if NCCL has lost another rank, with the reason why
 * the group has ended, which names the rank. */
static tdm_status nccl_fail_or_name_rank(struct tdm__nccl *nccl, int result, const char *call)
{
    static const struct timespec nap = {.tv_nsec = 1000000};
    int64_t deadline_ms = tdm__deadline_after(REMOTE_ERROR_WAIT_MS);

    while (result == NCCL_REMOTE_ERROR && tdm__deadline_remaining_ms(deadline_ms) > 0) {
        TDM_TRY(nccl->control_comm->ops->check(nccl->control_comm));
        (void)nanosleep(&nap, NULL);
    }
    return tdm__nccl_fail(nccl, result, call);
}

/* Reads the asynchronous state of the ncclComm_t, which reports failures of calls that have
 * returned. */
static tdm_status nccl_check_comm(struct tdm__nccl *nccl, const char *call, bool *in_progress_out)
{
    int state = NCCL_SUCCESS;
    int result = nccl->library->ncclCommGetAsyncError(nccl->comm, &state);

    result = result != NCCL_SUCCESS ? result : state;
    *in_progress_out = result == NCCL_IN_PROGRESS;
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? TDM_OK
               : nccl_fail_or_name_rank(nccl, result, call);
}

tdm_status tdm__nccl_await_result(struct tdm__nccl *nccl, int result, const char *call)
{
    tdm_status status = TDM_OK;
    bool in_progress = result == NCCL_IN_PROGRESS;

    if (result != NCCL_SUCCESS && !in_progress) {
        status = nccl_fail_or_name_rank(nccl, result, call);
    }
    while (in_progress && status == TDM_OK) {
        status = nccl_check_comm(nccl, call, &in_progress);
        if (status == TDM_OK && in_progress) {
            status = nccl_check_waiting(nccl, call);
        }
    }
    return status == TDM_OK ? TDM_OK : tdm__nccl_abort_group(nccl, status);
}

tdm_status tdm__nccl_await_stream(struct tdm__nccl *nccl, const char *call)
{
    tdm_status status = TDM_OK;
    bool in_progress;
    int result;

    while ((result = nccl->driver->cuStreamQuery(nccl->stream)) == CU_NOT_READY &&
           status == TDM_OK) {
        status = nccl_check_comm(nccl, call, &in_progress);
        if (status == TDM_OK) {
            status = nccl_check_waiting(nccl, call);
        }
    }
    if (status == TDM_OK) {
        status = tdm__cuda_check(result, "rank %u of %u: cuStreamQuery after %s", nccl->base.rank,
                                 nccl->base.ranks_count, call);
    }
    return status == TDM_OK ? TDM_OK : tdm__nccl_abort_group(nccl, status);
}
