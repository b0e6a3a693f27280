/* staged.c - the communicator "staged": moves data of GPUs through host memory. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The communicator owns the control communicator, a CUDA stream and pinned host memory: one slot
 * for this rank (own_slot) and one for each rank (all_slots). The control communicator does every
 * operation on host memory. Data on the GPU is copied there chunk by chunk, and the result back.
 *
 * Each operation first synchronises the ranks on the whole operation, with the kind of memory, so
 * that ranks with data in different kinds of memory get an error, as with NCCL. A failure ends the
 * group for all ranks. One thread uses a communicator. comm.h specifies the functions. */

#include "colocate/comm/gpu/staged.h"

#include "colocate/comm/exchange_step.h"
#include "colocate/comm/gpu/memory.h"
#include "colocate/comm/reduce.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A communicator that moves data of GPUs through host memory. */
struct staged {
    struct tdm__comm base;
    struct tdm__comm *control_comm;        /* Owned communicator of the same ranks. */
    const struct tdm__cuda_driver *driver; /* Functions of the CUDA driver. */
    int device;                            /* The driver's device number. */
    void *context;                         /* Retained primary context of the GPU. */
    void *stream;                          /* Owned stream of the copies. */
    size_t slot_bytes;                     /* Bytes of a slot. */
    char *own_slot;                        /* Owned pinned memory of one slot. */
    char *all_slots;                       /* Owned pinned memory of one slot per rank. */
    int64_t timeout_ms;                    /* Milliseconds after which an operation fails. */
    /* Deadline of the operation in progress, in milliseconds on CLOCK_MONOTONIC. */
    int64_t deadline_ms;
};

/* Returns the smaller size. */
static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the implementation of a communicator. */
static struct staged *staged_of(struct tdm__comm *comm)
{
    return (struct staged *)comm;
}

