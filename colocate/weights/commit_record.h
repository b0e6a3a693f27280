/* commit_record.h - encodes version records for the store, and members for messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_RECORD_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_RECORD_H

#include "colocate/weights/commit_core.h"
#include "runtime/messages/messages.h"

/* Returns the member as messages carry it. */
struct tdm__update_member_message tdm__member_to_message(const struct tdm__member *member);
/* Returns the member that a decoded message carries. */
struct tdm__member tdm__member_from_message(const struct tdm__update_member_message *message);
/* Getter of a message list of members: fills `item_out`, a struct tdm__update_member_message, from
 * the array `members` of struct tdm__member. */
void tdm__member_get_message(const void *members, uint32_t index, void *item_out);

/* Encodes a version record as one packed value. */
tdm_status tdm__version_record_encode(const struct tdm__version_record *record, tdm_writer *writer);

/* Decodes a version record and checks its counts, its enum values, and that its numbers are
 * possible. Epochs and versions must grow, and all members of a committed update must have voted
 * for its hash. Returns TDM_E_PROTOCOL for a malformed record. */
tdm_status tdm__version_record_decode(struct tdm_bytes bytes,
                                      struct tdm__version_record *record_out);

#endif
