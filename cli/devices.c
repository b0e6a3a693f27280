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
/* Memory in bytes of a real GPU that is left to CUDA and its libraries for each GPU that it is
 * offered as, if no option says how much: two processes, a trainer and an engine. An H100 takes 518
 * to 526 MiB for the context of a process; the rest is for cuBLAS and for the code of kernels. */
#define RESERVE_BYTES_DEFAULT (UINT64_C(2) * (UINT64_C(640) << 20))
/* Memory in bytes of a virtual GPU if no option says how much. */
#define GPU_BYTES_DEFAULT (UINT64_C(256) << 20)

/* Returns the number of the node's GPUs that share a real one, at least 1. */
static uint32_t sharing_count(const struct cli_daemon_options *options,
                              const struct tdm__device_list *list)
{
    return options->gpus > list->count ? (options->gpus + list->count - 1) / list->count : 1;
}

/* Returns the memory of each GPU in bytes if no option says how much: what the reserve leaves of a
 * real GPU, shared by the GPUs that it is offered as. */
static uint64_t default_gpu_bytes(const struct cli_daemon_options *options,
                                  const struct tdm__device_list *list)
{
    uint32_t sharing = sharing_count(options, list);
    uint64_t reserve = options->gpu_reserve_bytes;

    if (reserve == UINT64_MAX) {
        reserve = sharing * RESERVE_BYTES_DEFAULT;
        reserve = reserve < list->bytes / 4 ? reserve : list->bytes / 4;
    }
    reserve = reserve < list->bytes ? reserve : list->bytes;
    return (list->bytes - reserve) / sharing / BLOCK_BYTES * BLOCK_BYTES;
}

/* Fails if the GPUs that the node offers need more memory than the real GPUs have that they
 * share. */
static tdm_status check_room(const struct cli_daemon_options *options,
                             const struct tdm__device_list *list)
{
    uint32_t sharing = sharing_count(options, list);

    if (options->gpu_bytes == 0) {
        return tdm__fail(TDM_E_BUDGET,
                         "starting the node failed: a reserve of %.0f MiB leaves nothing of a GPU "
                         "of %.0f MiB. Give a smaller --gpu-reserve-bytes",
                         (double)options->gpu_reserve_bytes / (1 << 20),
                         (double)list->bytes / (1 << 20));
    }
    if (options->gpu_bytes > list->bytes / sharing) {
        return tdm__fail(
            TDM_E_BUDGET,
            "starting the node failed: %u GPUs of %.0f MiB do not fit on %u real ones: %u share "
            "one of %.0f MiB. Give fewer --gpus or a smaller --gpu-bytes",
            options->gpus, (double)options->gpu_bytes / (1 << 20), list->count, sharing,
            (double)list->bytes / (1 << 20));
    }
    return TDM_OK;
}

/* Sets an environment variable, which the processes of the node inherit. */
static void set_variable(const char *name, const char *text)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) the daemon has one thread */
    (void)setenv(name, text, 1);
}

/* Sets an environment variable to the UUIDs of the first `count` offered GPUs: "GPU-...,GPU-...".
 */
static void write_uuids(const char *variable, const struct tdm__device_list *list, uint32_t count)
{
    char text[TDM__DEVICE_GPUS_MAX * TDM__UUID_BYTES] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < count && used < sizeof(text); i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i == 0 ? "" : ",",
                                 list->uuids[i % list->count]);
    }
    set_variable(variable, text);
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
        options->gpu_bytes = is_real ? default_gpu_bytes(options, &list) : GPU_BYTES_DEFAULT;
    }
    if (is_real) {
        TDM_TRY(check_room(options, &list));
        write_uuids(TDM__GPU_UUIDS_VARIABLE, &list, options->gpus);
        write_uuids(options->visible_devices_variable, &list,
                    options->gpus < list.count ? options->gpus : list.count);
    } else {
        /* The daemon may have been started by a worker of another node, with real GPUs. */
        set_variable(TDM__GPU_UUIDS_VARIABLE, "");
    }
    set_variable("TANDEM_DEVICE", kind->name);
    return TDM_OK;
}
