/* image_places.c - where the images of the transfer plan are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/image_places.h"

#include "runtime/error.h"

#include <stdlib.h>

tdm_status tdm__image_places_init(const struct tdm__gather_groups *groups,
                                  const struct tdm__location *trainers,
                                  const struct tdm__message_list *gpus,
                                  struct tdm__image_places *places_out)
{
    uint32_t count = tdm__gather_groups_images(groups);

    *places_out = (struct tdm__image_places){
        .locations = calloc((size_t)count + 1, sizeof(*places_out->locations)),
        .bucket_parts = calloc((size_t)count + 1, sizeof(*places_out->bucket_parts))};
    if (places_out->locations == NULL || places_out->bucket_parts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the places of %u images", count);
    }
    if (gpus->count != 0 && gpus->count != count) {
        return tdm__fail(TDM_E_PROTOCOL, "GPUs of %u engine ranks for %u images", gpus->count,
                         count);
    }
    for (uint32_t image = 0; image < count; image++) {
        uint32_t server = tdm__gather_groups_server(groups, image);

        places_out->locations[image] = trainers[server];
        if (gpus->count > 0) {
            tdm__message_list_read(gpus, image, &places_out->locations[image].gpu,
                                   sizeof(places_out->locations[image].gpu));
        }
        places_out->bucket_parts[image] = image - tdm__gather_groups_first_image(groups, server);
    }
    return TDM_OK;
}

void tdm__image_places_fini(struct tdm__image_places *places)
{
    free(places->locations);
    free(places->bucket_parts);
    *places = (struct tdm__image_places){.locations = NULL};
}