/* Ends the group for all ranks because of this rank, and returns `status` with its error detail. */
static tdm_status staged_abort_group(struct staged *staged, tdm_status status)
{
    char why[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(why, sizeof(why), "%s", tdm_error_detail());
    staged->control_comm->ops->abort(staged->control_comm);
    return tdm__fail(status, "rank %u of %u: %s", staged->base.rank, staged->base.ranks_count, why);
}

/* Makes the GPU's context current on the calling thread until the scope ends, so that the caller's
 * current device is what it was. */
static tdm_status staged_enter(const struct staged *staged, struct tdm__cuda_scope *scope)
{
    return tdm__cuda_scope_enter(staged->driver, staged->context, scope);
}

/* Starts an operation: finds out where this rank's data lies and blocks until all ranks are in the
 * same operation, with data in the same kind of memory. `in` and `out` are as in
 * tdm__gpu_memory_of(). `*on_gpu_out` is true for data on GPUs. The GPU's context is current
 * until `scope` ends. */
static tdm_status staged_op_begin(struct staged *staged, struct tdm__collective_op call,
                                  const void *in, const void *out, bool *on_gpu_out,
                                  struct tdm__cuda_scope *scope)
{
    tdm_status status = staged_enter(staged, scope);

    staged->deadline_ms = tdm__deadline_after(staged->timeout_ms);
    if (status == TDM_OK) {
        status = tdm__gpu_memory_of(staged->driver, in, out, &call.memory);
    }
    if (status != TDM_OK) {
        return staged_abort_group(staged, status);
    }
    *on_gpu_out = call.memory == TDM__COMM_MEMORY_GPU;
    return staged->control_comm->ops->synchronize(staged->control_comm, &call);
}

/* Ends the group if the deadline of the operation has passed. */
static tdm_status staged_check_deadline(struct staged *staged)
{
    if (tdm__deadline_remaining_ms(staged->deadline_ms) > 0) {
        return TDM_OK;
    }
    return staged_abort_group(staged, tdm__fail(TDM_E_TIMEOUT,
                                                "the copies between GPU and host memory did not "
                                                "end within %lld ms",
                                                (long long)staged->timeout_ms));
}

/* Waits until the stream has done its copies. */
static tdm_status staged_await_copies(struct staged *staged)
{
    static const struct timespec nap = {.tv_nsec = 20000};
    tdm_status status;
    int result;

    while ((result = staged->driver->cuStreamQuery(staged->stream)) == CU_NOT_READY) {
        TDM_TRY(staged_check_deadline(staged));
        (void)nanosleep(&nap, NULL);
    }
    status = tdm__cuda_check(result, "cuStreamQuery after a copy between GPU and host memory");
    return status == TDM_OK ? TDM_OK : staged_abort_group(staged, status);
}

/* Queues a copy; the driver knows from an address which memory it is in. */
static tdm_status staged_copy(struct staged *staged, void *to, const void *from, size_t size_bytes)
{
    tdm_status status;

    TDM_TRY(staged_check_deadline(staged));
    status = tdm__cuda_check(staged->driver->cuMemcpyAsync((uint64_t)(uintptr_t)to,
                                                           (uint64_t)(uintptr_t)from, size_bytes,
                                                           staged->stream),
                             "cuMemcpyAsync of %zu bytes", size_bytes);
    return status == TDM_OK ? TDM_OK : staged_abort_group(staged, status);
}

/* Copies and waits for the end of the copy. */
static tdm_status staged_copy_now(struct staged *staged, void *to, const void *from,
                                  size_t size_bytes)
{
    TDM_TRY(staged_copy(staged, to, from, size_bytes));
    return staged_await_copies(staged);
}

/* ---- operations --------------------------------------------------------------------------- */

/* Implements synchronize of struct tdm__comm_ops. */
static tdm_status staged_synchronize(struct tdm__comm *comm, const struct tdm__collective_op *call)
{
    struct tdm__comm *control_comm = staged_of(comm)->control_comm;

    return control_comm->ops->synchronize(control_comm, call);
}

/* Implements all_reduce of struct tdm__comm_ops. */
static tdm_status staged_all_reduce(struct tdm__comm *comm, void *data, size_t count,
                                    enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    struct staged *staged = staged_of(comm);
    struct tdm__comm *control_comm = staged->control_comm;
    size_t unit_bytes = tdm__comm_dtype_bytes(dtype);
    const struct tdm__collective_op call = {
        .kind = TDM__COLLECTIVE_ALL_REDUCE,
        .root_or_dtype = (dtype == TDM__COMM_FLOAT64 ? 1u : 0u) | (reduction == TDM_MAX ? 2u : 0u),
        .size_bytes = count * unit_bytes};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(staged_op_begin(staged, call, data, NULL, &on_gpu, &scope));
    if (!on_gpu) {
        return control_comm->ops->all_reduce(control_comm, data, count, dtype, reduction);
    }
    for (size_t done = 0; done < count;) {
        size_t chunk = min_size(count - done, staged->slot_bytes / unit_bytes);
        char *at = (char *)data + done * unit_bytes;

        TDM_TRY(staged_copy_now(staged, staged->own_slot, at, chunk * unit_bytes));
        TDM_TRY(
            control_comm->ops->all_reduce(control_comm, staged->own_slot, chunk, dtype, reduction));
        TDM_TRY(staged_copy_now(staged, at, staged->own_slot, chunk * unit_bytes));
        done += chunk;
    }
    return TDM_OK;
}

/* Implements reduce_scatter of struct tdm__comm_ops. */
static tdm_status staged_reduce_scatter(struct tdm__comm *comm, const float *in, size_t count,
                                        float *out)
{
    struct staged *staged = staged_of(comm);
    struct tdm__comm *control_comm = staged->control_comm;
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_REDUCE_SCATTER,
                                            .size_bytes = count * sizeof(float)};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(staged_op_begin(staged, call, in, out, &on_gpu, &scope));
    if (!on_gpu) {
        return control_comm->ops->reduce_scatter(control_comm, in, count, out);
    }
    for (size_t done = 0; done < count;) {
        size_t chunk = min_size(count - done, staged->slot_bytes / sizeof(float));
        size_t chunk_bytes = chunk * sizeof(float);

        for (uint32_t i = 0; i < comm->ranks_count; i++) {
            TDM_TRY(staged_copy(staged, staged->all_slots + i * chunk_bytes, in + i * count + done,
                                chunk_bytes));
        }
        TDM_TRY(staged_await_copies(staged));
        TDM_TRY(control_comm->ops->reduce_scatter(control_comm,
                                                  (const float *)(const void *)staged->all_slots,
                                                  chunk, (float *)(void *)staged->own_slot));
        TDM_TRY(staged_copy_now(staged, out + done, staged->own_slot, chunk_bytes));
        done += chunk;
    }
    return TDM_OK;
}

