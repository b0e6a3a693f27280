/* location.h - on which node and on which GPU a storage of tensors lies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_LOCATION_H
#define TDM_COLOCATE_WEIGHTS_LOCATION_H

#include "colocate/device/device.h"
#include "colocate/transfer/rect_copy.h"

/* Identifies the GPU memory that holds a storage. A plain value; it owns nothing. */
struct tdm__location {
    struct tdm__id node; /* ID of the node that has the GPU. */
    /* ID of the GPU: the 128-bit XXH3 hash of the device's UUID text. */
    struct tdm__id gpu;
};

/* Returns the location of the device, which belongs to the node. Two processes compute the same
 * location for the same GPU. */
struct tdm__location tdm__location_of_device(const struct tdm__id *node,
                                             const struct tdm__device *device);
/* Returns how near two places are to each other: an enum tdm__copy_locality. */
uint8_t tdm__location_locality(const struct tdm__location *one, const struct tdm__location *other);

#endif
