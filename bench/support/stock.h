/* stock.h - the flow that everybody has: PyTorch, shared tensors, pickled handles, copy_. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_STOCK_H
#define TDM_BENCH_STOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* bench/stock_flow.py with its four processes; it wants Debian's python3-torch. */
struct bench_stock {
    bool is_there;
    int fd;
    pid_t pid;
};

/* A model of that many layers and words.  Without PyTorch says so on stderr, and there is none.
 * `directory` is bench/. */
void bench_stock_start(struct bench_stock *stock, const char *directory, uint32_t layers,
                       uint32_t vocabulary);
/* One update: the seconds from the word until the engine has all. */
double bench_stock_by_tensor(const struct bench_stock *stock);
double bench_stock_by_bucket(const struct bench_stock *stock);
void bench_stock_stop(struct bench_stock *stock);

#endif
