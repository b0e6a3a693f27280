/* nccl.c - the communicator "nccl": opening, pausing and closing. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The communicator owns an ncclComm_t, a stream, staging memory, and the control communicator
 * over host memory or TCP. operation.c starts operations and waits for NCCL, data.c moves the
 * data, ending.c ends the ncclComm_t.
 *
 * A failure ends the group: abort on the control communicator for the others, then ncclCommAbort
 * here. NCCL waits for other ranks when an ncclComm_t ends, so that this, and what can only be
 * freed afterwards, happens on a thread of its own; the caller waits for a limited time.
 * Paused: the staging memory on the GPU is freed, and NCCL has suspended the ncclComm_t if its
 * version can do that (2.29.7 and later).
 *
 * One thread uses a communicator. comm.h specifies the functions. */

#include "colocate/comm/nccl/nccl.h"

#include "colocate/comm/nccl/background.h"
#include "colocate/comm/nccl/data.h"
#include "colocate/comm/nccl/ending.h"
#include "colocate/comm/nccl/operation.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- creating and destroying -------------------------------------------------------------- */

/* Returns the configuration of a nonblocking ncclComm_t. */
static struct nccl_config nccl_nonblocking_config(void)
{
    return (struct nccl_config){.size = sizeof(struct nccl_config),
                                .magic = NCCL_CONFIG_MAGIC,
                                .version = NCCL_CONFIG_VERSION,
                                .blocking = 0};
}

/* Creates the ncclComm_t of all ranks, and returns when all have it. Rank 0 generates the unique id
 * and broadcasts it on the control communicator. */
static tdm_status nccl_connect(struct tdm__nccl *nccl)
{
    static const struct tdm__collective_op ready = {.kind = TDM__COLLECTIVE_OPEN};
    struct nccl_config config = nccl_nonblocking_config();
    struct nccl_unique_id id;
    int result = NCCL_SUCCESS;

    if (nccl->base.rank == 0) {
        result = nccl->library->ncclGetUniqueId(&id);
        if (result != NCCL_SUCCESS) {
            return tdm__nccl_abort_group(nccl, tdm__nccl_fail(nccl, result, "ncclGetUniqueId"));
        }
    }
    TDM_TRY(tdm__nccl_op_begin(nccl, &(struct tdm__collective_op){.kind = TDM__COLLECTIVE_OPEN,
                                                                  .size_bytes = sizeof(id)}));
    TDM_TRY(nccl->control_comm->ops->broadcast(nccl->control_comm, &id, sizeof(id), 0));
    result = nccl->library->ncclCommInitRankConfig(&nccl->comm, (int)nccl->base.ranks_count, id,
                                                   (int)nccl->base.rank, &config);
    TDM_TRY(tdm__nccl_await_result(nccl, result, "ncclCommInitRankConfig"));
    /* NCCL is ready on the ranks at different times. A rank that uses the group, or ends it, must
     * not disturb one that still waits for NCCL. */
    return tdm__nccl_op_begin(nccl, &ready);
}

/* Allocates the staging memory on the GPU. */
static tdm_status nccl_allocate(struct tdm__nccl *nccl)
{
    size_t all_bytes = nccl->slot_bytes * nccl->base.ranks_count;
    const struct tdm__cuda_driver *driver = nccl->driver;

    TDM_TRY(tdm__cuda_check(driver->cuMemAlloc_v2(&nccl->staged_in, nccl->slot_bytes),
                            "cuMemAlloc of %zu bytes", nccl->slot_bytes));
    TDM_TRY(tdm__cuda_check(driver->cuMemAlloc_v2(&nccl->staged_out, all_bytes),
                            "cuMemAlloc of %zu bytes", all_bytes));
    return TDM_OK;
}

/* Allocates the pinned staging memory on the host. */
static tdm_status nccl_allocate_host(struct tdm__nccl *nccl)
{
    size_t all_bytes = nccl->slot_bytes * nccl->base.ranks_count;
    const struct tdm__cuda_driver *driver = nccl->driver;
    void *address;

    TDM_TRY(
        tdm__cuda_check(driver->cuMemHostAlloc(&address, nccl->slot_bytes, CU_HOST_ALLOC_PORTABLE),
                        "cuMemHostAlloc of %zu bytes", nccl->slot_bytes));
    nccl->host_in = address;
    TDM_TRY(tdm__cuda_check(driver->cuMemHostAlloc(&address, all_bytes, CU_HOST_ALLOC_PORTABLE),
                            "cuMemHostAlloc of %zu bytes", all_bytes));
    nccl->host_out = address;
    return TDM_OK;
}

