/* call.h - what the ranks of a group do together, so that a program that mixes its calls up is
 * told. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_CALL_H
#define TDM_COLOCATE_COMM_CALL_H

#include <stdint.h>

enum tdm__comm_call_kind {
    TDM__CALL_OPEN,
    TDM__CALL_BARRIER,
    TDM__CALL_ALL_REDUCE,
    TDM__CALL_ALL_GATHER,
    TDM__CALL_REDUCE_SCATTER,
    TDM__CALL_BROADCAST,
    TDM__CALL_GATHER,
    TDM__CALL_SUSPEND,
    TDM__CALL_RESUME
};

/* Equal on all ranks, or the call fails on all. */
struct tdm__comm_call {
    enum tdm__comm_call_kind kind;
    uint32_t variant; /* the root, or the kind of numbers */
    uint64_t size_bytes;
};

#endif
