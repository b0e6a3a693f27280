/* open.c - chooses how a group moves data of GPUs: with NCCL, or through host memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/gpu/open.h"

#include "colocate/comm/gpu/staged.h"
#include "colocate/comm/nccl/nccl.h"
#include "colocate/device/device.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank tells the others before the choice; every byte is initialised. */
struct gpu_of_rank {
    char uuid[TDM__UUID_BYTES]; /* UUID of the rank's GPU. */
    /* 1 if the rank's environment lets NCCL put several ranks on one GPU. */
    uint8_t may_share;
};

/* Returns true if the environment lets NCCL put several ranks on one GPU. */
static bool nccl_may_share(void)
{
    const char *value = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return value != NULL && strcmp(value, "1") == 0;
}

/* Returns true if NCCL refuses these GPUs, because two ranks that do not all allow it have the
 * same one. Logs which. */
static bool must_stage(const struct gpu_of_rank *gpus, uint32_t ranks_count)
{
    bool all_may_share = true;

    for (uint32_t i = 0; i < ranks_count; i++) {
        all_may_share = all_may_share && gpus[i].may_share == 1;
    }
    for (uint32_t i = 0; i < ranks_count && !all_may_share; i++) {
        for (uint32_t j = i + 1; j < ranks_count; j++) {
            if (strncmp(gpus[i].uuid, gpus[j].uuid, sizeof(gpus[i].uuid)) == 0) {
                tdm__log(TDM__INFO, "comm",
                         "ranks %u and %u of %u share %.40s, which nccl refuses: the group moves "
                         "its data through host memory",
                         i, j, ranks_count, gpus[i].uuid);
                return true;
            }
        }
    }
    return false;
}

tdm_status tdm__comm_gpu_open(const struct tdm__comm_gpu_options *options,
                              struct tdm__comm **comm_out)
{
    struct tdm__comm *control_comm = options->control_comm;
    struct gpu_of_rank own = {.may_share = nccl_may_share() ? 1 : 0};
    struct gpu_of_rank *all = calloc(control_comm->ranks_count, sizeof(*all));
    tdm_status status;
    bool staged = false;

    if (all == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the GPUs of %u ranks", control_comm->ranks_count);
    }
    (void)snprintf(own.uuid, sizeof(own.uuid), "%s", options->gpu_uuid);
    status = control_comm->ops->all_gather(control_comm, &own, sizeof(own), all);
    if (status == TDM_OK) {
        staged = must_stage(all, control_comm->ranks_count);
    }
    free(all);
    TDM_TRY(status);
    return staged ? tdm__comm_staged_open(options, comm_out)
                  : tdm__comm_nccl_open(options, comm_out);
}
