/* ops.c - opens a machine by its name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/ops.h"

#include <string.h>

tdm_status machine_open(const char *name, struct machine **machine_out)
{
    if (strcmp(name, "host") == 0) {
        *machine_out = machine_host();
        return TDM_OK;
    }
    return strcmp(name, "cuda") == 0
               ? machine_open_cuda(machine_out)
               : tdm_fail(TDM_E_INVAL, "unknown device \"%s\": expected \"host\" or \"cuda\"",
                          name);
}

void machine_close(struct machine *machine)
{
    if (machine != NULL) {
        machine->ops->close(machine);
    }
}
