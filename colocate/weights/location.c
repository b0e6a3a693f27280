/* location.c - on which node and on which GPU a storage of tensors lies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/location.h"

#include <string.h>
#include <xxhash.h>

struct tdm__location tdm__location_of_device(const struct tdm__id *node,
                                             const struct tdm__device *device)
{
    struct tdm__location location = {.node = *node};
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(device->uuid, strlen(device->uuid)));
    memcpy(location.gpu.bytes, canonical.digest, sizeof(location.gpu.bytes));
    return location;
}

uint8_t tdm__location_locality(const struct tdm__location *one, const struct tdm__location *other)
{
    if (!tdm__id_equal(&one->node, &other->node)) {
        return TDM__LOCALITY_OTHER_NODE;
    }
    return tdm__id_equal(&one->gpu, &other->gpu) ? TDM__LOCALITY_SAME_GPU : TDM__LOCALITY_SAME_NODE;
}
