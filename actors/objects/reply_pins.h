/* reply_pins.h - references in replies, pinned by the callee until the caller has settled. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REPLY_PINS_H
#define TDM_ACTORS_OBJECTS_REPLY_PINS_H

#include "actors/objects/ref.h"
#include "actors/objects/ref_records.h"

/* The references in one reply or stream item. The callee pins them while it may have to send the
 * reply again, and then until the caller has settled or has ended. Reference counted. */
struct tdm__passed_refs;
/* Moves `pins` into a new counted object with one owner, or sets `*passed_out` to NULL if `pins`
 * is empty. */
tdm_status tdm__passed_refs_create(struct tdm__pins *pins, struct tdm__passed_refs **passed_out);
/* Adds an owner. NULL is allowed. */
void tdm__passed_refs_retain(struct tdm__passed_refs *passed);
/* Removes an owner; the last one releases the pinned references. NULL is allowed. */
void tdm__passed_refs_release(struct tdm__passed_refs *passed);
/* Registers that the references leave for the caller of `incoming`, in its reply (`item` 0) or
 * in a stream item. Returns TDM_E_VALUE_LOST if they have been released, because the caller
 * acknowledged them or did not reconnect in time. */
tdm_status tdm__reply_pins_create(tdm_runtime *runtime, const struct tdm__incoming_call *incoming,
                                  uint64_t item, struct tdm__passed_refs *passed);
/* Tells the callee at the other end of `conn` when this process has settled the references in a
 * reply or item. Does nothing if the document contains none. */
void tdm__reply_pins_acknowledge(tdm_runtime *runtime, struct tdm__conn *conn, uint64_t call_id,
                                 uint64_t item, const tdm_document *document);
/* Replies to "object.settled": releases the references of the reply or item that the caller
 * names. */
void tdm__reply_pins_serve_settled(struct tdm__ref_table *objects,
                                   struct tdm__incoming_call *incoming);
/* Releases all references in replies, at the end of the runtime. */
void tdm__reply_pins_destroy(struct tdm__ref_table *objects);

#endif
