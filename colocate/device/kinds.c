/* kinds.c - the kinds of device that a node may have, by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/driver.h"
#include "colocate/device/device.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lists virtual GPUs: their number is not limited. */
static tdm_status list_host(struct tdm__device_list *list_out)
{
    memset(list_out, 0, sizeof(*list_out));
    return TDM_OK;
}

/* Opens a virtual GPU, which has no UUID. */
static tdm_status open_host(struct tdm__broker_client *client, uint32_t gpu, const char *uuid,
                            struct tdm__device **device_out)
{
    (void)uuid;
    return tdm__device_host_open(client, gpu, device_out);
}

/* Lists the GPUs that the CUDA driver reports. */
static tdm_status list_cuda(struct tdm__device_list *list_out)
{
    struct tdm__device_list list = {.bytes = SIZE_MAX};

    TDM_TRY(tdm__cuda_gpus_count(&list.count));
    if (list.count == 0 || list.count > TDM__DEVICE_GPUS_MAX) {
        return tdm__fail(TDM_E_UNSUPPORTED, "the driver shows %u GPUs: 1 to %d can be offered",
                         list.count, TDM__DEVICE_GPUS_MAX);
    }
    for (uint32_t i = 0; i < list.count; i++) {
        struct tdm__cuda_gpu gpu;

        TDM_TRY(tdm__cuda_gpu_at(i, &gpu));
        memcpy(list.uuids[i], gpu.uuid, sizeof(list.uuids[i]));
        list.bytes = gpu.total_bytes < list.bytes ? gpu.total_bytes : list.bytes;
    }
    *list_out = list;
    return TDM_OK;
}

tdm_status tdm__device_kind_by_name(const char *name, const struct tdm__device_kind **kind_out)
{
    static const struct tdm__device_kind kinds[] = {
        {"host", list_host, open_host},
        {"cuda", list_cuda, tdm__device_cuda_open},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            *kind_out = &kinds[i];
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_NOT_FOUND, "unknown device \"%s\": expected \"host\" or \"cuda\"", name);
}

/* Writes the entry number `gpu` of CUDA_VISIBLE_DEVICES, in which the daemon lists the GPUs of
 * the actor; "" if it does not exist. */
static void find_uuid(uint32_t gpu, char uuid[TDM__UUID_BYTES])
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    size_t length = 0;

    while (visible != NULL && (length = strcspn(visible, ",")) > 0 && gpu > 0) {
        visible += length + (visible[length] == ',' ? 1 : 0);
        gpu--;
    }
    (void)snprintf(uuid, TDM__UUID_BYTES, "%.*s", (int)length, visible != NULL ? visible : "");
}

tdm_status tdm__device_of_process(uint32_t gpu, const struct tdm__device_kind **kind_out,
                                  char uuid[TDM__UUID_BYTES])
{
    const char *name = getenv("TANDEM_DEVICE");

    TDM_TRY(tdm__device_kind_by_name(name != NULL && name[0] != '\0' ? name : "host", kind_out));
    find_uuid(gpu, uuid);
    return TDM_OK;
}
