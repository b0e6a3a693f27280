/* collective_op.h - describes a collective operation, so that ranks that call different
 * operations get an error. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_COLLECTIVE_OP_H
#define TDM_COLOCATE_COMM_COLLECTIVE_OP_H

#include <stdint.h>

/* Kind of a collective operation. OPEN, SUSPEND and RESUME are internal operations of a
 * communicator. */
enum tdm__collective_op_kind {
    TDM__COLLECTIVE_OPEN,
    TDM__COLLECTIVE_BARRIER,
    TDM__COLLECTIVE_ALL_REDUCE,
    TDM__COLLECTIVE_ALL_GATHER,
    TDM__COLLECTIVE_REDUCE_SCATTER,
    TDM__COLLECTIVE_BROADCAST,
    TDM__COLLECTIVE_GATHER,
    TDM__COLLECTIVE_SUSPEND,
    TDM__COLLECTIVE_RESUME
};

/* A collective operation of a group. It must be equal on all ranks; otherwise the operation fails
 * on all of them. */
struct tdm__collective_op {
    enum tdm__collective_op_kind kind; /* Kind of the operation. */
    /* Root rank of a broadcast or gather; bits for the element type and the reduction of an
     * all-reduce; 0 for other kinds. */
    uint32_t root_or_dtype;
    uint64_t size_bytes; /* Bytes that each rank contributes. */
};

#endif
