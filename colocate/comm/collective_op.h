/* collective_op.h - describes a collective operation, so that ranks that call different
 * operations get an error. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_COLLECTIVE_OP_H
#define TDM_COLOCATE_COMM_COLLECTIVE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kind of a collective operation. OPEN is an internal operation of a communicator. */
enum tdm__collective_op_kind {
    TDM__COLLECTIVE_OPEN,
    TDM__COLLECTIVE_BARRIER,
    TDM__COLLECTIVE_ALL_REDUCE,
    TDM__COLLECTIVE_ALL_GATHER,
    TDM__COLLECTIVE_REDUCE_SCATTER,
    TDM__COLLECTIVE_BROADCAST,
    TDM__COLLECTIVE_GATHER,
    TDM__COLLECTIVE_EXCHANGE,
    TDM__COLLECTIVE_PAUSE,
    TDM__COLLECTIVE_RESUME
};

/* Kind of memory that has a rank's data. */
enum tdm__comm_memory {
    TDM__COMM_MEMORY_HOST, /* Host memory, or no data. */
    TDM__COMM_MEMORY_GPU   /* Memory of a GPU. */
};

/* A collective operation of a group. It must be equal on all ranks; otherwise the operation fails
 * on all of them. */
struct tdm__collective_op {
    enum tdm__collective_op_kind kind; /* Kind of the operation. */
    /* Root rank of a broadcast or gather; bits for the element type and the reduction of an
     * all-reduce; 0 for other kinds. */
    uint32_t root_or_dtype;
    /* Bytes that each rank contributes; the largest part of an exchange. */
    uint64_t size_bytes;
    /* Where the rank's data lies; always host memory in a group that moves no data of GPUs. */
    enum tdm__comm_memory memory;
};

/* Size of the text of tdm__collective_op_difference(), with the NUL. */
enum { TDM__OP_DIFFERENCE_BYTES = 160 };

/* Returns true if two operations are equal. */
bool tdm__collective_op_equal(const struct tdm__collective_op *a,
                              const struct tdm__collective_op *b);

/* Writes how the operation `theirs` of another rank differs from the operation `own` of the rank
 * `own_rank`, for an error message that begins with the number of the other rank. Returns `text`.
 */
const char *tdm__collective_op_difference(const struct tdm__collective_op *theirs,
                                          const struct tdm__collective_op *own, uint32_t own_rank,
                                          char text[TDM__OP_DIFFERENCE_BYTES]);

#endif
