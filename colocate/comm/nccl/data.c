/* data.c - the communicator "nccl": moves data on the GPU directly, and data in host memory
 * through staging memory. */
/* SPDX-License-Identifier: Apache-2.0 */

/* These functions implement the operations of struct tdm__comm_ops that move data. Data on the
 * GPU goes to NCCL as it is. Data in host memory is copied to staged_in, transferred, and copied
 * back from staged_out, one slot at a time; reductions of host data are computed on the host in
 * rank order, so that all ranks get the same bits.
 *
 * Each function starts with data_op_begin(), which makes sure that all ranks choose the same way,
 * and returns when the stream is idle. One thread uses a communicator. */

#include "colocate/comm/nccl/data.h"

#include "colocate/comm/exchange_step.h"
#include "colocate/comm/gpu/memory.h"
#include "colocate/comm/nccl/operation.h"
#include "colocate/comm/reduce.h"
#include "runtime/error.h"

#include <string.h>

enum { ALL_TO_ALL = 100, NO_ROOT = UINT32_MAX };

/* Returns the smaller size. */
static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Starts an operation on data: finds out where this rank's data lies and blocks until all ranks
 * are in the same operation, with data in the same kind of memory. `in` and `out` are as in
 * tdm__gpu_memory_of(). `*on_gpu_out` is true for data on GPUs. The GPU's context is
 * current until `scope` ends. */
static tdm_status data_op_begin(struct tdm__nccl *nccl, struct tdm__collective_op call,
                                const void *in, const void *out, bool *on_gpu_out,
                                struct tdm__cuda_scope *scope)
{
    tdm_status status = tdm__nccl_enter(nccl, scope);

    if (status == TDM_OK) {
        status = tdm__gpu_memory_of(nccl->driver, in, out, &call.memory);
    }
    if (status != TDM_OK) {
        return tdm__wrap(tdm__nccl_abort_group(nccl, status), "rank %u of %u", nccl->base.rank,
                         nccl->base.ranks_count);
    }
    *on_gpu_out = call.memory == TDM__COMM_MEMORY_GPU;
    return tdm__nccl_op_begin(nccl, &call);
}

/* ---- between GPUs ----------------------------------------------------------------------- */

/* Closes a group of NCCL calls, also after a failure, and returns the first failure. */
static int nccl_group_end(const struct tdm__nccl *nccl, int result)
{
    int closed = nccl->library->ncclGroupEnd();

    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS ? closed : result;
}

/* Queues a gather: `bytes` of each rank's `in` go to the root's `out` in rank order. */
static int nccl_gather_chunks(const struct tdm__nccl *nccl, const void *in, void *out, size_t bytes,
                              uint32_t root)
{
    const struct tdm__nccl_library *library = nccl->library;
    int result = library->ncclGroupStart();

    if (result != NCCL_SUCCESS) {
        return result;
    }
    result = library->ncclSend(in, bytes, NCCL_UINT8, (int)root, nccl->comm, nccl->stream);
    for (uint32_t i = 0; i < nccl->base.ranks_count && nccl->base.rank == root &&
                         (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS);
         i++) {
        result = library->ncclRecv((char *)out + i * bytes, bytes, NCCL_UINT8, (int)i, nccl->comm,
                                   nccl->stream);
    }
    return nccl_group_end(nccl, result);
}

/* Queues an exchange: slice i of every rank's `in` goes to rank i's `out` in rank order. */
static int nccl_exchange_slices(const struct tdm__nccl *nccl, const char *in, char *out,
                                size_t bytes)
{
    const struct tdm__nccl_library *library = nccl->library;
    int result = library->ncclGroupStart();

    if (result != NCCL_SUCCESS) {
        return result;
    }
    for (uint32_t i = 0; i < nccl->base.ranks_count; i++) {
        result =
            library->ncclSend(in + i * bytes, bytes, NCCL_UINT8, (int)i, nccl->comm, nccl->stream);
        if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) {
            result = library->ncclRecv(out + i * bytes, bytes, NCCL_UINT8, (int)i, nccl->comm,
                                       nccl->stream);
        }
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
            break;
        }
    }
    return nccl_group_end(nccl, result);
}

