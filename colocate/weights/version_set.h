/* version_set.h - one step of the commit protocol for several models that are committed together.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_VERSION_SET_H
#define TDM_COLOCATE_WEIGHTS_VERSION_SET_H

#include "colocate/weights/commit_core.h"

/* The largest number of models that are committed together. */
enum { TDM__VERSION_SET_MAX = 16 };

/* Applies `requests[i]` to `records[i]` for each of `count` models: to all records or to none. The
 * requests have one kind, which is one of these:
 *
 *     BEGIN   All updates get the same version number, which is above all numbers that any of the
 *             models has given out. If one record refuses the request, none begins an update.
 *     DECIDE  All updates get the same outcome, whatever is proposed: ABORTED if one of them is
 *             aborted already or cannot be committed, COMMITTED if all can be. While a vote is
 *             missing that may still come, a proposal to commit is refused.
 *
 * Each request may be repeated after a lost reply, as long as the whole set is repeated. Sets
 * `changed_out[i]` to whether `records[i]` needs a write. On failure records may be half changed,
 * so the caller passes copies and discards them; `refused_out` is the index of the model that
 * refused. TDM_E_CONFLICT also means that the updates have different versions or outcomes, so that
 * they were not begun or decided together. */
tdm_status tdm__version_apply_set(struct tdm__version_record *records,
                                  const struct tdm__version_request *requests, uint32_t count,
                                  bool *changed_out, uint32_t *refused_out);

#endif
