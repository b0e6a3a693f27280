/* host.h - the kind of device "host": virtual GPUs in host memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_HOST_HOST_H
#define TDM_COLOCATE_DEVICE_HOST_HOST_H

#include "colocate/device/kind.h"

/* The kind "host". Its devices are the reference implementation of struct tdm__device_ops. Their
 * blocks come from the node's broker. Their number is not limited, and open() ignores the UUID. */
extern const struct tdm__device_kind tdm__device_host_kind;

#endif
