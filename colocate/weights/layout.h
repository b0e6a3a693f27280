/* layout.h - the slices of a model's tensors that one rank holds, and their message. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_LAYOUT_H
#define TDM_COLOCATE_WEIGHTS_LAYOUT_H

#include "colocate/memory/region.h"
#include "colocate/weights/manifest.h"

/* The largest number of slices in the layout of one rank. */
enum { TDM__LAYOUT_SLICES_MAX = 1 << 20 };

/* The list of tensor slices that one rank holds. The slice addresses of a trainer rank have a
 * meaning in its own process only. The slice addresses of an engine rank travel as byte offsets in
 * its weights region. */
struct tdm__layout {
    /* Slices of the rank, in no particular order. Owned if tdm__layout_decode() made the layout,
     * borrowed otherwise. */
    const struct tdm_slice *slices;
    uint32_t slices_count; /* Number of tensor slices that the rank holds. */
};

/* Checks that every slice of the layout is a non-empty part of its tensor. Returns TDM_E_INVAL with
 * a message that names the slice and its tensor, or TDM_E_LIMIT for too many slices. A slice of a
 * scalar is flat, or it is a box without dimensions. */
tdm_status tdm__layout_check(const struct tdm__layout *layout,
                             const struct tdm__manifest *manifest);

/* Returns the size of the slice in bytes, in the dtype that the slice asks for. Does not include
 * its scales. */
uint64_t tdm__slice_bytes(const struct tdm__manifest *manifest, const struct tdm_slice *slice);
/* Copies the layout's slices to `slices_out`, which has room for slices_count slices. Replaces
 * each address by the address at which the bytes can be read now: the host copy if the region is
 * paused. */
tdm_status tdm__layout_resolve_addresses(const struct tdm__layout *layout,
                                         const struct tdm__manifest *manifest,
                                         const struct tdm__regions *regions,
                                         struct tdm_slice *slices_out);

/* Encodes the layout as one packed value. Addresses are written as byte offsets from `base`; with
 * `base` NULL they are written as 0. */
tdm_status tdm__layout_encode(const struct tdm__layout *layout, const void *base,
                              tdm_writer *writer);
/* Decodes a layout; the addresses of its slices become offsets from NULL. Checks the form only, not
 * the ranges, because those need a manifest. Returns TDM_E_PROTOCOL for malformed bytes. The caller
 * releases the result with tdm__layout_fini(). */
tdm_status tdm__layout_decode(struct tdm_bytes bytes, struct tdm__layout *layout_out);
/* Frees the slices of a layout that tdm__layout_decode() made. */
void tdm__layout_fini(struct tdm__layout *layout);

#endif
