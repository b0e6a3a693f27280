/* image_places.h - where the images of the transfer plan are. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_IMAGE_PLACES_H
#define TDM_COLOCATE_JOB_IMAGE_PLACES_H

#include "colocate/job/gather_groups.h"
#include "colocate/weights/location.h"

#include <tandem/error.h>

/* Where trainer ranks write each image of the transfer plan: on the GPU of the trainer rank that
 * serves it, in one part of its bucket. A zeroed struct has no images. */
struct tdm__image_places {
    struct tdm__location *locations; /* Node and GPU of each image. Owned. */
    uint32_t *bucket_parts; /* Number of each image among those that its server has. Owned. */
};

/* Computes the places. `trainers` has the node and GPU of each trainer rank. On failure the caller
 * calls tdm__image_places_fini(), too. */
tdm_status tdm__image_places_init(const struct tdm__gather_groups *groups,
                                  const struct tdm__location *trainers,
                                  struct tdm__image_places *places_out);
/* Frees the arrays. */
void tdm__image_places_fini(struct tdm__image_places *places);

#endif