/* Queues the parts of an exchange between memory on the GPUs. Ranks that give each other nothing
 * do not call NCCL for each other. */
static int nccl_exchange_parts(const struct tdm__nccl *nccl,
                               const struct tdm__comm_exchange *exchange)
{
    const struct tdm__nccl_library *library = nccl->library;
    int result = library->ncclGroupStart();

    if (result != NCCL_SUCCESS) {
        return result;
    }
    for (uint32_t i = 0; i < nccl->base.ranks_count; i++) {
        bool is_other = i != nccl->base.rank;

        if (is_other && exchange->send_bytes[i] > 0) {
            result = library->ncclSend((const char *)exchange->in + exchange->send_offsets[i],
                                       exchange->send_bytes[i], NCCL_UINT8, (int)i, nccl->comm,
                                       nccl->stream);
        }
        if (is_other && exchange->receive_bytes[i] > 0 &&
            (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)) {
            result = library->ncclRecv((char *)exchange->out + exchange->receive_offsets[i],
                                       exchange->receive_bytes[i], NCCL_UINT8, (int)i, nccl->comm,
                                       nccl->stream);
        }
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
            break;
        }
    }
    return nccl_group_end(nccl, result);
}

/* Exchanges parts between memory on the GPUs and waits for the end. */
static tdm_status exchange_on_device(struct tdm__nccl *nccl,
                                     const struct tdm__comm_exchange *exchange)
{
    TDM_TRY(tdm__nccl_await_result(nccl, nccl_exchange_parts(nccl, exchange),
                                   "ncclSend and ncclRecv of an exchange"));
    return tdm__nccl_await_stream(nccl, "an exchange");
}

/* Queues one transfer between memory on the GPUs and waits until NCCL has accepted it. */
static tdm_status nccl_transfer(struct tdm__nccl *nccl, int transfer_kind, const void *in,
                                void *out, size_t bytes, uint32_t root)
{
    switch (transfer_kind) {
    case TDM__COLLECTIVE_ALL_GATHER:
        return tdm__nccl_await_result(
            nccl,
            nccl->library->ncclAllGather(in, out, bytes, NCCL_UINT8, nccl->comm, nccl->stream),
            "ncclAllGather");
    case TDM__COLLECTIVE_BROADCAST:
        return tdm__nccl_await_result(nccl,
                                      nccl->library->ncclBroadcast(in, out, bytes, NCCL_UINT8,
                                                                   (int)root, nccl->comm,
                                                                   nccl->stream),
                                      "ncclBroadcast");
    case TDM__COLLECTIVE_GATHER:
        return tdm__nccl_await_result(nccl, nccl_gather_chunks(nccl, in, out, bytes, root),
                                      "ncclSend and ncclRecv of a gather");
    default:
        return tdm__nccl_await_result(nccl, nccl_exchange_slices(nccl, in, out, bytes),
                                      "ncclSend and ncclRecv of an exchange");
    }
}

/* ---- through the staging memory --------------------------------------------------------- */

/* Queues a copy between pinned host memory and the GPU. */
static tdm_status nccl_copy_async(struct tdm__nccl *nccl, uint64_t to, uint64_t from, size_t bytes)
{
    tdm_status status = tdm__cuda_check(nccl->driver->cuMemcpyAsync(to, from, bytes, nccl->stream),
                                        "rank %u of %u: cuMemcpyAsync of %zu bytes",
                                        nccl->base.rank, nccl->base.ranks_count, bytes);

    return status == TDM_OK ? TDM_OK : tdm__nccl_abort_group(nccl, status);
}

/* A transfer of host data: in_bytes of host_in are copied to the GPU, transferred, and
 * out_bytes are copied to host_out. */
struct staged_transfer {
    /* An enum tdm__collective_op_kind, or ALL_TO_ALL. */
    int transfer_kind;
    /* Bytes to copy from host_in to the GPU; 0 for none. */
    size_t in_bytes;
    size_t bytes; /* Bytes of one rank's slice. */
    /* Bytes to copy from the GPU to host_out; 0 for none. */
    size_t out_bytes;
    uint32_t root; /* Root rank of a gather or broadcast. */
};

