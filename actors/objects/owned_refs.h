/* owned_refs.h - the owner's side of references: borrowers, their pins, and replies with values. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_OWNED_REFS_H
#define TDM_ACTORS_OBJECTS_OWNED_REFS_H

#include "actors/objects/ref_records.h"

#include <stdbool.h>

/* Format of the name of the socket at which a process listens for borrowers, in its node's
 * directory; the argument is the process id as text. The daemon removes the socket of a process
 * that was killed. */
#define TDM__OWNER_SOCKET "o-%.16s"

/* Starts to listen for borrowers, once, and fills the table's address. */
tdm_status tdm__ref_table_listen(struct tdm__ref_table *objects);
/* Returns true if the value of a completed reference is in a segment of this process. A large value
 * that another process packed is copied into one on the first request. Returns false if there is no
 * memory for that, or the value is small. */
bool tdm__ref_ensure_segment(tdm_ref *ref);
/* Replies with the value, or with its failure, to all calls that wait for it. */
void tdm__value_waiters_reply(struct tdm__shared_ref *shared);
/* Replies with TDM_E_VALUE_LOST and the text `why` to all calls that wait for the value. */
void tdm__value_waiters_fail(struct tdm__shared_ref *shared, const char *why);
/* Releases all pins of all borrowers, at the end of the runtime. */
void tdm__borrowers_destroy(struct tdm__ref_table *objects);
/* Holds a reference of this process until the runtime stops. Does nothing from the second time
 * on. */
void tdm__owned_ref_keep(struct tdm__shared_ref *shared);
/* Replies to "object.pin", "object.unpin", "object.keep", "object.get", "object.fetch" and
 * "object.sibling". Returns false and does nothing for any other method. */
bool tdm__owned_refs_serve(struct tdm__ref_table *objects, struct tdm__incoming_call *incoming);

#endif
