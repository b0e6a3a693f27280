/* cuda_gpu.h - a GPU for tests, a real one or the fake library, with a broker and two tenants. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_CUDA_GPU_H
#define TDM_TESTS_SUPPORT_CUDA_GPU_H

#include "colocate/device/device.h"
#include "colocate/memory/broker.h"
#include "colocate/memory/broker_client.h"

#include <stdbool.h>

struct cuda_gpu {
    char uuid[TDM__UUID_BYTES];
    struct tdm__broker *broker;
    struct tdm__tenant tenants[2]; /* "trainer rank 1", "engine 0" */
    struct tdm__broker_client *clients[2];
    struct tdm__device *devices[2]; /* faulty ones if asked for, never armed */
};

/* Once per program, first: the fake library of so many bytes, or with TANDEM_TEST_REAL_GPU set in
 * the environment the driver that there is. */
void cuda_gpu_choose(size_t fake_bytes);
/* Removes what the fake library left. */
void cuda_gpu_forget(void);
bool cuda_gpu_is_real(void);

struct cuda_gpu *cuda_gpu_open(size_t capacity_bytes, bool faulty);
void cuda_gpu_close(struct cuda_gpu *gpu);
size_t cuda_gpu_used_bytes(const struct cuda_gpu *gpu); /* by the broker's ledger */
size_t cuda_gpu_free_bytes(const struct cuda_gpu *gpu); /* by the device */

/* The fake library's controls (tests/fake/cuda.h). */
struct cuda_gpu_controls {
    void (*break_call)(const char *name, uint64_t nth, int error);
    uint64_t (*calls)(void);
    void (*defer)(bool defer);
    unsigned (*things)(void);
};
extern struct cuda_gpu_controls cuda_gpu_fake;

#endif
