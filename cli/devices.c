/* devices.c - finds the GPUs that a daemon offers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/devices.h"

#include "colocate/device/kinds.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    GPUS_DEFAULT = 4, /* Number of virtual GPUs if no option says how many. */
    /* Unit of GPU memory in bytes: a GPU's memory is rounded down to a multiple of it. */
    BLOCK_BYTES = 2 << 20
};
/* Memory in bytes of a virtual GPU if no option says how much. */
#define GPU_BYTES_DEFAULT (UINT64_C(256) << 20)

/* Fails if the GPUs that the node offers need more memory than the real GPUs have that they
 * share. */
static tdm_status check_room(const struct cli_daemon_options *options,
                             const struct tdm__device_list *list)
{
    uint32_t sharing = (options->gpus + list->count - 1) / list->count;

    if (options->gpu_bytes > list->bytes / (sharing > 0 ? sharing : 1)) {
        return tdm__fail(TDM_E_BUDGET,
                         "%u GPUs of %.0f MiB on %u real ones: %u share one of %.0f MiB",
                         options->gpus, (double)options->gpu_bytes / (1 << 20), list->count,
                         sharing, (double)list->bytes / (1 << 20));
    }
    return TDM_OK;
}

/* Sets the environment variable of the visible devices to a UUID for each offered GPU:
 * "GPU-...,GPU-...". */
static void write_visible(const struct cli_daemon_options *options,
                          const struct tdm__device_list *list)
{
    char text[TDM__DEVICE_GPUS_MAX * TDM__UUID_BYTES] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < options->gpus && used < sizeof(text); i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i == 0 ? "" : ",",
                                 list->uuids[i % list->count]);
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) the daemon has one thread */
    (void)setenv(options->visible_devices_variable, text, 1);
}

tdm_status cli_devices_prepare(struct cli_daemon_options *options)
{
    const struct tdm__device_kind *kind;
    struct tdm__device_list list;
    bool is_real;

    TDM_TRY(tdm__device_kind_by_name(options->device, &kind));
    TDM_TRY(kind->list(&list));
    options->visible_devices_variable = kind->visible_devices_variable;
    is_real = list.count > 0;
    if (options->gpus == CLI_UNSET) {
        options->gpus = is_real ? list.count : GPUS_DEFAULT;
    }
    if (options->gpu_bytes == 0) {
        options->gpu_bytes = is_real ? list.bytes / BLOCK_BYTES * BLOCK_BYTES : GPU_BYTES_DEFAULT;
    }
    if (is_real) {
        TDM_TRY(check_room(options, &list));
        write_visible(options, &list);
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) the daemon has one thread */
    (void)setenv("TANDEM_DEVICE", kind->name, 1);
    return TDM_OK;
}
