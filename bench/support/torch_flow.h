/* torch_flow.h - the usual weight update with PyTorch, to compare with: shared tensors, pickled
 * handles, copy_. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_SUPPORT_TORCH_FLOW_H
#define TDM_BENCH_SUPPORT_TORCH_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A running bench/torch_flow.py with its four processes. It needs Debian's python3-torch. */
struct bench_torch_flow {
    /* False if PyTorch is not installed; then only this field is valid. */
    bool is_there;
    /* Owned socket to the script. */
    int fd;
    /* Process ID of the script. */
    pid_t pid;
};

/* Starts the script with a model of `layers` layers and `vocabulary` words. `directory` is the
 * folder bench/. If PyTorch is missing it prints a note to stderr and sets `is_there` to false. */
void bench_torch_flow_start(struct bench_torch_flow *stock, const char *directory, uint32_t layers,
                            uint32_t vocabulary);
/* Runs one update tensor by tensor. Returns the seconds until the engine has all tensors. */
double bench_torch_flow_by_tensor(const struct bench_torch_flow *stock);
/* Runs one update in buckets. Returns the seconds until the engine has all tensors. */
double bench_torch_flow_by_bucket(const struct bench_torch_flow *stock);
/* Ends the script and closes the socket. */
void bench_torch_flow_stop(struct bench_torch_flow *stock);

#endif
