/* place.c - where a storage lies: which node, which GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/place.h"

#include <string.h>
#include <xxhash.h>

struct tdm__place tdm__place_of(const struct tdm__id *node, const struct tdm__device *device)
{
    struct tdm__place place = {.node = *node};
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(device->uuid, strlen(device->uuid)));
    memcpy(place.gpu.bytes, canonical.digest, sizeof(place.gpu.bytes));
    return place;
}
