/* commit_record.h - a version record as the bytes that the store keeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_RECORD_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_RECORD_H

#include "colocate/weights/commit_core.h"

#include <tandem/value.h>

/* As one packed value. */
tdm_status tdm__version_record_encode(const struct tdm__version_record *record, tdm_writer *writer);

/* Checks form and sense: counts, known words, and that the numbers can be those of a record
 * (epochs and versions grow; a committed update is the committed version and all its members
 * voted).  TDM_E_PROTOCOL. */
tdm_status tdm__version_record_decode(struct tdm_bytes bytes,
                                      struct tdm__version_record *record_out);

#endif