/* Runs a staged transfer and waits for its end. */
static tdm_status nccl_transfer_staged(struct tdm__nccl *nccl,
                                       const struct staged_transfer *staged_transfer)
{
    if (staged_transfer->in_bytes > 0) {
        TDM_TRY(nccl_copy_async(nccl, nccl->staged_in, (uint64_t)(uintptr_t)nccl->host_in,
                                staged_transfer->in_bytes));
    }
    TDM_TRY(nccl_transfer(nccl, staged_transfer->transfer_kind, (void *)(uintptr_t)nccl->staged_in,
                          (void *)(uintptr_t)nccl->staged_out, staged_transfer->bytes,
                          staged_transfer->root));
    TDM_TRY(tdm__nccl_await_stream(nccl, "a transfer"));
    if (staged_transfer->out_bytes > 0) {
        TDM_TRY(nccl_copy_async(nccl, (uint64_t)(uintptr_t)nccl->host_out, nccl->staged_out,
                                staged_transfer->out_bytes));
    }
    return tdm__nccl_await_stream(nccl, "a copy to the host");
}

/* Gathers one chunk of every rank's host data into host_out, on all ranks (root is NO_ROOT) or on
 * one. */
static tdm_status nccl_gather_host(struct tdm__nccl *nccl, const char *in, size_t bytes,
                                   uint32_t root)
{
    bool receives = root == NO_ROOT || root == nccl->base.rank;
    const struct staged_transfer staged_transfer = {
        .transfer_kind = root == NO_ROOT ? TDM__COLLECTIVE_ALL_GATHER : TDM__COLLECTIVE_GATHER,
        .in_bytes = bytes,
        .bytes = bytes,
        .out_bytes = receives ? bytes * nccl->base.ranks_count : 0,
        .root = root};

    memcpy(nccl->host_in, in, bytes);
    return nccl_transfer_staged(nccl, &staged_transfer);
}

/* Reduces the chunks of all ranks in host_out, `count` elements each, into `into` in rank order. */
static void nccl_reduce_slices(const struct tdm__nccl *nccl, void *into, size_t count,
                               enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    size_t part_bytes = count * tdm__comm_dtype_bytes(dtype);

    memcpy(into, nccl->host_out, part_bytes);
    for (uint32_t i = 1; i < nccl->base.ranks_count; i++) {
        tdm__comm_reduce_elements(into, nccl->host_out + i * part_bytes, count, dtype, reduction);
    }
}

/* ---- the entries ------------------------------------------------------------------------ */

/* Runs an all-reduce of data on the GPU. */
static tdm_status reduce_on_device(struct tdm__nccl *nccl, void *data, size_t count,
                                   enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    int type = dtype == TDM__COMM_FLOAT64 ? NCCL_FLOAT64 : NCCL_FLOAT32;
    int transfer_kind = reduction == TDM_MAX ? NCCL_MAX : NCCL_SUM;

    TDM_TRY(
        tdm__nccl_await_result(nccl,
                               nccl->library->ncclAllReduce(data, data, count, type, transfer_kind,
                                                            nccl->comm, nccl->stream),
                               "ncclAllReduce"));
    return tdm__nccl_await_stream(nccl, "ncclAllReduce");
}

tdm_status tdm__nccl_all_reduce(struct tdm__comm *comm, void *data, size_t count,
                                enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    size_t unit_bytes = tdm__comm_dtype_bytes(dtype);
    const struct tdm__collective_op call = {
        .kind = TDM__COLLECTIVE_ALL_REDUCE,
        .root_or_dtype = (dtype == TDM__COMM_FLOAT64 ? 1u : 0u) | (reduction == TDM_MAX ? 2u : 0u),
        .size_bytes = count * unit_bytes};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(data_op_begin(nccl, call, data, NULL, &on_gpu, &scope));
    if (on_gpu) {
        return reduce_on_device(nccl, data, count, dtype, reduction);
    }
    for (size_t done = 0; done < count;) {
        size_t chunk = min_size(count - done, nccl->slot_bytes / unit_bytes);
        char *at = (char *)data + done * unit_bytes;

        TDM_TRY(nccl_gather_host(nccl, at, chunk * unit_bytes, NO_ROOT));
        nccl_reduce_slices(nccl, at, chunk, dtype, reduction);
        done += chunk;
    }
    return TDM_OK;
}

