/* faulty_comm.c - any communicator, but something strikes this rank at its n-th call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/faulty_comm.h"

#include "runtime/error.h"

#include <stdlib.h>

struct faulty {
    struct tdm__comm base;
    struct tdm__comm *inner; /* Communicator that does the work (owned). */
    uint64_t calls_count;
    uint64_t nth;
    void (*inject_fault)(void *arg);
    void *arg;
};

static struct tdm__comm *faulty_inner(struct tdm__comm *comm)
{
    return ((struct faulty *)comm)->inner;
}

static tdm_status count_call(struct tdm__comm *comm)
{
    struct faulty *faulty = (struct faulty *)comm;

    faulty->calls_count++;
    if (faulty->calls_count != faulty->nth) {
        return TDM_OK;
    }
    faulty->inject_fault(faulty->arg);
    return tdm__fail(TDM_E_ABORTED, "rank %u: fault injected into call %llu", comm->rank,
                     (unsigned long long)faulty->nth);
}

static void faulty_destroy(struct tdm__comm *comm)
{
    faulty_inner(comm)->ops->destroy(faulty_inner(comm));
    free(comm);
}

static void faulty_abort(struct tdm__comm *comm)
{
    faulty_inner(comm)->ops->abort(faulty_inner(comm));
}

static tdm_status faulty_check(struct tdm__comm *comm)
{
    return faulty_inner(comm)->ops->check(faulty_inner(comm));
}

static tdm_status faulty_synchronize(struct tdm__comm *comm, const struct tdm__collective_op *call)
{
    TDM_TRY(count_call(comm));
    return faulty_inner(comm)->ops->synchronize(faulty_inner(comm), call);
}

static tdm_status faulty_all_reduce(struct tdm__comm *comm, void *data, size_t count,
                                    enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    TDM_TRY(count_call(comm));
    return faulty_inner(comm)->ops->all_reduce(faulty_inner(comm), data, count, dtype, reduction);
}

static tdm_status faulty_all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                    void *out)
{
    TDM_TRY(count_call(comm));
    return faulty_inner(comm)->ops->all_gather(faulty_inner(comm), in, bytes_per_rank, out);
}

static tdm_status faulty_reduce_scatter(struct tdm__comm *comm, const float *in, size_t count,
                                        float *out)
{
    TDM_TRY(count_call(comm));
    return faulty_inner(comm)->ops->reduce_scatter(faulty_inner(comm), in, count, out);
}

static tdm_status faulty_broadcast(struct tdm__comm *comm, void *data, size_t size_bytes,
                                   uint32_t root)
{
    TDM_TRY(count_call(comm));
    return faulty_inner(comm)->ops->broadcast(faulty_inner(comm), data, size_bytes, root);
}

static tdm_status faulty_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                void *out, uint32_t root)
{
    TDM_TRY(count_call(comm));
    return faulty_inner(comm)->ops->gather(faulty_inner(comm), in, bytes_per_rank, out, root);
}

static tdm_status faulty_exchange(struct tdm__comm *comm, const struct tdm__comm_exchange *exchange)
{
    TDM_TRY(count_call(comm));
    return faulty_inner(comm)->ops->exchange(faulty_inner(comm), exchange);
}

tdm_status tdm__comm_faulty_open(struct tdm__comm *inner, uint64_t nth,
                                 void (*inject_fault)(void *arg), void *arg,
                                 struct tdm__comm **comm_out)
{
    static const struct tdm__comm_ops ops = {.name = "faulty",
                                             .destroy = faulty_destroy,
                                             .abort = faulty_abort,
                                             .check = faulty_check,
                                             .synchronize = faulty_synchronize,
                                             .all_reduce = faulty_all_reduce,
                                             .all_gather = faulty_all_gather,
                                             .reduce_scatter = faulty_reduce_scatter,
                                             .broadcast = faulty_broadcast,
                                             .gather = faulty_gather,
                                             .exchange = faulty_exchange};
    struct faulty *faulty = calloc(1, sizeof(*faulty));

    if (faulty == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a faulty communicator");
    }
    *faulty = (struct faulty){
        .base = *inner, .inner = inner, .nth = nth, .inject_fault = inject_fault, .arg = arg};
    faulty->base.ops = &ops;
    *comm_out = &faulty->base;
    return TDM_OK;
}
