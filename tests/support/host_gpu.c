/* host_gpu.c - one virtual GPU inside the test process: a broker and two tenants' devices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/host_gpu.h"

#include "colocate/device/cuda/cuda.h"
#include "colocate/device/cuda/driver.h"
#include "colocate/device/host/host.h"
#include "runtime/assert.h"
#include "tests/support/direct_broker.h"
#include "tests/support/faulty_device.h"

#include <stdio.h>
#include <stdlib.h>

static void must(tdm_status status)
{
    TDM_ASSERT(status == TDM_OK);
}

struct host_gpu *host_gpu_open(size_t capacity_bytes, bool faulty)
{
    static const char *const names[2] = {"trainer rank 1", "engine 0"};
    struct host_gpu *gpu = calloc(1, sizeof(*gpu));

    TDM_ASSERT(gpu != NULL);
    must(tdm__broker_create(1, capacity_bytes, &gpu->broker));
    for (int i = 0; i < 2; i++) {
        must(tdm__id_generate(&gpu->tenants[i].id));
        (void)snprintf(gpu->tenants[i].name, sizeof(gpu->tenants[i].name), "%s", names[i]);
        must(tdm__broker_client_open_direct(gpu->broker, &gpu->tenants[i], &gpu->clients[i]));
        must(tdm__device_host_kind.open(gpu->clients[i], 0, "", &gpu->devices[i]));
        if (faulty) {
            must(tdm__device_faulty_open(gpu->devices[i], &gpu->devices[i]));
        }
    }
    return gpu;
}

void host_gpu_use_cuda(struct host_gpu *gpu)
{
    struct tdm__cuda_gpu found;

    must(tdm__cuda_gpu_at(0, &found));
    for (int i = 0; i < 2; i++) {
        tdm__device_close(gpu->devices[i]);
        must(tdm__device_cuda_kind.open(gpu->clients[i], 0, found.uuid, &gpu->devices[i]));
    }
}

void host_gpu_close(struct host_gpu *gpu)
{
    for (int i = 0; i < 2; i++) {
        tdm__device_close(gpu->devices[i]);
        tdm__broker_client_destroy(gpu->clients[i]);
    }
    tdm__broker_destroy(gpu->broker);
    free(gpu);
}

size_t host_gpu_used_bytes(const struct host_gpu *gpu)
{
    struct tdm__broker_gpu described;

    tdm__broker_gpu_usage(gpu->broker, 0, &described);
    return described.used_bytes;
}
