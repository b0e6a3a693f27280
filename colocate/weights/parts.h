/* parts.h - the parts of tensors that an engine rank keeps: what is where, and what has come.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_PARTS_H
#define TDM_COLOCATE_WEIGHTS_PARTS_H

#include "colocate/weights/handle.h"
#include "colocate/weights/journal.h"
#include "colocate/weights/receiver.h"

struct tdm__parts;

struct tdm__parts_options {
    const struct tdm__manifest *manifest; /* borrowed */
    const struct tdm__layout *layout;     /* of this rank */
    const void *base;                     /* where the addresses of its slices count from */
    uint64_t image_bytes;
};

/* TDM_E_INVAL names the tensor whose slice lies outside the image, or on another one. */
tdm_status tdm__parts_create(const struct tdm__parts_options *options,
                             struct tdm__parts **parts_out);
void tdm__parts_destroy(struct tdm__parts *parts); /* NULL is allowed */

/* A new update: nothing has come. */
void tdm__parts_begin(struct tdm__parts *parts);
/* A new update, maybe of the same bytes: what has come counts, as struct tdm__bookkeeper has
 * it.
 */
void tdm__parts_go_on(struct tdm__parts *parts);
/* `is_lent`: others write them where they belong. */
struct tdm__journal tdm__parts_journal(const struct tdm__parts *parts, bool is_lent);

struct tdm__parts_stage {
    struct tdm__device *device;         /* runs what is to be done */
    const struct tdm__handles *handles; /* checked against place and manifest */
    const char *source;                 /* their storage, mapped; NULL: they are in the image */
    char *image;
    enum tdm__verify verify;
};

/* Puts the parts of one bucket in their places, with the first one also zeros where the layout
 * has nothing; and compares sums.  TDM_E_CHECKSUM names the tensor: nothing of this update
 * counts any more.  TDM_E_STATE unless buckets come one after the other. */
tdm_status tdm__parts_stage(struct tdm__parts *parts, const struct tdm__parts_stage *stage);

/* TDM_E_STATE names the first tensor of which not every byte has come.  Settled from then on.
 */
tdm_status tdm__parts_complete(struct tdm__parts *parts);

#endif
