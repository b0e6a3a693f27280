/* torch_flow.h - the flow that everybody has: PyTorch, shared tensors, pickled handles, copy_. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_SUPPORT_TORCH_FLOW_H
#define TDM_BENCH_SUPPORT_TORCH_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* bench/torch_flow.py with its four processes; it wants Debian's python3-torch. */
struct bench_torch_flow {
    bool is_there;
    int fd;
    pid_t pid;
};

/* A model of that many layers and words.  Without PyTorch says so on stderr, and there is none.
 * `directory` is bench/. */
void bench_torch_flow_start(struct bench_torch_flow *stock, const char *directory, uint32_t layers,
                            uint32_t vocabulary);
/* One update: the seconds from the word until the engine has all. */
double bench_torch_flow_by_tensor(const struct bench_torch_flow *stock);
double bench_torch_flow_by_bucket(const struct bench_torch_flow *stock);
void bench_torch_flow_stop(struct bench_torch_flow *stock);

#endif
