/* host.c - the communicator "host" between processes of one node, over shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The communicator owns its mapping of the group's segment (segment.h). Every operation moves its
 * data in chunks of one slot: each rank writes its own slot, all pass a barrier, and each rank
 * reads the slots of the others. Reductions are computed in rank order, so that all ranks get the
 * same bits.
 *
 * A failed barrier ends the group for all ranks. One thread uses a communicator. comm.h specifies
 * the functions. */

#include "colocate/comm/host/host.h"

#include "colocate/comm/host/segment.h"
#include "colocate/comm/reduce.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A communicator over a shared segment. Each rank writes only its own two slots, alternately, and
 * a barrier lies between the writing of a slot and its reading. No barrier is needed after the
 * reading: the slot is written again two chunks later, and a rank passes the barrier of the chunk
 * between only after all ranks have finished reading. */
struct host_comm {
    struct tdm__comm base;
    struct tdm__comm_segment *segment;    /* Owned segment of the group. */
    size_t slot_bytes;                    /* Bytes of a slot. */
    int64_t timeout_ms;                   /* Milliseconds after which an operation fails. */
    uint32_t next_slot_parity;            /* Parity of the slot that is written next. */
    struct tdm__collective_op current_op; /* Operation in progress. */
    /* Deadline of the operation in progress, in milliseconds on CLOCK_MONOTONIC. */
    int64_t deadline_ms;
};

/* From this chunk size on, each rank reduces a part of the chunk for all, at the cost of one more
 * barrier. */
enum { SHARED_ADDING_BYTES_MIN = 32768 };

/* Starts an operation: records it and its deadline. */
static void host_op_begin(struct host_comm *host, enum tdm__collective_op_kind kind,
                          size_t size_bytes, uint32_t root_or_dtype)
{
    host->current_op = (struct tdm__collective_op){
        .kind = kind, .root_or_dtype = root_or_dtype, .size_bytes = size_bytes};
    host->deadline_ms = tdm__deadline_after(host->timeout_ms);
}

/* Passes a barrier of the operation in progress. */
static tdm_status host_op_barrier(struct host_comm *host)
{
    return tdm__comm_segment_barrier(host->segment, host->base.rank, &host->current_op,
                                     host->deadline_ms);
}

/* Returns the slot of a rank for the current chunk. */
static char *host_slot_of(const struct host_comm *host, uint32_t rank)
{
    return tdm__comm_segment_slot(host->segment, rank, host->next_slot_parity);
}

/* Returns this rank's slot for the current chunk. */
static char *host_own_slot(const struct host_comm *host)
{
    return host_slot_of(host, host->base.rank);
}

/* Switches to the other slots for the next chunk. */
static void host_next_slot(struct host_comm *host)
{
    host->next_slot_parity ^= 1;
}

/* Returns the smaller size. */
static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- reductions ------------------------------------------------------------------------- */

/* Writes the reduction of `count` elements at `offset` of every rank's slot to `into`. The order
 * of the ranks makes the bits independent of which rank computes, and when. */
static void host_reduce_slots(const struct host_comm *host, char *into, size_t offset, size_t count,
                              const struct tdm__collective_op *how)
{
    enum tdm__comm_dtype dtype =
        (how->root_or_dtype & 1) != 0 ? TDM__COMM_FLOAT64 : TDM__COMM_FLOAT32;
    enum tdm_reduction reduction = (how->root_or_dtype & 2) != 0 ? TDM_MAX : TDM_SUM;

    memcpy(into, host_slot_of(host, 0) + offset, count * tdm__comm_dtype_bytes(dtype));
    for (uint32_t i = 1; i < host->base.ranks_count; i++) {
        tdm__comm_reduce_elements(into, host_slot_of(host, i) + offset, count, dtype, reduction);
    }
}

/* Returns how many of `count` elements the rank reduces, and the first of them. */
static size_t rank_share_of(const struct host_comm *host, uint32_t rank, size_t count,
                            size_t *first_out)
{
    size_t share = (count + host->base.ranks_count - 1) / host->base.ranks_count;

    *first_out = min_size(share * rank, count);
    return min_size(share, count - *first_out);
}

/* Reduces a chunk that lies in all slots. Each rank reduces its part, stores it into its own
 * slot, where no other rank reads that part, and after one more barrier reads the other parts. */
static tdm_status host_reduce_shared(struct host_comm *host, char *data, size_t count,
                                     size_t unit_bytes)
{
    size_t first;
    size_t own_count = rank_share_of(host, host->base.rank, count, &first);

    if (own_count > 0) {
        host_reduce_slots(host, data + first * unit_bytes, first * unit_bytes, own_count,
                          &host->current_op);
        memcpy(host_own_slot(host) + first * unit_bytes, data + first * unit_bytes,
               own_count * unit_bytes);
    }
    TDM_TRY(host_op_barrier(host));
    for (uint32_t i = 0; i < host->base.ranks_count; i++) {
        size_t part_count = rank_share_of(host, i, count, &first);

        if (i != host->base.rank) {
            memcpy(data + first * unit_bytes, host_slot_of(host, i) + first * unit_bytes,
                   part_count * unit_bytes);
        }
    }
    return TDM_OK;
}

