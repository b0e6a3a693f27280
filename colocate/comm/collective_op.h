/* collective_op.h - what the ranks of a group do together, so that a program that mixes its calls
 * up is told. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_COLLECTIVE_OP_H
#define TDM_COLOCATE_COMM_COLLECTIVE_OP_H

#include <stdint.h>

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

/* Equal on all ranks, or the call fails on all. */
struct tdm__collective_op {
    enum tdm__collective_op_kind kind;
    uint32_t root_or_dtype; /* the root, or the kind of numbers */
    uint64_t size_bytes;
};

#endif
