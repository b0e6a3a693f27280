/* devices.h - finds the GPUs that a daemon offers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_DEVICES_H
#define TDM_CLI_DEVICES_H

#include "cli/daemon_options.h"

#include <tandem/error.h>

/* Examines the devices of the kind options->device. Fills in the number of GPUs and their memory if
 * the options do not say them. More GPUs may be offered than exist: GPU i is then the real GPU i %
 * count, and the GPUs that share a real one must fit into its memory.
 *
 * Workers receive the result in the environment: TANDEM_DEVICE names the kind. For GPUs with UUIDs,
 * TANDEM_GPU_UUIDS has the UUID of the real GPU of each offered GPU, and the variable
 * options->visible_devices_variable (for example CUDA_VISIBLE_DEVICES) has each real GPU once; each
 * worker gets only its own in the latter. */
tdm_status cli_devices_prepare(struct cli_daemon_options *options);

#endif
