/* host.c - the communicator over shared memory: every collective in pieces of one slot. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/comm.h"

#include "colocate/comm/host/segment.h"
#include "colocate/comm/reduce.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Each rank writes only its own two slots, in turn.  One barrier lies between writing a slot
 * and reading it.  None is needed after the reading: the slot is written again two pieces
 * later, and the barrier of the piece between is met only by who has finished reading. */
struct host_comm {
    struct tdm__comm base;
    struct tdm__segment *segment; /* owned */
    size_t slot_bytes;
    int64_t timeout_ms;
    uint32_t parity; /* of the slot to write next */
    /* of the call in progress */
    struct tdm__comm_call call;
    int64_t deadline_ms;
};

/* From this size on the ranks share the adding: each does its part, for one more barrier. */
enum { SHARED_ADDING_BYTES_MIN = 32768 };

static void begin(struct host_comm *host, enum tdm__comm_call_kind kind, size_t size_bytes,
                  uint32_t variant)
{
    host->call =
        (struct tdm__comm_call){.kind = kind, .variant = variant, .size_bytes = size_bytes};
    host->deadline_ms = tdm__deadline_in(host->timeout_ms);
}

static tdm_status meet(struct host_comm *host)
{
    return tdm__segment_meet(host->segment, host->base.rank, &host->call, host->deadline_ms);
}

static char *slot_of(const struct host_comm *host, uint32_t rank)
{
    return tdm__segment_slot(host->segment, rank, host->parity);
}

static char *own_slot(const struct host_comm *host)
{
    return slot_of(host, host->base.rank);
}

static void next_slot(struct host_comm *host)
{
    host->parity ^= 1;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- reductions ------------------------------------------------------------------------- */

/* `into` becomes the reduction of what stands at `offset` in every rank's slot.  In the order
 * of the ranks, so that the bits do not depend on who computes or when. */
static void reduce_slots(const struct host_comm *host, char *into, size_t offset, size_t count,
                         const struct tdm__comm_call *how)
{
    enum tdm__element element = (how->variant & 1) != 0 ? TDM__DOUBLE : TDM__FLOAT;
    enum tdm_reduction reduction = (how->variant & 2) != 0 ? TDM_MAX : TDM_SUM;

    memcpy(into, slot_of(host, 0) + offset, count * tdm__element_bytes(element));
    for (uint32_t i = 1; i < host->base.ranks_count; i++) {
        tdm__reduce(into, slot_of(host, i) + offset, count, element, reduction);
    }
}

/* The elements [*first_out, *first_out + result) of `count` that rank `rank` adds up. */
static size_t part_of(const struct host_comm *host, uint32_t rank, size_t count,
                      size_t *first_out)
{
    size_t share = (count + host->base.ranks_count - 1) / host->base.ranks_count;

    *first_out = smaller(share * rank, count);
    return smaller(share, count - *first_out);
}

/* All ranks' pieces lie in their slots: each adds its part up, puts it into its own slot (where
 * nobody else reads that part), and takes the others' parts after one more barrier. */
static tdm_status reduce_shared(struct host_comm *host, char *data, size_t count,
                                size_t unit_bytes)
{
    size_t first;
    size_t own_count = part_of(host, host->base.rank, count, &first);

    if (own_count > 0) {
        reduce_slots(host, data + first * unit_bytes, first * unit_bytes, own_count,
                     &host->call);
        memcpy(own_slot(host) + first * unit_bytes, data + first * unit_bytes,
               own_count * unit_bytes);
    }
    TDM_TRY(meet(host));
    for (uint32_t i = 0; i < host->base.ranks_count; i++) {
        size_t part_count = part_of(host, i, count, &first);

        if (i != host->base.rank) {
            memcpy(data + first * unit_bytes, slot_of(host, i) + first * unit_bytes,
                   part_count * unit_bytes);
        }
    }
    return TDM_OK;
}

/* One piece: what fits into a slot. */
static tdm_status reduce_piece(struct host_comm *host, char *piece, size_t count,
                               size_t unit_bytes)
{
    size_t piece_bytes = count * unit_bytes;
    tdm_status status;

    memcpy(own_slot(host), piece, piece_bytes);
    status = meet(host);
    if (status == TDM_OK && piece_bytes >= SHARED_ADDING_BYTES_MIN &&
        host->base.ranks_count > 2) {
        status = reduce_shared(host, piece, count, unit_bytes);
    } else if (status == TDM_OK) {
        reduce_slots(host, piece, 0, count, &host->call);
    }
    next_slot(host);
    return status;
}

static tdm_status host_all_reduce(struct tdm__comm *comm, void *data, size_t count,
                                  enum tdm__element element, enum tdm_reduction reduction)
{
    struct host_comm *host = (struct host_comm *)comm;
    size_t unit_bytes = tdm__element_bytes(element);
    size_t done = 0;

    begin(host, TDM__CALL_ALL_REDUCE, count * unit_bytes,
          (element == TDM__DOUBLE ? 1u : 0u) | (reduction == TDM_MAX ? 2u : 0u));
    do {
        size_t piece_count = smaller(count - done, host->slot_bytes / unit_bytes);

        TDM_TRY(reduce_piece(host, (char *)data + done * unit_bytes, piece_count, unit_bytes));
        done += piece_count;
    } while (done < count);
    return TDM_OK;
}

static tdm_status host_reduce_scatter(struct tdm__comm *comm, const float *in, size_t count,
                                      float *out)
{
    struct host_comm *host = (struct host_comm *)comm;
    size_t room = host->slot_bytes / sizeof(float) / comm->ranks_count;
    size_t done = 0;

    begin(host, TDM__CALL_REDUCE_SCATTER, count * sizeof(float), 0);
    do {
        size_t piece = smaller(count - done, room);
        size_t piece_bytes = piece * sizeof(float);

        for (uint32_t i = 0; i < comm->ranks_count; i++) {
            memcpy(own_slot(host) + i * piece_bytes, in + i * count + done, piece_bytes);
        }
        TDM_TRY(meet(host));
        reduce_slots(host, (char *)(out + done), comm->rank * piece_bytes, piece, &host->call);
        next_slot(host);
        done += piece;
    } while (done < count);
    return TDM_OK;
}

/* ---- moving bytes ----------------------------------------------------------------------- */

static tdm_status host_meet(struct tdm__comm *comm, const struct tdm__comm_call *call)
{
    struct host_comm *host = (struct host_comm *)comm;

    begin(host, call->kind, call->size_bytes, call->variant);
    return meet(host);
}

/* Takes the other ranks' pieces to their places in `out`. */
static void collect(const struct host_comm *host, char *out, size_t bytes_per_rank, size_t done,
                    size_t piece_bytes)
{
    for (uint32_t i = 0; i < host->base.ranks_count; i++) {
        if (i != host->base.rank) {
            memcpy(out + i * bytes_per_rank + done, slot_of(host, i), piece_bytes);
        }
    }
}

/* Every rank offers its bytes; who has an `out` collects them. */
static tdm_status gather_pieces(struct host_comm *host, const void *in, size_t bytes_per_rank,
                                char *out)
{
    size_t done = 0;

    do {
        size_t piece_bytes = smaller(bytes_per_rank - done, host->slot_bytes);

        memcpy(own_slot(host), (const char *)in + done, piece_bytes);
        TDM_TRY(meet(host));
        if (out != NULL) {
            collect(host, out, bytes_per_rank, done, piece_bytes);
        }
        next_slot(host);
        done += piece_bytes;
    } while (done < bytes_per_rank);
    if (out != NULL && bytes_per_rank > 0) {
        memmove(out + host->base.rank * bytes_per_rank, in, bytes_per_rank);
    }
    return TDM_OK;
}

static tdm_status host_all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                  void *out)
{
    struct host_comm *host = (struct host_comm *)comm;

    begin(host, TDM__CALL_ALL_GATHER, bytes_per_rank, 0);
    return gather_pieces(host, in, bytes_per_rank, out);
}

