/* layout.h - which parts of a model's tensors a rank holds, as others learn it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_LAYOUT_H
#define TDM_COLOCATE_WEIGHTS_LAYOUT_H

#include "colocate/memory/region.h"
#include "colocate/weights/manifest.h"

enum { TDM__LAYOUT_SLICES_MAX = 1 << 20 };

/* The slices of one rank.  A trainer's addresses matter to the rank itself only; those of an
 * engine travel as offsets in its weights. */
struct tdm__layout {
    const struct tdm_slice *slices; /* borrowed, or owned where it was decoded */
    uint32_t slices_count;
};

/* TDM_E_INVAL names the slice and its tensor unless every slice is a non-empty part of its
 * tensor.  A slice of a scalar is flat, or a box without dimensions. */
tdm_status tdm__layout_check(const struct tdm__layout *layout,
                             const struct tdm__manifest *manifest);

uint64_t tdm__slice_bytes(const struct tdm__manifest *manifest, const struct tdm_slice *slice);
/* Copies the layout's slices to `slices_out`, with the addresses where their bytes can be read
 * now: those of paused regions in their host copies. */
tdm_status tdm__layout_resolve_addresses(const struct tdm__layout *layout,
                                         const struct tdm__manifest *manifest,
                                         const struct tdm__regions *regions,
                                         struct tdm_slice *slices_out);

/* As one packed value; addresses count from `base`, or are left out where it is NULL. */
tdm_status tdm__layout_encode(const struct tdm__layout *layout, const void *base,
                              tdm_writer *writer);
/* Addresses count from NULL.  Checked in form, not yet against a manifest.  TDM_E_PROTOCOL;
 * release with tdm__layout_fini. */
tdm_status tdm__layout_decode(struct tdm_bytes bytes, struct tdm__layout *layout_out);
void tdm__layout_fini(struct tdm__layout *layout); /* of a decoded one */

#endif
