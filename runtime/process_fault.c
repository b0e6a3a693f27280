/* process_fault.c - faults after which a process cannot do its work any more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process_fault.h"

#include <stddef.h>

/* What a fault of this process calls; NULL for nothing. Set before other threads start. */
static void (*process_fault_handler)(const char *cause);

void tdm__process_fault_set_handler(void (*handler)(const char *cause))
{
    process_fault_handler = handler;
}

void tdm__process_fault_report(const char *cause)
{
    if (process_fault_handler != NULL) {
        process_fault_handler(cause);
    }
}
