/* tcp.c - the communicator "tcp" between nodes, over a mesh of TCP connections. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The communicator owns its mesh and two buffers of one chunk. Every operation sends this rank's
 * chunk to the ranks that need it, then receives theirs. Reductions are computed in rank order,
 * so that all ranks get the same bits. A failure of the mesh ends the group for all ranks. One
 * thread uses a communicator. comm.h specifies the functions. */

#include "colocate/comm/tcp/tcp.h"

#include "colocate/comm/reduce.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A communicator over a mesh. */
struct tcp_comm {
    struct tdm__comm base;
    struct tdm__mesh *mesh; /* Owned mesh of the group. */
    size_t chunk_bytes;     /* Most bytes of a chunk. */
    /* Owned buffer for a chunk of the result of a reduction. */
    char *sum;
    char *one; /* Owned buffer for a chunk of another rank. */
};

/* Starts an operation of the mesh. */
static void tcp_op_begin(struct tcp_comm *tcp, enum tdm__collective_op_kind kind, size_t size_bytes,
                         uint32_t root_or_dtype)
{
    const struct tdm__collective_op call = {
        .kind = kind, .root_or_dtype = root_or_dtype, .size_bytes = size_bytes};

    tdm__mesh_op_begin(tcp->mesh, &call);
}

/* Returns the smaller size. */
static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Sends `size_bytes` to every other rank; rank i gets the bytes at from + i x pitch. */
static tdm_status tcp_send_to_all(struct tcp_comm *tcp, const char *from, size_t pitch,
                                  size_t size_bytes)
{
    for (uint32_t i = 0; i < tcp->base.ranks_count; i++) {
        if (i != tcp->base.rank) {
            TDM_TRY(tdm__mesh_send(tcp->mesh, i, from + i * pitch, size_bytes));
        }
    }
    return TDM_OK;
}

/* Receives `size_bytes` from every other rank; the bytes of rank i go to into + i x pitch. */
static tdm_status tcp_receive_from_all(struct tcp_comm *tcp, char *into, size_t pitch,
                                       size_t size_bytes)
{
    for (uint32_t i = 0; i < tcp->base.ranks_count; i++) {
        if (i != tcp->base.rank) {
            TDM_TRY(tdm__mesh_receive(tcp->mesh, i, into + i * pitch, size_bytes));
        }
    }
    return TDM_OK;
}

/* Implements synchronize of struct tdm__comm_ops with an empty chunk between every two ranks. */
static tdm_status tcp_synchronize(struct tdm__comm *comm, const struct tdm__collective_op *call)
{
    struct tcp_comm *tcp = (struct tcp_comm *)comm;

    tdm__mesh_op_begin(tcp->mesh, call);
    TDM_TRY(tcp_send_to_all(tcp, tcp->one, 0, 0));
    TDM_TRY(tcp_receive_from_all(tcp, tcp->one, 0, 0));
    return tdm__mesh_op_finish(tcp->mesh);
}

/* ---- reductions ------------------------------------------------------------------------- */

/* Receives a chunk of every other rank and reduces them with this rank's chunk into tcp->sum. The
 * order of the ranks makes the bits independent of the order of arrival. */
static tdm_status tcp_reduce_chunk(struct tcp_comm *tcp, const char *own, size_t count,
                                   enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    size_t size_bytes = count * tdm__comm_dtype_bytes(dtype);

    for (uint32_t i = 0; i < tcp->base.ranks_count; i++) {
        const char *theirs = i == tcp->base.rank ? own : tcp->one;

        if (i != tcp->base.rank) {
            TDM_TRY(tdm__mesh_receive(tcp->mesh, i, tcp->one, size_bytes));
        }
        if (i == 0) {
            memcpy(tcp->sum, theirs, size_bytes);
        } else {
            tdm__comm_reduce_elements(tcp->sum, theirs, count, dtype, reduction);
        }
    }
    return TDM_OK;
}

/* Implements all_reduce of struct tdm__comm_ops, chunk by chunk. */
static tdm_status tcp_all_reduce(struct tdm__comm *comm, void *data, size_t count,
                                 enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    struct tcp_comm *tcp = (struct tcp_comm *)comm;
    size_t unit_bytes = tdm__comm_dtype_bytes(dtype);
    size_t done = 0;

    tcp_op_begin(tcp, TDM__COLLECTIVE_ALL_REDUCE, count * unit_bytes,
                 (dtype == TDM__COMM_FLOAT64 ? 1u : 0u) | (reduction == TDM_MAX ? 2u : 0u));
    do {
        size_t chunk = min_size(count - done, tcp->chunk_bytes / unit_bytes);
        char *own = (char *)data + done * unit_bytes;

        TDM_TRY(tcp_send_to_all(tcp, own, 0, chunk * unit_bytes));
        TDM_TRY(tcp_reduce_chunk(tcp, own, chunk, dtype, reduction));
        memcpy(own, tcp->sum, chunk * unit_bytes);
        done += chunk;
    } while (done < count);
    return tdm__mesh_op_finish(tcp->mesh);
}

