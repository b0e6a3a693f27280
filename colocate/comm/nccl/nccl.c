/* nccl.c - the communicator over NCCL: its life, and waiting without hanging. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/nccl/nccl.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- waiting ---------------------------------------------------------------------------- */

static tdm_status enter(struct tdm__nccl *nccl)
{
    return tdm__cuda_check(nccl->driver->cuCtxSetCurrent(nccl->context),
                           "cuCtxSetCurrent for rank %u", nccl->base.rank);
}

static bool needs_nccl(enum tdm__comm_call_kind kind)
{
    return kind != TDM__CALL_OPEN && kind != TDM__CALL_RESUME && kind != TDM__CALL_BARRIER;
}

tdm_status tdm__nccl_begin(struct tdm__nccl *nccl, enum tdm__comm_call_kind kind,
                           size_t size_bytes, uint32_t variant)
{
    const struct tdm__comm_call call = {
        .kind = kind, .variant = variant, .size_bytes = size_bytes};

    nccl->deadline_ms = tdm__deadline_in(nccl->timeout_ms);
    TDM_TRY(nccl->meeting->ops->meet(nccl->meeting, &call));
    if (nccl->comm == NULL && needs_nccl(kind)) {
        return tdm__fail(TDM_E_STATE, "rank %u of %u is suspended", nccl->base.rank,
                         nccl->base.ranks_count);
    }
    return enter(nccl);
}