/* Reduces one chunk, which fits into a slot. */
static tdm_status host_reduce_chunk(struct host_comm *host, char *chunk, size_t count,
                                    size_t unit_bytes)
{
    size_t chunk_bytes = count * unit_bytes;
    tdm_status status;

    memcpy(host_own_slot(host), chunk, chunk_bytes);
    status = host_op_barrier(host);
    if (status == TDM_OK && chunk_bytes >= SHARED_ADDING_BYTES_MIN && host->base.ranks_count > 2) {
        status = host_reduce_shared(host, chunk, count, unit_bytes);
    } else if (status == TDM_OK) {
        host_reduce_slots(host, chunk, 0, count, &host->current_op);
    }
    host_next_slot(host);
    return status;
}

/* Implements all_reduce of struct tdm__comm_ops, chunk by chunk. */
static tdm_status host_all_reduce(struct tdm__comm *comm, void *data, size_t count,
                                  enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    struct host_comm *host = (struct host_comm *)comm;
    size_t unit_bytes = tdm__comm_dtype_bytes(dtype);
    size_t done = 0;

    host_op_begin(host, TDM__COLLECTIVE_ALL_REDUCE, count * unit_bytes,
                  (dtype == TDM__COMM_FLOAT64 ? 1u : 0u) | (reduction == TDM_MAX ? 2u : 0u));
    do {
        size_t chunk_count = min_size(count - done, host->slot_bytes / unit_bytes);

        TDM_TRY(host_reduce_chunk(host, (char *)data + done * unit_bytes, chunk_count, unit_bytes));
        done += chunk_count;
    } while (done < count);
    return TDM_OK;
}

/* Implements reduce_scatter of struct tdm__comm_ops. A chunk has an equal part for each rank in
 * one slot. */
static tdm_status host_reduce_scatter(struct tdm__comm *comm, const float *in, size_t count,
                                      float *out)
{
    struct host_comm *host = (struct host_comm *)comm;
    size_t chunk_capacity = host->slot_bytes / sizeof(float) / comm->ranks_count;
    size_t done = 0;

    host_op_begin(host, TDM__COLLECTIVE_REDUCE_SCATTER, count * sizeof(float), 0);
    do {
        size_t chunk = min_size(count - done, chunk_capacity);
        size_t chunk_bytes = chunk * sizeof(float);

        for (uint32_t i = 0; i < comm->ranks_count; i++) {
            memcpy(host_own_slot(host) + i * chunk_bytes, in + i * count + done, chunk_bytes);
        }
        TDM_TRY(host_op_barrier(host));
        host_reduce_slots(host, (char *)(out + done), comm->rank * chunk_bytes, chunk,
                          &host->current_op);
        host_next_slot(host);
        done += chunk;
    } while (done < count);
    return TDM_OK;
}

/* ---- moving bytes ------------------------------------------------------------------------ */

/* Passes one barrier as the given operation. */
static tdm_status host_synchronize(struct tdm__comm *comm,
                                   const struct tdm__collective_op *current_op)
{
    struct host_comm *host = (struct host_comm *)comm;

    host->current_op = *current_op;
    host->deadline_ms = tdm__deadline_after(host->timeout_ms);
    return host_op_barrier(host);
}

/* Copies the other ranks' chunks to their positions in `out`. */
static void host_collect_slots(const struct host_comm *host, char *out, size_t bytes_per_rank,
                               size_t done, size_t chunk_bytes)
{
    for (uint32_t i = 0; i < host->base.ranks_count; i++) {
        if (i != host->base.rank) {
            memcpy(out + i * bytes_per_rank + done, host_slot_of(host, i), chunk_bytes);
        }
    }
}

/* Publishes this rank's bytes in chunks. A rank with an `out` collects the bytes of all ranks. */
static tdm_status host_gather_chunks(struct host_comm *host, const void *in, size_t bytes_per_rank,
                                     char *out)
{
    size_t done = 0;

    do {
        size_t chunk_bytes = min_size(bytes_per_rank - done, host->slot_bytes);

        memcpy(host_own_slot(host), (const char *)in + done, chunk_bytes);
        TDM_TRY(host_op_barrier(host));
        if (out != NULL) {
            host_collect_slots(host, out, bytes_per_rank, done, chunk_bytes);
        }
        host_next_slot(host);
        done += chunk_bytes;
    } while (done < bytes_per_rank);
    if (out != NULL && bytes_per_rank > 0) {
        memmove(out + host->base.rank * bytes_per_rank, in, bytes_per_rank);
    }
    return TDM_OK;
}

/* Implements all_gather of struct tdm__comm_ops. */
static tdm_status host_all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                  void *out)
{
    struct host_comm *host = (struct host_comm *)comm;

    host_op_begin(host, TDM__COLLECTIVE_ALL_GATHER, bytes_per_rank, 0);
    return host_gather_chunks(host, in, bytes_per_rank, out);
}