/* Implements reduce_scatter of struct tdm__comm_ops, chunk by chunk. */
static tdm_status tcp_reduce_scatter(struct tdm__comm *comm, const float *in, size_t count,
                                     float *out)
{
    struct tcp_comm *tcp = (struct tcp_comm *)comm;
    size_t done = 0;

    tcp_op_begin(tcp, TDM__COLLECTIVE_REDUCE_SCATTER, count * sizeof(float), 0);
    do {
        size_t chunk = min_size(count - done, tcp->chunk_bytes / sizeof(float));

        TDM_TRY(tcp_send_to_all(tcp, (const char *)(in + done), count * sizeof(float),
                                chunk * sizeof(float)));
        TDM_TRY(tcp_reduce_chunk(tcp, (const char *)(in + comm->rank * count + done), chunk,
                                 TDM__COMM_FLOAT32, TDM_SUM));
        memcpy(out + done, tcp->sum, chunk * sizeof(float));
        done += chunk;
    } while (done < count);
    return tdm__mesh_op_finish(tcp->mesh);
}

/* ---- moving bytes ----------------------------------------------------------------------- */

/* Implements all_gather of struct tdm__comm_ops, chunk by chunk. */
static tdm_status tcp_all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                 void *out)
{
    struct tcp_comm *tcp = (struct tcp_comm *)comm;
    char *own = (char *)out + comm->rank * bytes_per_rank;
    size_t done = 0;

    tcp_op_begin(tcp, TDM__COLLECTIVE_ALL_GATHER, bytes_per_rank, 0);
    memmove(own, in, bytes_per_rank);
    do {
        size_t chunk = min_size(bytes_per_rank - done, tcp->chunk_bytes);

        TDM_TRY(tcp_send_to_all(tcp, own + done, 0, chunk));
        TDM_TRY(tcp_receive_from_all(tcp, (char *)out + done, bytes_per_rank, chunk));
        done += chunk;
    } while (done < bytes_per_rank);
    return tdm__mesh_op_finish(tcp->mesh);
}

/* Implements gather of struct tdm__comm_ops, chunk by chunk. */
static tdm_status tcp_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                             void *out, uint32_t root)
{
    struct tcp_comm *tcp = (struct tcp_comm *)comm;
    size_t done = 0;

    tcp_op_begin(tcp, TDM__COLLECTIVE_GATHER, bytes_per_rank, root);
    if (comm->rank == root) {
        memmove((char *)out + root * bytes_per_rank, in, bytes_per_rank);
    }
    do {
        size_t chunk = min_size(bytes_per_rank - done, tcp->chunk_bytes);

        TDM_TRY(comm->rank == root
                    ? tcp_receive_from_all(tcp, (char *)out + done, bytes_per_rank, chunk)
                    : tdm__mesh_send(tcp->mesh, root, (const char *)in + done, chunk));
        done += chunk;
    } while (done < bytes_per_rank);
    return tdm__mesh_op_finish(tcp->mesh);
}

/* Implements broadcast of struct tdm__comm_ops: the root sends each chunk to all ranks. */
static tdm_status tcp_broadcast(struct tdm__comm *comm, void *data, size_t size_bytes,
                                uint32_t root)
{
    struct tcp_comm *tcp = (struct tcp_comm *)comm;
    size_t done = 0;

    tcp_op_begin(tcp, TDM__COLLECTIVE_BROADCAST, size_bytes, root);
    do {
        size_t chunk = min_size(size_bytes - done, tcp->chunk_bytes);
        char *at = (char *)data + done;

        TDM_TRY(comm->rank == root ? tcp_send_to_all(tcp, at, 0, chunk)
                                   : tdm__mesh_receive(tcp->mesh, root, at, chunk));
        done += chunk;
    } while (done < size_bytes);
    return tdm__mesh_op_finish(tcp->mesh);
}

/* Sends to every other rank its next bytes of an exchange after the first `done` bytes. Sends
 * nothing to a rank that has got all, except in the first step, in which all ranks meet. */
