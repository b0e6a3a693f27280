/* host_gpu.h - one virtual GPU inside the test process: a broker and two tenants' devices. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_HOST_GPU_H
#define TDM_TESTS_SUPPORT_HOST_GPU_H

#include "colocate/broker/broker.h"
#include "colocate/broker/broker_client.h"
#include "colocate/device/device.h"

struct host_gpu {
    struct tdm__broker *broker;
    struct tdm__tenant tenants[2]; /* "trainer rank 1", "engine 0" */
    struct tdm__broker_client *clients[2];
    /* The devices; faulty ones, not armed, if they were asked for. */
    struct tdm__device *devices[2];
};

struct host_gpu *host_gpu_open(size_t capacity_bytes, bool faulty);
/* Replaces both virtual devices by the GPU that cuda_gpu_choose() chose (tests/support/cuda_gpu.h).
 * The virtual devices must not have been used yet. */
void host_gpu_use_cuda(struct host_gpu *gpu);
void host_gpu_close(struct host_gpu *gpu);
size_t host_gpu_used_bytes(const struct host_gpu *gpu);

#endif
