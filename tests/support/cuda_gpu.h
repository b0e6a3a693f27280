/* cuda_gpu.h - a GPU for tests, real or of the fake library, with a broker and two tenants. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_CUDA_GPU_H
#define TDM_TESTS_SUPPORT_CUDA_GPU_H

#include "colocate/broker/broker.h"
#include "colocate/broker/broker_client.h"
#include "colocate/device/device.h"

#include <stdbool.h>

/* One GPU with a broker, two tenants and a device for each. */
struct cuda_gpu {
    char uuid[TDM__UUID_BYTES];
    struct tdm__broker *broker;
    struct tdm__tenant tenants[2]; /* "trainer rank 1", "engine 0" */
    struct tdm__broker_client *clients[2];
    /* The devices of the tenants; faulty devices, not armed, if cuda_gpu_open() was asked for
     * them. */
    struct tdm__device *devices[2];
};

/* Chooses the GPU. Each program calls it once, first. It is the fake library with `fake_bytes` of
 * memory, or the installed driver if TANDEM_TEST_REAL_GPU is set. */
void cuda_gpu_choose(size_t fake_bytes);
/* Removes the files of the fake library. */
void cuda_gpu_forget(void);
bool cuda_gpu_is_real(void);

struct cuda_gpu *cuda_gpu_open(size_t capacity_bytes, bool faulty);
void cuda_gpu_close(struct cuda_gpu *gpu);
/* Bytes that the broker has charged. */
size_t cuda_gpu_used_bytes(const struct cuda_gpu *gpu);
/* Bytes that are free according to the device. */
size_t cuda_gpu_free_bytes(const struct cuda_gpu *gpu);

/* The fake library's controls (tests/fake/cuda.h). */
struct cuda_gpu_controls {
    void (*break_call)(const char *name, uint64_t nth, int error);
    uint64_t (*calls)(void);
    void (*defer)(bool defer);
    unsigned (*things)(void);
};
extern struct cuda_gpu_controls cuda_gpu_fake;

#endif
