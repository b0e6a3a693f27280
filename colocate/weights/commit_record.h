/* commit_record.h - encodes a version record as the bytes that the store keeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_RECORD_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_RECORD_H

#include "colocate/weights/commit_core.h"

#include <tandem/value.h>

/* Encodes a version record as one packed value. */
tdm_status tdm__version_record_encode(const struct tdm__version_record *record, tdm_writer *writer);

/* Decodes a version record and checks its counts, its enum values, and that its numbers are
 * possible. Epochs and versions must grow, and all members of a committed update must have voted
 * for its hash. Returns TDM_E_PROTOCOL for a malformed record. */
tdm_status tdm__version_record_decode(struct tdm_bytes bytes,
                                      struct tdm__version_record *record_out);

#endif
