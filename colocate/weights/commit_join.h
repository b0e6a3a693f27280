/* commit_join.h - adds a process to the members of the committed version. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_JOIN_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_JOIN_H

#include "colocate/weights/commit_core.h"

/* Applies a JOIN request: adds a member that has copied the committed version from a peer. The
 * member counts as flipped, so the next update must include it or name it dead. Sets `changed` to
 * true if the record needs a write. On failure the record may be half changed. */
tdm_status tdm__version_apply_join(struct tdm__version_record *record,
                                   const struct tdm__version_request *request, bool *changed);

#endif