static tdm_status host_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                              void *out, uint32_t root)
{
    struct host_comm *host = (struct host_comm *)comm;

    begin(host, TDM__CALL_GATHER, bytes_per_rank, root);
    return gather_pieces(host, in, bytes_per_rank, comm->rank == root ? out : NULL);
}

static tdm_status host_broadcast(struct tdm__comm *comm, void *data, size_t size_bytes,
                                 uint32_t root)
{
    struct host_comm *host = (struct host_comm *)comm;
    size_t done = 0;

    begin(host, TDM__CALL_BROADCAST, size_bytes, root);
    do {
        size_t piece_bytes = smaller(size_bytes - done, host->slot_bytes);
        char *piece = (char *)data + done;

        if (comm->rank == root) {
            memcpy(own_slot(host), piece, piece_bytes);
        }
        TDM_TRY(meet(host));
        if (comm->rank != root) {
            memcpy(piece, slot_of(host, root), piece_bytes);
        }
        next_slot(host);
        done += piece_bytes;
    } while (done < size_bytes);
    return TDM_OK;
}

/* ---- life ------------------------------------------------------------------------------- */

static void host_abort(struct tdm__comm *comm)
{
    tdm__segment_abort(((struct host_comm *)comm)->segment, comm->rank, TDM__RANK_GAVE_UP);
}

static tdm_status host_check(struct tdm__comm *comm)
{
    return tdm__segment_check(((struct host_comm *)comm)->segment);
}

static void host_destroy(struct tdm__comm *comm)
{
    struct host_comm *host = (struct host_comm *)comm;

    tdm__segment_leave(host->segment, comm->rank);
    tdm__segment_unmap(host->segment);
    free(host);
}

static const struct tdm__comm_ops host_ops = {.name = "host",
                                              .destroy = host_destroy,
                                              .abort = host_abort,
                                              .check = host_check,
                                              .meet = host_meet,
                                              .all_reduce = host_all_reduce,
                                              .all_gather = host_all_gather,
                                              .reduce_scatter = host_reduce_scatter,
                                              .broadcast = host_broadcast,
                                              .gather = host_gather};

tdm_status tdm__comm_host_open(int fd, uint32_t rank, int64_t timeout_ms,
                               struct tdm__comm **comm_out)
{
    struct tdm__segment *segment;
    struct host_comm *host;

    TDM_TRY(tdm__segment_map(fd, false, &segment));
    host = calloc(1, sizeof(*host));
    if (host == NULL || rank >= tdm__segment_ranks_count(segment)) {
        uint32_t ranks_count = tdm__segment_ranks_count(segment);

        tdm__segment_unmap(segment);
        free(host);
        return rank >= ranks_count ? tdm__fail(TDM_E_INVAL, "rank %u of %u", rank, ranks_count)
                                   : tdm__fail(TDM_E_NOMEM, "a communicator");
    }
    host->base.ops = &host_ops;
    host->base.rank = rank;
    host->base.ranks_count = tdm__segment_ranks_count(segment);
    host->segment = segment;
    host->slot_bytes = tdm__segment_slot_bytes(segment);
    host->timeout_ms = timeout_ms;
    *comm_out = &host->base;
    return TDM_OK;
}
