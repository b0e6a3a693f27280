/* devices.h - finds the GPUs that a daemon offers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_DEVICES_H
#define TDM_CLI_DEVICES_H

#include "cli/daemon_options.h"

#include <tandem/error.h>

/* Examines the devices of kind options->device, and fills in the number of GPUs and their memory
 * where the options do not say. More GPUs may be offered than exist: GPU i is then the real GPU i %
 * count, and the memories of those that share one must fit on it.
 *
 * Workers receive the result in the environment: TANDEM_DEVICE names the kind. For GPUs with UUIDs,
 * the variable options->visible_devices_variable (for example CUDA_VISIBLE_DEVICES) contains a UUID
 * for each offered GPU, of which each worker gets its own. */
tdm_status cli_devices_prepare(struct cli_daemon_options *options);

#endif