tdm_status tdm__nccl_give_up(struct tdm__nccl *nccl, tdm_status status)
{
    char why[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(why, sizeof(why), "%s", tdm_error_detail());
    if (nccl->comm != NULL) {
        (void)nccl->library->ncclCommAbort(nccl->comm);
        nccl->comm = NULL;
    }
    nccl->meeting->ops->abort(nccl->meeting);
    return tdm__fail(status, "%s", why);
}

/* Whether to go on waiting for `call`: not when the group has ended or the time is over. */
static tdm_status may_wait(struct tdm__nccl *nccl, const char *call)
{
    static const struct timespec nap = {.tv_nsec = 20000};

    TDM_TRY(nccl->meeting->ops->check(nccl->meeting));
    if (tdm__deadline_left(nccl->deadline_ms) == 0) {
        return tdm__fail(TDM_E_TIMEOUT, "rank %u of %u: %s did not end within %lld ms",
                         nccl->base.rank, nccl->base.ranks_count, call,
                         (long long)nccl->timeout_ms);
    }
    (void)nanosleep(&nap, NULL);
    return TDM_OK;
}

static tdm_status fail_nccl(const struct tdm__nccl *nccl, int result, const char *call)
{
    const char *more = nccl->library->ncclGetLastError(nccl->comm);

    return tdm__fail(TDM_E_DEVICE, "rank %u of %u: %s: %s (%d)%s%s", nccl->base.rank,
                     nccl->base.ranks_count, call, nccl->library->ncclGetErrorString(result),
                     result, more != NULL && more[0] != '\0' ? ": " : "",
                     more != NULL ? more : "");
}

/* The communicator's own state, which tells of failures of calls long returned. */
static tdm_status check_comm(struct tdm__nccl *nccl, const char *call, bool *in_progress_out)
{
    int state = NCCL_SUCCESS;
    int result = nccl->library->ncclCommGetAsyncError(nccl->comm, &state);

    result = result != NCCL_SUCCESS ? result : state;
    *in_progress_out = result == NCCL_IN_PROGRESS;
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS ? TDM_OK
                                                                : fail_nccl(nccl, result, call);
}

tdm_status tdm__nccl_settle(struct tdm__nccl *nccl, int result, const char *call)
{
    tdm_status status = TDM_OK;
    bool in_progress = result == NCCL_IN_PROGRESS;

    if (result != NCCL_SUCCESS && !in_progress) {
        status = fail_nccl(nccl, result, call);
    }
    while (in_progress && status == TDM_OK) {
        status = check_comm(nccl, call, &in_progress);
        if (status == TDM_OK && in_progress) {
            status = may_wait(nccl, call);
        }
    }
    return status == TDM_OK ? TDM_OK : tdm__nccl_give_up(nccl, status);
}

tdm_status tdm__nccl_finish(struct tdm__nccl *nccl, const char *call)
{
    tdm_status status = TDM_OK;
    bool in_progress;
    int result;

    while ((result = nccl->driver->cuStreamQuery(nccl->stream)) == CU_NOT_READY &&
           status == TDM_OK) {
        status = check_comm(nccl, call, &in_progress);
        if (status == TDM_OK) {
            status = may_wait(nccl, call);
        }
    }
    if (status == TDM_OK) {
        status = tdm__cuda_check(result, "rank %u of %u: cuStreamQuery after %s",
                                 nccl->base.rank, nccl->base.ranks_count, call);
    }
    return status == TDM_OK ? TDM_OK : tdm__nccl_give_up(nccl, status);
}

/* ---- life ------------------------------------------------------------------------------- */

static struct nccl_config not_blocking(void)
{
    return (struct nccl_config){.size = sizeof(struct nccl_config),
                                .magic = NCCL_CONFIG_MAGIC,
                                .version = NCCL_CONFIG_VERSION,
                                .blocking = 0};
}

/* Rank 0 invents the name under which the others find it. */
static tdm_status connect(struct tdm__nccl *nccl, enum tdm__comm_call_kind kind)
{
    struct nccl_config config = not_blocking();
    struct nccl_unique_id id;
    int result = NCCL_SUCCESS;

    if (nccl->base.rank == 0) {
        result = nccl->library->ncclGetUniqueId(&id);
        if (result != NCCL_SUCCESS) {
            return tdm__nccl_give_up(nccl, fail_nccl(nccl, result, "ncclGetUniqueId"));
        }
    }
    TDM_TRY(tdm__nccl_begin(nccl, kind, sizeof(id), 0));
    TDM_TRY(nccl->meeting->ops->broadcast(nccl->meeting, &id, sizeof(id), 0));
    result = nccl->library->ncclCommInitRankConfig(&nccl->comm, (int)nccl->base.ranks_count, id,
                                                   (int)nccl->base.rank, &config);
    return tdm__nccl_settle(nccl, result, "ncclCommInitRankConfig");
}

static tdm_status split(struct tdm__nccl *nccl, const struct tdm__comm_nccl_options *options)
{
    struct tdm__nccl *parent = (struct tdm__nccl *)options->parent;
    struct nccl_config config = not_blocking();
    int result;

    TDM_TRY(tdm__nccl_begin(nccl, TDM__CALL_OPEN, 0, (uint32_t)options->color));
    parent->deadline_ms = nccl->deadline_ms;
    result = nccl->library->ncclCommSplit(parent->comm, options->color, (int)nccl->base.rank,
                                          &nccl->comm, &config);
    TDM_TRY(tdm__nccl_settle(parent, result, "ncclCommSplit"));
    return tdm__nccl_settle(nccl, NCCL_IN_PROGRESS, "ncclCommSplit");
}

static tdm_status allocate(struct tdm__nccl *nccl)
{
    size_t all_bytes = nccl->slot_bytes * nccl->base.ranks_count;
    const struct tdm__cuda_driver *driver = nccl->driver;

    TDM_TRY(tdm__cuda_check(driver->cuMemAlloc_v2(&nccl->staged_in, nccl->slot_bytes),
                            "cuMemAlloc of %zu bytes", nccl->slot_bytes));
    TDM_TRY(tdm__cuda_check(driver->cuMemAlloc_v2(&nccl->staged_out, all_bytes),
                            "cuMemAlloc of %zu bytes", all_bytes));
    return TDM_OK;
}

static tdm_status allocate_host(struct tdm__nccl *nccl)
{
    size_t all_bytes = nccl->slot_bytes * nccl->base.ranks_count;
    const struct tdm__cuda_driver *driver = nccl->driver;
    void *address;

    TDM_TRY(tdm__cuda_check(driver->cuMemHostAlloc(&address, nccl->slot_bytes, 0),
                            "cuMemHostAlloc of %zu bytes", nccl->slot_bytes));
    nccl->host_in = address;
    TDM_TRY(tdm__cuda_check(driver->cuMemHostAlloc(&address, all_bytes, 0),
                            "cuMemHostAlloc of %zu bytes", all_bytes));
    nccl->host_out = address;
    return TDM_OK;
}

static void free_device_memory(struct tdm__nccl *nccl)
{
    uint64_t *const addresses[2] = {&nccl->staged_in, &nccl->staged_out};

    for (int i = 0; i < 2; i++) {
        if (*addresses[i] != 0) {
            (void)nccl->driver->cuMemFree_v2(*addresses[i]);
            *addresses[i] = 0;
        }
    }
}

static void free_memory(struct tdm__nccl *nccl)
{
    free_device_memory(nccl);
    if (nccl->host_in != NULL) {
        (void)nccl->driver->cuMemFreeHost(nccl->host_in);
    }
    if (nccl->host_out != NULL) {
        (void)nccl->driver->cuMemFreeHost(nccl->host_out);
    }
}

/* Everything of this rank but the communicator itself. */
static tdm_status prepare(struct tdm__nccl *nccl)
{
    TDM_TRY(
        tdm__cuda_check(nccl->driver->cuDevicePrimaryCtxRetain(&nccl->context, nccl->device),
                        "cuDevicePrimaryCtxRetain for rank %u", nccl->base.rank));
    TDM_TRY(enter(nccl));
    TDM_TRY(tdm__cuda_check(nccl->driver->cuStreamCreate(&nccl->stream, CU_STREAM_NON_BLOCKING),
                            "cuStreamCreate for rank %u", nccl->base.rank));
    TDM_TRY(allocate(nccl));
    return allocate_host(nccl);
}

static void dismantle(struct tdm__nccl *nccl)
{
    if (nccl->context != NULL && enter(nccl) == TDM_OK) {
        free_memory(nccl);
        if (nccl->stream != NULL) {
            (void)nccl->driver->cuStreamDestroy_v2(nccl->stream);
        }
        (void)nccl->driver->cuDevicePrimaryCtxRelease_v2(nccl->device);
    }
    free(nccl);
}

static void nccl_destroy(struct tdm__comm *comm)
{
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;

    nccl->meeting->ops->destroy(nccl->meeting);
    if (nccl->comm != NULL && enter(nccl) == TDM_OK) {
        (void)nccl->library->ncclCommDestroy(nccl->comm);
    }
    dismantle(nccl);
}

static void nccl_abort(struct tdm__comm *comm)
{
    (void)tdm__nccl_give_up((struct tdm__nccl *)comm, TDM_E_ABORTED);
}

static tdm_status nccl_check(struct tdm__comm *comm)
{
    struct tdm__comm *meeting = ((struct tdm__nccl *)comm)->meeting;

    return meeting->ops->check(meeting);
}

static tdm_status nccl_meet(struct tdm__comm *comm, const struct tdm__comm_call *call)
{
    return tdm__nccl_begin((struct tdm__nccl *)comm, call->kind, call->size_bytes,
                           call->variant);
}

/* ---- suspending ------------------------------------------------------------------------- */

tdm_status tdm__comm_nccl_suspend(struct tdm__comm *comm)
{
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    const struct tdm__nccl_library *library = nccl->library;

    TDM_TRY(tdm__nccl_begin(nccl, TDM__CALL_SUSPEND, 0, 0));
    free_device_memory(nccl);
    nccl->suspended_inside = library->ncclCommSuspend != NULL;
    if (nccl->suspended_inside) {
        return tdm__nccl_settle(nccl, library->ncclCommSuspend(nccl->comm, NCCL_SUSPEND_MEMORY),
                                "ncclCommSuspend");
    }
    (void)library->ncclCommDestroy(nccl->comm);
    nccl->comm = NULL;
    return TDM_OK;
}

tdm_status tdm__comm_nccl_resume(struct tdm__comm *comm)
{
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    tdm_status status;

    if (nccl->suspended_inside) {
        TDM_TRY(tdm__nccl_begin(nccl, TDM__CALL_RESUME, 0, 0));
        TDM_TRY(tdm__nccl_settle(nccl, nccl->library->ncclCommResume(nccl->comm),
                                 "ncclCommResume"));
        nccl->suspended_inside = false;
    } else {
        TDM_TRY(connect(nccl, TDM__CALL_RESUME));
    }
    status = allocate(nccl);
    return status == TDM_OK ? TDM_OK : tdm__nccl_give_up(nccl, status);
}

/* ---- opening ---------------------------------------------------------------------------- */

static const struct tdm__comm_ops nccl_ops = {.name = "nccl",
                                              .destroy = nccl_destroy,
                                              .abort = nccl_abort,
                                              .check = nccl_check,
                                              .meet = nccl_meet,
                                              .all_reduce = tdm__nccl_all_reduce,
                                              .all_gather = tdm__nccl_all_gather,
                                              .reduce_scatter = tdm__nccl_reduce_scatter,
                                              .broadcast = tdm__nccl_broadcast,
                                              .gather = tdm__nccl_gather};

static tdm_status create(const struct tdm__comm_nccl_options *options,
                         struct tdm__nccl **nccl_out)
{
    struct tdm__nccl *nccl;

    if (options->slot_bytes / options->meeting->ranks_count < sizeof(double)) {
        return tdm__fail(TDM_E_INVAL, "a slot of %zu bytes for parts of %u ranks",
                         options->slot_bytes, options->meeting->ranks_count);
    }
    nccl = calloc(1, sizeof(*nccl));
    if (nccl == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a communicator");
    }
    nccl->base = *options->meeting;
    nccl->base.ops = &nccl_ops;
    nccl->meeting = options->meeting;
    nccl->timeout_ms = options->timeout_ms;
    nccl->slot_bytes = options->slot_bytes;
    *nccl_out = nccl;
    return TDM_OK;
}

tdm_status tdm__comm_nccl_open(const struct tdm__comm_nccl_options *options,
                               struct tdm__comm **comm_out)
{
    const struct tdm__nccl_library *library;
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_gpu gpu;
    struct tdm__nccl *nccl;
    tdm_status status;

    TDM_TRY(tdm__nccl_library(&library));
    TDM_TRY(tdm__cuda_driver(&driver));
    TDM_TRY(tdm__cuda_gpu_find(options->gpu_uuid, &gpu));
    TDM_TRY(create(options, &nccl));
    nccl->library = library;
    nccl->driver = driver;
    nccl->device = gpu.device;
    status = prepare(nccl);
    if (status == TDM_OK) {
        status = options->parent != NULL ? split(nccl, options) : connect(nccl, TDM__CALL_OPEN);
    }
    if (status != TDM_OK) {
        (void)tdm__nccl_give_up(nccl, status); /* the others need not wait for us */
        dismantle(nccl);
        return status;
    }
    *comm_out = &nccl->base;
    return TDM_OK;
}