/* Copies a chunk of every rank from all_slots to its place in `out`. */
static tdm_status staged_spread_chunks(struct staged *staged, char *out, size_t bytes_per_rank,
                                       size_t done, size_t chunk_bytes)
{
    for (uint32_t i = 0; i < staged->base.ranks_count; i++) {
        TDM_TRY(staged_copy(staged, out + i * bytes_per_rank + done,
                            staged->all_slots + i * chunk_bytes, chunk_bytes));
    }
    return staged_await_copies(staged);
}

/* Implements all_gather of struct tdm__comm_ops. */
static tdm_status staged_all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                    void *out)
{
    struct staged *staged = staged_of(comm);
    struct tdm__comm *control_comm = staged->control_comm;
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_ALL_GATHER,
                                            .size_bytes = bytes_per_rank};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(staged_op_begin(staged, call, in, out, &on_gpu, &scope));
    if (!on_gpu) {
        return control_comm->ops->all_gather(control_comm, in, bytes_per_rank, out);
    }
    for (size_t done = 0; done < bytes_per_rank;) {
        size_t chunk_bytes = min_size(bytes_per_rank - done, staged->slot_bytes);

        TDM_TRY(staged_copy_now(staged, staged->own_slot, (const char *)in + done, chunk_bytes));
        TDM_TRY(control_comm->ops->all_gather(control_comm, staged->own_slot, chunk_bytes,
                                              staged->all_slots));
        TDM_TRY(staged_spread_chunks(staged, out, bytes_per_rank, done, chunk_bytes));
        done += chunk_bytes;
    }
    return TDM_OK;
}

/* Implements gather of struct tdm__comm_ops. */
static tdm_status staged_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                void *out, uint32_t root)
{
    struct staged *staged = staged_of(comm);
    struct tdm__comm *control_comm = staged->control_comm;
    bool receives = comm->rank == root;
    const struct tdm__collective_op call = {
        .kind = TDM__COLLECTIVE_GATHER, .root_or_dtype = root, .size_bytes = bytes_per_rank};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(staged_op_begin(staged, call, in, receives ? out : NULL, &on_gpu, &scope));
    if (!on_gpu) {
        return control_comm->ops->gather(control_comm, in, bytes_per_rank, out, root);
    }
    for (size_t done = 0; done < bytes_per_rank;) {
        size_t chunk_bytes = min_size(bytes_per_rank - done, staged->slot_bytes);

        TDM_TRY(staged_copy_now(staged, staged->own_slot, (const char *)in + done, chunk_bytes));
        TDM_TRY(control_comm->ops->gather(control_comm, staged->own_slot, chunk_bytes,
                                          staged->all_slots, root));
        if (receives) {
            TDM_TRY(staged_spread_chunks(staged, out, bytes_per_rank, done, chunk_bytes));
        }
        done += chunk_bytes;
    }
    return TDM_OK;
}

