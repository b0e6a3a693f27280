/* memory.h - memory for tests of the model on either machine, with a fake library for a GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TESTS_MEMORY_H
#define COLOCATED_RL_TESTS_MEMORY_H

#include "examples/colocated_rl/ops.h"

/* Returns the machine "host" or "cuda", one for all tests of the program, which is not closed. CUDA
 * is a fake library under tests/ or, with TANDEM_TEST_REAL_GPU in the environment, the real one.
 * This and the functions below end the program with the reason on any failure. Any thread may call
 * them. */
struct machine *memory_machine(const char *name);

/* Allocates zeroed memory of that machine. */
void *memory_take(struct machine *machine, size_t size_bytes);
void memory_give(struct machine *machine, void *memory);

void memory_write(struct machine *machine, void *to, const void *from, size_t size_bytes);
void memory_read(struct machine *machine, void *to, const void *from, size_t size_bytes);

#endif
