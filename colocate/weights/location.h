/* location.h - where a storage lies: which node, which GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_LOCATION_H
#define TDM_COLOCATE_WEIGHTS_LOCATION_H

#include "colocate/device/device.h"

struct tdm__location {
    struct tdm__id node;
    struct tdm__id gpu; /* its UUID; of a virtual one, the 128-bit hash of its name */
};

struct tdm__location tdm__location_of_device(const struct tdm__id *node,
                                             const struct tdm__device *device);

#endif
