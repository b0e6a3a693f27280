/* collective_op.c - describes a collective operation, so that ranks that call different
 * operations get an error. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/collective_op.h"

#include <stdio.h>

bool tdm__collective_op_equal(const struct tdm__collective_op *a,
                              const struct tdm__collective_op *b)
{
    return a->kind == b->kind && a->root_or_dtype == b->root_or_dtype &&
           a->size_bytes == b->size_bytes && a->memory == b->memory;
}

/* Returns the name of a kind of memory. */
static const char *memory_name(enum tdm__comm_memory memory)
{
    return memory == TDM__COMM_MEMORY_GPU ? "GPU memory" : "host memory";
}

const char *tdm__collective_op_difference(const struct tdm__collective_op *theirs,
                                          const struct tdm__collective_op *own, uint32_t own_rank,
                                          char text[TDM__OP_DIFFERENCE_BYTES])
{
    struct tdm__collective_op theirs_here = *theirs;

    theirs_here.memory = own->memory;
    if (theirs->memory != own->memory && tdm__collective_op_equal(&theirs_here, own)) {
        (void)snprintf(
            text, TDM__OP_DIFFERENCE_BYTES,
            "has its data in %s, and rank %u in %s: all ranks must pass the same kind of "
            "memory",
            memory_name(theirs->memory), own_rank, memory_name(own->memory));
    } else {
        (void)snprintf(text, TDM__OP_DIFFERENCE_BYTES,
                       "was in another call or with another size (%llu bytes, here %llu)",
                       (unsigned long long)theirs->size_bytes, (unsigned long long)own->size_bytes);
    }
    return text;
}
