/* layout.h - which parts of a model's tensors a trainer rank holds, as others learn it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_LAYOUT_H
#define TDM_COLOCATE_WEIGHTS_LAYOUT_H

#include "colocate/weights/manifest.h"

enum { TDM__LAYOUT_SLICES_MAX = 1 << 20 };

/* The slices of one rank.  Their addresses matter to the rank itself only: they do not travel.
 */
struct tdm__layout {
    const struct tdm_slice *slices; /* borrowed, or owned where it was decoded */
    uint32_t slices_count;
};

/* TDM_E_INVAL names the slice and its tensor unless every slice is a non-empty part of its
 * tensor.  A slice of a scalar is flat, or a box without dimensions. */
tdm_status tdm__layout_check(const struct tdm__layout *layout,
                             const struct tdm__manifest *manifest);

/* As one packed value. */
tdm_status tdm__layout_encode(const struct tdm__layout *layout, tdm_writer *writer);
/* Checked in form, not yet against a manifest.  TDM_E_PROTOCOL; release with
 * tdm__layout_fini. */
tdm_status tdm__layout_decode(struct tdm_bytes bytes, struct tdm__layout *layout_out);
void tdm__layout_fini(struct tdm__layout *layout); /* of a decoded one */

#endif