/* Runs a reduce-scatter of data on the GPU. */
static tdm_status scatter_on_device(struct tdm__nccl *nccl, const float *in, size_t count,
                                    float *out)
{
    TDM_TRY(
        tdm__nccl_await_result(nccl,
                               nccl->library->ncclReduceScatter(in, out, count, NCCL_FLOAT32,
                                                                NCCL_SUM, nccl->comm, nccl->stream),
                               "ncclReduceScatter"));
    return tdm__nccl_await_stream(nccl, "ncclReduceScatter");
}

tdm_status tdm__nccl_reduce_scatter(struct tdm__comm *comm, const float *in, size_t count,
                                    float *out)
{
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    size_t chunk_capacity = nccl->slot_bytes / sizeof(float) / comm->ranks_count;
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_REDUCE_SCATTER,
                                            .size_bytes = count * sizeof(float)};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(data_op_begin(nccl, call, in, out, &on_gpu, &scope));
    if (on_gpu) {
        return scatter_on_device(nccl, in, count, out);
    }
    for (size_t done = 0; done < count;) {
        size_t chunk = min_size(count - done, chunk_capacity);
        size_t chunk_bytes = chunk * sizeof(float);
        const struct staged_transfer staged_transfer = {.transfer_kind = ALL_TO_ALL,
                                                        .in_bytes = chunk_bytes * comm->ranks_count,
                                                        .bytes = chunk_bytes,
                                                        .out_bytes =
                                                            chunk_bytes * comm->ranks_count};

        for (uint32_t i = 0; i < comm->ranks_count; i++) {
            memcpy(nccl->host_in + i * chunk_bytes, in + i * count + done, chunk_bytes);
        }
        TDM_TRY(nccl_transfer_staged(nccl, &staged_transfer));
        nccl_reduce_slices(nccl, out + done, chunk, TDM__COMM_FLOAT32, TDM_SUM);
        done += chunk;
    }
    return TDM_OK;
}

/* Runs a gather or all-gather. `out` is NULL if this rank receives nothing. */
static tdm_status nccl_gather_all(struct tdm__nccl *nccl, const char *in, size_t bytes_per_rank,
                                  char *out, uint32_t root)
{
    const struct tdm__collective_op call = {.kind = root == NO_ROOT ? TDM__COLLECTIVE_ALL_GATHER
                                                                    : TDM__COLLECTIVE_GATHER,
                                            .root_or_dtype = root == NO_ROOT ? 0 : root,
                                            .size_bytes = bytes_per_rank};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(data_op_begin(nccl, call, in, out, &on_gpu, &scope));
    if (on_gpu) {
        TDM_TRY(nccl_transfer(nccl,
                              root == NO_ROOT ? TDM__COLLECTIVE_ALL_GATHER : TDM__COLLECTIVE_GATHER,
                              in, out, bytes_per_rank, root));
        return tdm__nccl_await_stream(nccl, "a transfer");
    }
    for (size_t done = 0; done < bytes_per_rank;) {
        size_t chunk = min_size(bytes_per_rank - done, nccl->slot_bytes);

        TDM_TRY(nccl_gather_host(nccl, in + done, chunk, root));
        for (uint32_t i = 0; i < nccl->base.ranks_count && out != NULL; i++) {
            memcpy(out + i * bytes_per_rank + done, nccl->host_out + i * chunk, chunk);
        }
        done += chunk;
    }
    return TDM_OK;
}

tdm_status tdm__nccl_all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                void *out)
{
    return nccl_gather_all((struct tdm__nccl *)comm, in, bytes_per_rank, out, NO_ROOT);
}

