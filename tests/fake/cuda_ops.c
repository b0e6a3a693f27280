/* cuda_ops.c - the fake library for the CUDA driver: the example's kernels, by their names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"
#include "tests/fake/kernel_shim.h"

#include <math.h>

#include "examples/colocated_rl/ops.cu"

#include <stdlib.h>
#include <string.h>

/* Each has one argument. */
#define KERNELS(X)                                                                                 \
    X(transfer, transfer)                                                                          \
    X(zero, filling)                                                                               \
    X(add, sum)                                                                                    \
    X(scale, scaling)                                                                              \
    X(embed, embedding)                                                                            \
    X(embed_back, embedding_back)                                                                  \
    X(norm, norm)                                                                                  \
    X(norm_inverses, norm_back)                                                                    \
    X(norm_parts, norm_back)                                                                       \
    X(norm_weights, norm_back)                                                                     \
    X(norm_values, norm_back)                                                                      \
    X(rotate, rotation)                                                                            \
    X(attend, attention)                                                                           \
    X(attend_back_queries, attention_back)                                                         \
    X(attend_back_slots, attention_back)                                                           \
    X(swiglu, swiglu)                                                                              \
    X(swiglu_back, swiglu_back)                                                                    \
    X(log_softmax, log_softmax)                                                                    \
    X(choose, choice)                                                                              \
    X(spread, spreading)                                                                           \
    X(adam, adam)

/* Few threads, because no kernel here has a barrier: each thread computes results of its own. */
static const struct fake_shape shape = {.blocks = 3, .rows = 1, .threads = 4};

#define X(name, argument)                                                                          \
    static void body_of_##name(const void *work)                                                   \
    {                                                                                              \
        colocated_rl_##name(*(const struct argument *)work);                                       \
    }                                                                                              \
    static void run_##name(void *work)                                                             \
    {                                                                                              \
        (void)fake_grid_run(&shape, body_of_##name, work);                                         \
    }
KERNELS(X)
#undef X

static const struct entry {
    const char *name;
    fake_work_fn *run;
    size_t argument_bytes;
} entries[] = {
#define X(name, argument) {"colocated_rl_" #name, run_##name, sizeof(struct argument)},
    KERNELS(X)
#undef X
};

enum { ENTRIES = sizeof(entries) / sizeof(entries[0]) };

int fake_ops_find(void **function, const char *name)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            *function = (void *)(uintptr_t)&entries[i];
            return CU_SUCCESS;
        }
    }
    return CU_NOT_FOUND;
}

int fake_ops_launch(const void *function, void *stream, void **arguments)
{
    const struct entry *entry = function;

    if (entry < entries || entry >= entries + ENTRIES) {
        return CU_INVALID_HANDLE;
    }
    return fake_submit_work(stream, entry->run, arguments[0], entry->argument_bytes);
}