/* Frees the staging memory on the GPU. */
static void nccl_free_device_memory(struct tdm__nccl *nccl)
{
    uint64_t *const addresses[2] = {&nccl->staged_in, &nccl->staged_out};

    for (int i = 0; i < 2; i++) {
        if (*addresses[i] != 0) {
            (void)nccl->driver->cuMemFree_v2(*addresses[i]);
            *addresses[i] = 0;
        }
    }
}

/* Frees all staging memory. */
static void nccl_free_memory(struct tdm__nccl *nccl)
{
    nccl_free_device_memory(nccl);
    if (nccl->host_in != NULL) {
        (void)nccl->driver->cuMemFreeHost(nccl->host_in);
    }
    if (nccl->host_out != NULL) {
        (void)nccl->driver->cuMemFreeHost(nccl->host_out);
    }
}

/* Creates the stream and the staging memory of this rank in its context. */
static tdm_status nccl_prepare_memory(struct tdm__nccl *nccl)
{
    TDM_TRY(tdm__cuda_check(nccl->driver->cuStreamCreate(&nccl->stream, CU_STREAM_NON_BLOCKING),
                            "cuStreamCreate for rank %u", nccl->base.rank));
    TDM_TRY(nccl_allocate(nccl));
    return nccl_allocate_host(nccl);
}

/* Frees what this rank has in its context. */
static void nccl_close_context(struct tdm__nccl *nccl)
{
    TDM__CUDA_SCOPE(scope);

    if (tdm__nccl_enter(nccl, &scope) == TDM_OK) {
        nccl_free_memory(nccl);
        if (nccl->stream != NULL) {
            (void)nccl->driver->cuStreamDestroy_v2(nccl->stream);
        }
    }
}

/* Frees everything except the ncclComm_t and the control communicator. */
static void nccl_release_comm(struct tdm__nccl *nccl)
{
    if (nccl->context != NULL) {
        nccl_close_context(nccl);
        (void)nccl->driver->cuDevicePrimaryCtxRelease_v2(nccl->device);
    }
    free(nccl);
}

/* A communicator that was left, as the argument of a background function. */
struct nccl_left {
    struct tdm__nccl *nccl; /* Owned; its control communicator does not exist any more. */
    int64_t patience_ms;    /* As in struct tdm__nccl_ending. */
};

/* Ends the ncclComm_t and frees everything. */
static void nccl_release_left(void *arg)
{
    const struct nccl_left *left = arg;

    if (left->nccl->comm != NULL) {
        const struct tdm__nccl_ending ending = tdm__nccl_ending_of(left->nccl, left->patience_ms);

        tdm__nccl_end(&ending);
    }
    nccl_release_comm(left->nccl);
}

/* Ends the ncclComm_t and frees everything except the control communicator, in the background if
 * that takes longer than TDM__NCCL_END_WAIT_MS. */
static void nccl_release(struct tdm__nccl *nccl, int64_t patience_ms)
{
    const struct nccl_left left = {nccl, patience_ms};
    const struct tdm__comm base = nccl->base;

    if (!tdm__background_run(nccl_release_left, &left, sizeof(left), TDM__NCCL_END_WAIT_MS)) {
        tdm__log(TDM__WARN, "comm",
                 "rank %u of %u has left, but nccl has not ended within %d ms, perhaps because "
                 "another rank has not left: it goes on in the background, and frees its memory "
                 "then",
                 base.rank, base.ranks_count, TDM__NCCL_END_WAIT_MS);
    }
}

/* Returns true if the group has not ended. Keeps the error detail of the thread. */
static bool nccl_group_lives(const struct tdm__nccl *nccl)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    bool lives;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    lives = nccl->control_comm->ops->check(nccl->control_comm) == TDM_OK;
    (void)tdm__fail(TDM_E_ABORTED, "%s", detail);
    return lives;
}

/* Implements destroy of struct tdm__comm_ops: leaves the group and frees everything. The other
 * ranks learn of it before NCCL ends, so that they leave, too, and NCCL does not wait for them. */
static void nccl_destroy(struct tdm__comm *comm)
{
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    int64_t patience_ms = nccl_group_lives(nccl) ? nccl->timeout_ms : 0;

    nccl->control_comm->ops->destroy(nccl->control_comm);
    nccl_release(nccl, patience_ms);
}

/* Implements abort of struct tdm__comm_ops. */
static void nccl_abort(struct tdm__comm *comm)
{
    (void)tdm__nccl_abort_group((struct tdm__nccl *)comm, TDM_E_ABORTED);
}

