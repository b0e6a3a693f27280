/* gather.h - a gather to which each rank gives as many bytes as it wants. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_GATHER_H
#define TDM_COLOCATE_COMM_GATHER_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/collective.h>
#include <tandem/value.h>

/* What the last gather of a group collected, with the memory that the next gather uses again. A
 * zeroed struct is valid and has no memory; tdm__gathered_fini() frees it. */
struct tdm__gathered {
    /* Owned array: for each rank the number of bytes that it gave. All ranks know these sizes. */
    uint64_t *sizes;
    /* Owned memory: the padded bytes of this rank, and on the root behind them those of all
     * ranks. */
    char *bytes;
    size_t bytes_capacity; /* Size of `bytes` in bytes. */
    size_t part_bytes;     /* Number of bytes to which each rank's part is padded. */
};

/* Collects the bytes `own` of each rank at rank `root`; the sizes may differ and may be 0. All
 * ranks call it together, like the functions of tandem/collective.h, whose errors it returns. The
 * sizes are exchanged first, and the parts then travel in one gather, padded to the largest. If no
 * rank gives a byte there is no gather. Returns TDM_E_LIMIT on all ranks, with the rank and both
 * numbers, if a rank gives more than 64 MiB. */
tdm_status tdm__collective_gather_unequal(tdm_collective_group *group, struct tdm_bytes own,
                                          uint32_t root, struct tdm__gathered *gathered);
/* Returns what `rank` gave to the last gather; only the root may ask. The bytes are borrowed until
 * the next gather. */
struct tdm_bytes tdm__gathered_part(const struct tdm__gathered *gathered, uint32_t rank);
/* Frees the memory of all gathers. */
void tdm__gathered_fini(struct tdm__gathered *gathered);

#endif