/* Implements gather of struct tdm__comm_ops. */
static tdm_status host_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                              void *out, uint32_t root)
{
    struct host_comm *host = (struct host_comm *)comm;

    host_op_begin(host, TDM__COLLECTIVE_GATHER, bytes_per_rank, root);
    return host_gather_chunks(host, in, bytes_per_rank, comm->rank == root ? out : NULL);
}

/* Implements broadcast of struct tdm__comm_ops: the root writes its slot and the other ranks read
 * it. */
static tdm_status host_broadcast(struct tdm__comm *comm, void *data, size_t size_bytes,
                                 uint32_t root)
{
    struct host_comm *host = (struct host_comm *)comm;
    size_t done = 0;

    host_op_begin(host, TDM__COLLECTIVE_BROADCAST, size_bytes, root);
    do {
        size_t chunk_bytes = min_size(size_bytes - done, host->slot_bytes);
        char *chunk = (char *)data + done;

        if (comm->rank == root) {
            memcpy(host_own_slot(host), chunk, chunk_bytes);
        }
        TDM_TRY(host_op_barrier(host));
        if (comm->rank != root) {
            memcpy(chunk, host_slot_of(host, root), chunk_bytes);
        }
        host_next_slot(host);
        done += chunk_bytes;
    } while (done < size_bytes);
    return TDM_OK;
}

/* Implements exchange of struct tdm__comm_ops. Each slot has an equal part for each rank. */
static tdm_status host_exchange(struct tdm__comm *comm, const struct tdm__comm_exchange *exchange)
{
    struct host_comm *host = (struct host_comm *)comm;
    size_t part_bytes = host->slot_bytes / comm->ranks_count;
    size_t done = 0;

    host_op_begin(host, TDM__COLLECTIVE_EXCHANGE, exchange->part_bytes_max, 0);
    do {
        for (uint32_t i = 0; i < comm->ranks_count; i++) {
            if (i != comm->rank) {
                memcpy(host_own_slot(host) + i * part_bytes,
                       (const char *)exchange->in + exchange->send_offsets[i] + done,
                       tdm__comm_part_left(exchange->send_bytes[i], done, part_bytes));
            }
        }
        TDM_TRY(host_op_barrier(host));
        for (uint32_t i = 0; i < comm->ranks_count; i++) {
            if (i != comm->rank) {
                memcpy((char *)exchange->out + exchange->receive_offsets[i] + done,
                       host_slot_of(host, i) + comm->rank * part_bytes,
                       tdm__comm_part_left(exchange->receive_bytes[i], done, part_bytes));
            }
        }
        host_next_slot(host);
        done += part_bytes;
    } while (done < exchange->part_bytes_max);
    return TDM_OK;
}

/* ---- opening and closing ----------------------------------------------------------------- */

/* Implements abort of struct tdm__comm_ops. */
static void host_abort(struct tdm__comm *comm)
{
    tdm__comm_segment_abort(((struct host_comm *)comm)->segment, comm->rank,
                            TDM__COMM_RANK_ABORTED);
}

/* Implements check of struct tdm__comm_ops. */
static tdm_status host_check(struct tdm__comm *comm)
{
    return tdm__comm_segment_check(((struct host_comm *)comm)->segment);
}

/* Implements destroy of struct tdm__comm_ops: leaves the group and unmaps the segment. */
static void host_destroy(struct tdm__comm *comm)
{
    struct host_comm *host = (struct host_comm *)comm;

    tdm__comm_segment_leave(host->segment, comm->rank);
    tdm__comm_segment_unmap(host->segment);
    free(host);
}

static const struct tdm__comm_ops host_ops = {.name = "host",
                                              .destroy = host_destroy,
                                              .abort = host_abort,
                                              .check = host_check,
                                              .synchronize = host_synchronize,
                                              .all_reduce = host_all_reduce,
                                              .all_gather = host_all_gather,
                                              .reduce_scatter = host_reduce_scatter,
                                              .broadcast = host_broadcast,
                                              .gather = host_gather,
                                              .exchange = host_exchange};

tdm_status tdm__comm_host_open(int fd, uint32_t rank, int64_t timeout_ms,
                               struct tdm__comm **comm_out)
{
    struct tdm__comm_segment *segment;
    struct host_comm *host;

    TDM_TRY(tdm__comm_segment_map(fd, false, &segment));
    host = calloc(1, sizeof(*host));
    if (host == NULL || rank >= tdm__comm_segment_ranks_count(segment)) {
        uint32_t ranks_count = tdm__comm_segment_ranks_count(segment);

        tdm__comm_segment_unmap(segment);
        free(host);
        return rank >= ranks_count ? tdm__fail(TDM_E_INVAL, "rank %u of %u", rank, ranks_count)
                                   : tdm__fail(TDM_E_NOMEM, "a communicator");
    }
    host->base.ops = &host_ops;
    host->base.rank = rank;
    host->base.ranks_count = tdm__comm_segment_ranks_count(segment);
    host->segment = segment;
    host->slot_bytes = tdm__comm_segment_slot_bytes(segment);
    host->timeout_ms = timeout_ms;
    *comm_out = &host->base;
    return TDM_OK;
}