/* Implements broadcast of struct tdm__comm_ops. */
static tdm_status staged_broadcast(struct tdm__comm *comm, void *data, size_t size_bytes,
                                   uint32_t root)
{
    struct staged *staged = staged_of(comm);
    struct tdm__comm *control_comm = staged->control_comm;
    const struct tdm__collective_op call = {
        .kind = TDM__COLLECTIVE_BROADCAST, .root_or_dtype = root, .size_bytes = size_bytes};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(staged_op_begin(staged, call, data, NULL, &on_gpu, &scope));
    if (!on_gpu) {
        return control_comm->ops->broadcast(control_comm, data, size_bytes, root);
    }
    for (size_t done = 0; done < size_bytes;) {
        size_t chunk_bytes = min_size(size_bytes - done, staged->slot_bytes);
        char *at = (char *)data + done;

        if (comm->rank == root) {
            TDM_TRY(staged_copy_now(staged, staged->own_slot, at, chunk_bytes));
        }
        TDM_TRY(control_comm->ops->broadcast(control_comm, staged->own_slot, chunk_bytes, root));
        if (comm->rank != root) {
            TDM_TRY(staged_copy_now(staged, at, staged->own_slot, chunk_bytes));
        }
        done += chunk_bytes;
    }
    return TDM_OK;
}

/* Moves one step of an exchange: from the GPU, between the ranks, and to the GPU. Own slot and all
 * slots have room for one part of each rank. */
static tdm_status staged_exchange_step(struct staged *staged,
                                       const struct tdm__comm_exchange *exchange, size_t done,
                                       size_t part_bytes)
{
    struct tdm__comm *control_comm = staged->control_comm;
    struct tdm__exchange_step step;
    struct tdm__comm_exchange on_host;

    tdm__exchange_step_init(&step, &staged->base, exchange, done, part_bytes);
    on_host = tdm__exchange_step_staged(&step, staged->own_slot, staged->all_slots);
    for (uint32_t i = 0; i < staged->base.ranks_count; i++) {
        if (step.send_bytes[i] > 0) {
            TDM_TRY(staged_copy(staged, staged->own_slot + step.offsets[i],
                                (const char *)exchange->in + exchange->send_offsets[i] + done,
                                step.send_bytes[i]));
        }
    }
    TDM_TRY(staged_await_copies(staged));
    TDM_TRY(control_comm->ops->exchange(control_comm, &on_host));
    for (uint32_t i = 0; i < staged->base.ranks_count; i++) {
        if (step.receive_bytes[i] > 0) {
            TDM_TRY(staged_copy(staged, (char *)exchange->out + exchange->receive_offsets[i] + done,
                                staged->all_slots + step.offsets[i], step.receive_bytes[i]));
        }
    }
    return staged_await_copies(staged);
}

/* Implements exchange of struct tdm__comm_ops. */
static tdm_status staged_exchange(struct tdm__comm *comm, const struct tdm__comm_exchange *exchange)
{
    struct staged *staged = staged_of(comm);
    struct tdm__comm *control_comm = staged->control_comm;
    size_t part_bytes = staged->slot_bytes / comm->ranks_count;
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_EXCHANGE,
                                            .size_bytes = exchange->part_bytes_max};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(staged_op_begin(staged, call, exchange->in, exchange->out, &on_gpu, &scope));
    if (!on_gpu) {
        return control_comm->ops->exchange(control_comm, exchange);
    }
    for (size_t done = 0; done < exchange->part_bytes_max; done += part_bytes) {
        TDM_TRY(staged_exchange_step(staged, exchange, done, part_bytes));
    }
    return TDM_OK;
}

/* ---- opening and closing ----------------------------------------------------------------- */

/* Implements abort of struct tdm__comm_ops. */
static void staged_abort(struct tdm__comm *comm)
{
    struct tdm__comm *control_comm = staged_of(comm)->control_comm;

    control_comm->ops->abort(control_comm);
}

/* Implements check of struct tdm__comm_ops. */
static tdm_status staged_check(struct tdm__comm *comm)
{
    struct tdm__comm *control_comm = staged_of(comm)->control_comm;

    return control_comm->ops->check(control_comm);
}

