/* named_layout_slices.h - the slices of the model that a rank with a named layout has or needs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_NAMED_LAYOUT_SLICES_H
#define TDM_COLOCATE_JOB_NAMED_LAYOUT_SLICES_H

#include "colocate/job/named_layout.h"

/* Returns the model's tensors as trainers have them and the slices that this rank sends. Of
 * slices that several ranks have, each rank sends some. `weights` is the address of the region
 * "weights". The results belong to `named_layout`. */
tdm_status tdm__named_layout_build_trainer(struct tdm__named_layout *named_layout,
                                           const void *weights,
                                           const struct tdm_tensor_info **tensors_out,
                                           uint32_t *tensors_count_out,
                                           struct tdm__layout *layout_out);
/* Returns the slices of the trainers' tensors that this engine rank needs. TDM_E_INVAL names a
 * tensor that is not in the manifest or has another shape there. The result belongs to
 * `named_layout`. */
tdm_status tdm__named_layout_build_engine(struct tdm__named_layout *named_layout,
                                          const void *weights, const struct tdm__manifest *manifest,
                                          struct tdm__layout *layout_out);

#endif
