/* kinds.c - the kinds of device that a node may have, by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/kinds.h"

#include "colocate/device/cuda/cuda.h"
#include "colocate/device/host/host.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All kinds of device. The first one is the default. */
static const struct tdm__device_kind *const kinds[] = {
    &tdm__device_host_kind,
    &tdm__device_cuda_kind,
};

/* Number of kinds. */
enum { KINDS_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

const struct tdm__device_kind *tdm__device_kind_at(uint32_t index)
{
    return index < KINDS_COUNT ? kinds[index] : NULL;
}

const char *tdm__device_kind_names(char text[TDM__DEVICE_KIND_NAMES_BYTES])
{
    size_t used = 0;

    for (uint32_t i = 0; i < KINDS_COUNT && used < TDM__DEVICE_KIND_NAMES_BYTES; i++) {
        const char *before_last = i + 1 == KINDS_COUNT ? " or " : ", ";

        used += (size_t)snprintf(text + used, TDM__DEVICE_KIND_NAMES_BYTES - used, "%s%s",
                                 i == 0 ? "" : before_last, kinds[i]->name);
    }
    return text;
}

tdm_status tdm__device_kind_by_name(const char *name, const struct tdm__device_kind **kind_out)
{
    char names[TDM__DEVICE_KIND_NAMES_BYTES];

    for (uint32_t i = 0; i < KINDS_COUNT; i++) {
        if (strcmp(kinds[i]->name, name) == 0) {
            *kind_out = kinds[i];
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_NOT_FOUND, "unknown device \"%s\": expected %s", name,
                     tdm__device_kind_names(names));
}

/* Writes the entry number `gpu` of the environment variable in which the daemon lists the real GPUs
 * of the node's GPUs; "" if it does not exist. */
static void find_uuid(uint32_t gpu, char uuid[TDM__UUID_BYTES])
{
    const char *uuids = getenv(TDM__GPU_UUIDS_VARIABLE);
    size_t length = 0;

    while (uuids != NULL && (length = strcspn(uuids, ",")) > 0 && gpu > 0) {
        uuids += length + (uuids[length] == ',' ? 1 : 0);
        gpu--;
    }
    (void)snprintf(uuid, TDM__UUID_BYTES, "%.*s", (int)length, uuids != NULL ? uuids : "");
}

tdm_status tdm__device_of_process(uint32_t gpu, const struct tdm__device_kind **kind_out,
                                  char uuid[TDM__UUID_BYTES])
{
    const char *name = getenv("TANDEM_DEVICE");

    TDM_TRY(tdm__device_kind_by_name(name != NULL && name[0] != '\0' ? name : kinds[0]->name,
                                     kind_out));
    find_uuid(gpu, uuid);
    return TDM_OK;
}
