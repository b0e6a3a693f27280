/* gather.c - a gather to which each rank gives as many bytes as it wants. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/gather.h"

#include "colocate/comm/collective.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* The largest number of bytes that one rank may give: twice the largest description of a bucket. */
#define PART_BYTES_MAX ((uint64_t)64 << 20)

/* Makes `gathered->bytes` large enough for `bytes` bytes. */
static tdm_status reserve_bytes(tdm_collective_group *group, struct tdm__gathered *gathered,
                                size_t bytes)
{
    char *grown;

    if (gathered->bytes_capacity >= bytes) {
        return TDM_OK;
    }
    grown = realloc(gathered->bytes, bytes);
    if (grown == NULL) {
        struct tdm__comm *comm = tdm__collective_comm(group);

        comm->ops->abort(comm); /* The other ranks do not wait for this one. */
        return tdm__fail(TDM_E_NOMEM, "a gather of %zu bytes", bytes);
    }
    gathered->bytes = grown;
    gathered->bytes_capacity = bytes;
    return TDM_OK;
}

/* Tells all ranks how many bytes each gives, and stores the largest number in part_bytes. */
static tdm_status exchange_sizes(tdm_collective_group *group, uint64_t own_bytes,
                                 struct tdm__gathered *gathered)
{
    uint32_t ranks_count = tdm_collective_ranks_count(group);

    if (gathered->sizes == NULL) {
        gathered->sizes = calloc(ranks_count, sizeof(*gathered->sizes));
    }
    if (gathered->sizes == NULL) {
        struct tdm__comm *comm = tdm__collective_comm(group);

        comm->ops->abort(comm); /* The other ranks do not wait for this one. */
        return tdm__fail(TDM_E_NOMEM, "a gather of %u ranks", ranks_count);
    }
    TDM_TRY(
        tdm_collective_all_gather(group, &own_bytes, sizeof(own_bytes), (void *)gathered->sizes));
    gathered->part_bytes = 0;
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        if (gathered->sizes[rank] > PART_BYTES_MAX) {
            return tdm__fail(TDM_E_LIMIT, "rank %u gives %llu bytes to a gather, at most %llu",
                             rank, (unsigned long long)gathered->sizes[rank],
                             (unsigned long long)PART_BYTES_MAX);
        }
        if (gathered->sizes[rank] > gathered->part_bytes) {
            gathered->part_bytes = (size_t)gathered->sizes[rank];
        }
    }
    return TDM_OK;
}

tdm_status tdm__collective_gather_unequal(tdm_collective_group *group, struct tdm_bytes own,
                                          uint32_t root, struct tdm__gathered *gathered)
{
    size_t parts = tdm_collective_rank(group) == root ? tdm_collective_ranks_count(group) + 1 : 1;

    TDM_TRY(exchange_sizes(group, own.size_bytes, gathered));
    if (gathered->part_bytes == 0) {
        return TDM_OK;
    }
    TDM_TRY(reserve_bytes(group, gathered, parts * gathered->part_bytes));
    if (own.size_bytes > 0) {
        memcpy(gathered->bytes, own.data, own.size_bytes);
    }
    memset(gathered->bytes + own.size_bytes, 0, gathered->part_bytes - own.size_bytes);
    return tdm_collective_gather(group, gathered->bytes, gathered->part_bytes,
                                 gathered->bytes + (parts > 1 ? gathered->part_bytes : 0), root);
}

struct tdm_bytes tdm__gathered_part(const struct tdm__gathered *gathered, uint32_t rank)
{
    return gathered->sizes[rank] == 0
               ? (struct tdm_bytes){.size_bytes = 0}
               : (struct tdm_bytes){gathered->bytes + (rank + (size_t)1) * gathered->part_bytes,
                                    (size_t)gathered->sizes[rank]};
}

void tdm__gathered_fini(struct tdm__gathered *gathered)
{
    free(gathered->sizes);
    free(gathered->bytes);
    *gathered = (struct tdm__gathered){.sizes = NULL};
}