/* Implements check of struct tdm__comm_ops with the control communicator. */
static tdm_status nccl_check(struct tdm__comm *comm)
{
    struct tdm__comm *control_comm = ((struct tdm__nccl *)comm)->control_comm;

    return control_comm->ops->check(control_comm);
}

/* Implements synchronize of struct tdm__comm_ops. */
static tdm_status nccl_synchronize(struct tdm__comm *comm, const struct tdm__collective_op *call)
{
    return tdm__nccl_op_begin((struct tdm__nccl *)comm, call);
}

/* ---- pausing ----------------------------------------------------------------------------- */

/* Implements pause of struct tdm__comm_ops. An NCCL that cannot suspend keeps its own memory. */
static tdm_status nccl_pause(struct tdm__comm *comm)
{
    static const struct tdm__collective_op pause = {.kind = TDM__COLLECTIVE_PAUSE};
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__nccl_enter(nccl, &scope));
    TDM_TRY(tdm__nccl_op_begin(nccl, &pause));
    nccl_free_device_memory(nccl);
    if (nccl->library->ncclCommSuspend == NULL) {
        return TDM_OK;
    }
    return tdm__nccl_await_result(
        nccl, nccl->library->ncclCommSuspend(nccl->comm, NCCL_SUSPEND_MEMORY), "ncclCommSuspend");
}

/* Implements resume of struct tdm__comm_ops. */
static tdm_status nccl_resume(struct tdm__comm *comm)
{
    static const struct tdm__collective_op resume = {.kind = TDM__COLLECTIVE_RESUME};
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    tdm_status status;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__nccl_enter(nccl, &scope));
    TDM_TRY(tdm__nccl_op_begin(nccl, &resume));
    if (nccl->library->ncclCommSuspend != NULL) {
        TDM_TRY(tdm__nccl_await_result(nccl, nccl->library->ncclCommResume(nccl->comm),
                                       "ncclCommResume"));
    }
    status = nccl_allocate(nccl);
    return status == TDM_OK ? TDM_OK : tdm__nccl_abort_group(nccl, status);
}

/* ---- opening ---------------------------------------------------------------------------- */

static const struct tdm__comm_ops nccl_ops = {.name = "nccl",
                                              .destroy = nccl_destroy,
                                              .abort = nccl_abort,
                                              .check = nccl_check,
                                              .synchronize = nccl_synchronize,
                                              .all_reduce = tdm__nccl_all_reduce,
                                              .all_gather = tdm__nccl_all_gather,
                                              .reduce_scatter = tdm__nccl_reduce_scatter,
                                              .broadcast = tdm__nccl_broadcast,
                                              .gather = tdm__nccl_gather,
                                              .exchange = tdm__nccl_exchange,
                                              .pause = nccl_pause,
                                              .resume = nccl_resume};

/* Allocates the struct of a communicator and fills in the options. */
static tdm_status nccl_create_comm(const struct tdm__comm_gpu_options *options,
                                   struct tdm__nccl **nccl_out)
{
    struct tdm__nccl *nccl;

    if (options->slot_bytes / options->control_comm->ranks_count < sizeof(double)) {
        return tdm__fail(TDM_E_INVAL, "a slot of %zu bytes for parts of %u ranks",
                         options->slot_bytes, options->control_comm->ranks_count);
    }
    nccl = calloc(1, sizeof(*nccl));
    if (nccl == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a communicator");
    }
    nccl->base = *options->control_comm;
    nccl->base.ops = &nccl_ops;
    nccl->control_comm = options->control_comm;
    nccl->timeout_ms = options->timeout_ms;
    nccl->slot_bytes = options->slot_bytes;
    *nccl_out = nccl;
    return TDM_OK;
}

/* Creates what this rank needs on its GPU and connects to the other ranks. */
static tdm_status nccl_start(struct tdm__nccl *nccl)
{
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_check(nccl->driver->cuDevicePrimaryCtxRetain(&nccl->context, nccl->device),
                            "cuDevicePrimaryCtxRetain for rank %u", nccl->base.rank));
    TDM_TRY(tdm__nccl_enter(nccl, &scope));
    TDM_TRY(nccl_prepare_memory(nccl));
    return nccl_connect(nccl);
}

tdm_status tdm__comm_nccl_open(const struct tdm__comm_gpu_options *options,
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
    TDM_TRY(nccl_create_comm(options, &nccl));
    nccl->library = library;
    nccl->driver = driver;
    nccl->device = gpu.device;
    status = nccl_start(nccl);
    if (status != TDM_OK) {
        /* The other ranks do not have to wait for this one. */
        status = tdm__nccl_abort_group(nccl, status);
        nccl_release(nccl, 0);
        return status;
    }
    *comm_out = &nccl->base;
    return TDM_OK;
}