static tdm_status tcp_send_parts(struct tcp_comm *tcp, const struct tdm__comm_exchange *exchange,
                                 size_t done)
{
    for (uint32_t i = 0; i < tcp->base.ranks_count; i++) {
        size_t left = tdm__comm_part_left(exchange->send_bytes[i], done, tcp->chunk_bytes);

        if (i != tcp->base.rank && (left > 0 || done == 0)) {
            TDM_TRY(tdm__mesh_send(
                tcp->mesh, i, (const char *)exchange->in + exchange->send_offsets[i] + done, left));
        }
    }
    return TDM_OK;
}

/* Receives what the other ranks send in the same step. */
static tdm_status tcp_receive_parts(struct tcp_comm *tcp, const struct tdm__comm_exchange *exchange,
                                    size_t done)
{
    for (uint32_t i = 0; i < tcp->base.ranks_count; i++) {
        size_t left = tdm__comm_part_left(exchange->receive_bytes[i], done, tcp->chunk_bytes);

        if (i != tcp->base.rank && (left > 0 || done == 0)) {
            TDM_TRY(tdm__mesh_receive(
                tcp->mesh, i, (char *)exchange->out + exchange->receive_offsets[i] + done, left));
        }
    }
    return TDM_OK;
}

/* Implements exchange of struct tdm__comm_ops. In each step every rank sends one chunk to each
 * other rank and then receives one from each, so that no rank waits for one that waits for it. */
static tdm_status tcp_exchange(struct tdm__comm *comm, const struct tdm__comm_exchange *exchange)
{
    struct tcp_comm *tcp = (struct tcp_comm *)comm;
    size_t done = 0;

    tcp_op_begin(tcp, TDM__COLLECTIVE_EXCHANGE, exchange->part_bytes_max, 0);
    do {
        TDM_TRY(tcp_send_parts(tcp, exchange, done));
        TDM_TRY(tcp_receive_parts(tcp, exchange, done));
        done += tcp->chunk_bytes;
    } while (done < exchange->part_bytes_max);
    return tdm__mesh_op_finish(tcp->mesh);
}

/* ---- opening and closing ----------------------------------------------------------------- */

/* Implements abort of struct tdm__comm_ops. */
static void tcp_abort(struct tdm__comm *comm)
{
    tdm__mesh_abort(((struct tcp_comm *)comm)->mesh);
}

/* Implements check of struct tdm__comm_ops. */
static tdm_status tcp_check(struct tdm__comm *comm)
{
    return tdm__mesh_check(((struct tcp_comm *)comm)->mesh);
}

/* Implements destroy of struct tdm__comm_ops: leaves the group and frees the buffers. */
static void tcp_destroy(struct tdm__comm *comm)
{
    struct tcp_comm *tcp = (struct tcp_comm *)comm;

    tdm__mesh_destroy(tcp->mesh);
    free(tcp->sum);
    free(tcp->one);
    free(tcp);
}

static const struct tdm__comm_ops tcp_ops = {.name = "tcp",
                                             .destroy = tcp_destroy,
                                             .abort = tcp_abort,
                                             .check = tcp_check,
                                             .synchronize = tcp_synchronize,
                                             .all_reduce = tcp_all_reduce,
                                             .all_gather = tcp_all_gather,
                                             .reduce_scatter = tcp_reduce_scatter,
                                             .broadcast = tcp_broadcast,
                                             .gather = tcp_gather,
                                             .exchange = tcp_exchange};

tdm_status tdm__comm_tcp_open(struct tdm__mesh *mesh, uint32_t rank, uint32_t ranks_count,
                              size_t chunk_bytes, struct tdm__comm **comm_out)
{
    struct tcp_comm *tcp;

    if (chunk_bytes < sizeof(double) || chunk_bytes > TDM__MESH_CHUNK_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "chunks of %zu bytes, they have %zu to %d", chunk_bytes,
                         sizeof(double), TDM__MESH_CHUNK_BYTES_MAX);
    }
    tcp = calloc(1, sizeof(*tcp));
    if (tcp != NULL) {
        tcp->sum = malloc(chunk_bytes);
        tcp->one = malloc(chunk_bytes);
    }
    if (tcp == NULL || tcp->sum == NULL || tcp->one == NULL) {
        if (tcp != NULL) {
            free(tcp->sum);
            free(tcp->one);
        }
        free(tcp);
        return tdm__fail(TDM_E_NOMEM, "a communicator with chunks of %zu bytes", chunk_bytes);
    }
    tcp->base.ops = &tcp_ops;
    tcp->base.rank = rank;
    tcp->base.ranks_count = ranks_count;
    tcp->chunk_bytes = chunk_bytes;
    tcp->mesh = mesh;
    *comm_out = &tcp->base;
    return TDM_OK;
}
