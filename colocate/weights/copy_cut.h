/* copy_cut.h - cuts the copies between nodes that are larger than a round of an exchange. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COPY_CUT_H
#define TDM_COLOCATE_WEIGHTS_COPY_CUT_H

#include "colocate/weights/transfer_plan.h"

/* Replaces each copy between two nodes that writes more than `round_bytes` bytes, at least 1, by
 * parts that write at most as many, and which together write the same. A part is larger only if it
 * is one element, one row of FP8 blocks or one row of scales. Copies that differ only in their
 * places in the engine ranks' weights are cut equally. After a failure the plan has only some of
 * its copies, and the caller frees it. */
tdm_status tdm__copy_cut(struct tdm__transfer_plan *transfer_plan, uint64_t round_bytes);

#endif
