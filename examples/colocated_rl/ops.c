/* ops.c - the two machines by their names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/ops.h"

#include <string.h>

tdm_status machine_name(const tdm_config *config, const char **name_out)
{
    const char *name;

    TDM_TRY(tdm_config_string(config, "cluster.device", "host", &name));
    if (strcmp(name, "host") != 0 && strcmp(name, "cuda") != 0) {
        return tdm_fail(TDM_E_INVAL, "cluster.device is \"%s\", the model runs on host or cuda",
                        name);
    }
    *name_out = name;
    return TDM_OK;
}

tdm_status machine_open(const char *name, struct machine **machine_out)
{
    if (strcmp(name, "cuda") == 0) {
        return machine_open_cuda(machine_out);
    }
    *machine_out = machine_host();
    return TDM_OK;
}

void machine_close(struct machine *machine)
{
    if (machine != NULL) {
        machine->ops->close(machine);
    }
}