/* Frees what this rank has in its context. */
static void staged_close_context(struct staged *staged)
{
    TDM__CUDA_SCOPE(scope);

    if (staged_enter(staged, &scope) != TDM_OK) {
        return;
    }
    if (staged->own_slot != NULL) {
        (void)staged->driver->cuMemFreeHost(staged->own_slot);
    }
    if (staged->all_slots != NULL) {
        (void)staged->driver->cuMemFreeHost(staged->all_slots);
    }
    if (staged->stream != NULL) {
        (void)staged->driver->cuStreamDestroy_v2(staged->stream);
    }
}

/* Frees everything except the control communicator. */
static void staged_release(struct staged *staged)
{
    if (staged->context != NULL) {
        staged_close_context(staged);
        (void)staged->driver->cuDevicePrimaryCtxRelease_v2(staged->device);
    }
    free(staged);
}

/* Implements destroy of struct tdm__comm_ops. */
static void staged_destroy(struct tdm__comm *comm)
{
    struct staged *staged = staged_of(comm);

    staged->control_comm->ops->destroy(staged->control_comm);
    staged_release(staged);
}

/* Allocates pinned host memory of `slots_count` slots. */
static tdm_status staged_allocate(struct staged *staged, uint32_t slots_count, char **address_out)
{
    size_t size_bytes = slots_count * staged->slot_bytes;
    void *address;

    TDM_TRY(tdm__cuda_check(
        staged->driver->cuMemHostAlloc(&address, size_bytes, CU_HOST_ALLOC_PORTABLE),
        "cuMemHostAlloc of %zu bytes", size_bytes));
    *address_out = address;
    return TDM_OK;
}

/* Creates context, stream and staging memory of this rank. */
static tdm_status staged_prepare(struct staged *staged)
{
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(
        tdm__cuda_check(staged->driver->cuDevicePrimaryCtxRetain(&staged->context, staged->device),
                        "cuDevicePrimaryCtxRetain for rank %u", staged->base.rank));
    TDM_TRY(staged_enter(staged, &scope));
    TDM_TRY(tdm__cuda_check(staged->driver->cuStreamCreate(&staged->stream, CU_STREAM_NON_BLOCKING),
                            "cuStreamCreate for rank %u", staged->base.rank));
    TDM_TRY(staged_allocate(staged, 1, &staged->own_slot));
    return staged_allocate(staged, staged->base.ranks_count, &staged->all_slots);
}

static const struct tdm__comm_ops staged_ops = {.name = "staged",
                                                .destroy = staged_destroy,
                                                .abort = staged_abort,
                                                .check = staged_check,
                                                .synchronize = staged_synchronize,
                                                .all_reduce = staged_all_reduce,
                                                .all_gather = staged_all_gather,
                                                .reduce_scatter = staged_reduce_scatter,
                                                .broadcast = staged_broadcast,
                                                .gather = staged_gather,
                                                .exchange = staged_exchange};

tdm_status tdm__comm_staged_open(const struct tdm__comm_gpu_options *options,
                                 struct tdm__comm **comm_out)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_gpu gpu;
    struct staged *staged;
    tdm_status status;

    if (options->slot_bytes < sizeof(double)) {
        return tdm__fail(TDM_E_INVAL, "a slot of %zu bytes: at least %zu", options->slot_bytes,
                         sizeof(double));
    }
    TDM_TRY(tdm__cuda_driver(&driver));
    TDM_TRY(tdm__cuda_gpu_find(options->gpu_uuid, &gpu));
    staged = calloc(1, sizeof(*staged));
    if (staged == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a communicator");
    }
    staged->base = *options->control_comm;
    staged->base.ops = &staged_ops;
    staged->control_comm = options->control_comm;
    staged->driver = driver;
    staged->device = gpu.device;
    staged->slot_bytes = options->slot_bytes;
    staged->timeout_ms = options->timeout_ms;
    status = staged_prepare(staged);
    if (status != TDM_OK) {
        (void)staged_abort_group(staged, status); /* The other ranks do not wait for this one. */
        staged_release(staged);
        return status;
    }
    *comm_out = &staged->base;
    return TDM_OK;
}