tdm_status tdm__nccl_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                            void *out, uint32_t root)
{
    return nccl_gather_all((struct tdm__nccl *)comm, in, bytes_per_rank,
                           comm->rank == root ? out : NULL, root);
}

tdm_status tdm__nccl_broadcast(struct tdm__comm *comm, void *data, size_t size_bytes, uint32_t root)
{
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    bool sends = comm->rank == root;
    const struct tdm__collective_op call = {
        .kind = TDM__COLLECTIVE_BROADCAST, .root_or_dtype = root, .size_bytes = size_bytes};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(data_op_begin(nccl, call, data, NULL, &on_gpu, &scope));
    if (on_gpu) {
        TDM_TRY(nccl_transfer(nccl, TDM__COLLECTIVE_BROADCAST, data, data, size_bytes, root));
        return tdm__nccl_await_stream(nccl, "ncclBroadcast");
    }
    for (size_t done = 0; done < size_bytes;) {
        size_t chunk = min_size(size_bytes - done, nccl->slot_bytes);
        const struct staged_transfer staged_transfer = {.transfer_kind = TDM__COLLECTIVE_BROADCAST,
                                                        .in_bytes = sends ? chunk : 0,
                                                        .bytes = chunk,
                                                        .out_bytes = sends ? 0 : chunk,
                                                        .root = root};

        if (sends) {
            memcpy(nccl->host_in, (char *)data + done, chunk);
        }
        TDM_TRY(nccl_transfer_staged(nccl, &staged_transfer));
        if (!sends) {
            memcpy((char *)data + done, nccl->host_out, chunk);
        }
        done += chunk;
    }
    return TDM_OK;
}

/* Moves up to `part_bytes` bytes of each part of host data after the first `done` bytes. */
static tdm_status exchange_step_on_host(struct tdm__nccl *nccl,
                                        const struct tdm__comm_exchange *exchange, size_t done,
                                        size_t part_bytes)
{
    size_t all_bytes = part_bytes * nccl->base.ranks_count;
    struct tdm__exchange_step step;
    struct tdm__comm_exchange staged;

    tdm__exchange_step_init(&step, &nccl->base, exchange, done, part_bytes);
    staged = tdm__exchange_step_staged(&step, (void *)(uintptr_t)nccl->staged_in,
                                       (void *)(uintptr_t)nccl->staged_out);
    for (uint32_t i = 0; i < nccl->base.ranks_count; i++) {
        memcpy(nccl->host_in + step.offsets[i],
               (const char *)exchange->in + exchange->send_offsets[i] + done, step.send_bytes[i]);
    }
    TDM_TRY(nccl_copy_async(nccl, nccl->staged_in, (uint64_t)(uintptr_t)nccl->host_in, all_bytes));
    TDM_TRY(exchange_on_device(nccl, &staged));
    TDM_TRY(
        nccl_copy_async(nccl, (uint64_t)(uintptr_t)nccl->host_out, nccl->staged_out, all_bytes));
    TDM_TRY(tdm__nccl_await_stream(nccl, "a copy to the host"));
    for (uint32_t i = 0; i < nccl->base.ranks_count; i++) {
        memcpy((char *)exchange->out + exchange->receive_offsets[i] + done,
               nccl->host_out + step.offsets[i], step.receive_bytes[i]);
    }
    return TDM_OK;
}

tdm_status tdm__nccl_exchange(struct tdm__comm *comm, const struct tdm__comm_exchange *exchange)
{
    struct tdm__nccl *nccl = (struct tdm__nccl *)comm;
    size_t part_bytes = nccl->slot_bytes / comm->ranks_count;
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_EXCHANGE,
                                            .size_bytes = exchange->part_bytes_max};
    bool on_gpu = false;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(data_op_begin(nccl, call, exchange->in, exchange->out, &on_gpu, &scope));
    if (on_gpu) {
        return exchange_on_device(nccl, exchange);
    }
    for (size_t done = 0; done < exchange->part_bytes_max; done += part_bytes) {
        TDM_TRY(exchange_step_on_host(nccl, exchange, done, part_bytes));
    }
    return TDM_OK;
}
