/* devices.h - which GPUs a daemon offers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_DEVICES_H
#define TDM_CLI_DEVICES_H

#include "cli/daemon_options.h"

#include <tandem/error.h>

/* Looks at the devices of kind options->device and fills in how many GPUs of how much memory
 * the node offers, where the options do not say.  Of real ones fewer may exist than are
 * offered: GPU i is then the real one number i % count, and their memories must fit together.
 *
 * Workers learn it by the environment: TANDEM_DEVICE names the kind, CUDA_VISIBLE_DEVICES
 * lists a UUID for each GPU, of which each worker gets its own. */
tdm_status cli_devices_prepare(struct cli_daemon_options *options);

#endif
