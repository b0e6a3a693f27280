/* image_places.h - where the images of the transfer plan are. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_IMAGE_PLACES_H
#define TDM_COLOCATE_JOB_IMAGE_PLACES_H

#include "colocate/job/gather_groups.h"
#include "colocate/weights/location.h"
#include "runtime/wire/message.h"

#include <tandem/error.h>

/* Where trainer ranks write each image of the transfer plan: in one part of the bucket of the
 * trainer rank that serves it, or in the memory of an engine rank on the same node. A zeroed struct
 * has no images. */
struct tdm__image_places {
    struct tdm__location *locations; /* Node and GPU of each image. Owned. */
    uint32_t *bucket_parts; /* Number of each image among those that its server has. Owned. */
};

/* Computes the places. `trainers` has the node and GPU of each trainer rank, `gpus` the ID of the
 * GPU of each image if engine ranks have them in their memory, and else nothing. TDM_E_PROTOCOL: it
 * has another number of GPUs. On failure the caller calls tdm__image_places_fini(), too. */
tdm_status tdm__image_places_init(const struct tdm__gather_groups *groups,
                                  const struct tdm__location *trainers,
                                  const struct tdm__message_list *gpus,
                                  struct tdm__image_places *places_out);
/* Frees the arrays. */
void tdm__image_places_fini(struct tdm__image_places *places);

#endif
