/* pins.h - references that stay alive because packed or parsed data contains them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_PINS_H
#define TDM_ACTORS_OBJECTS_PINS_H

#include "runtime/rpc/rpc.h"
#include "runtime/wire/placeholders.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* A list of retained references. A process that passes references on pins them until the
 * receiver has registered with their owners, which is called "settled". A caller pins the
 * references in its arguments until the reply arrives, and the callee replies only after it has
 * settled. A callee pins the references in a reply until the caller reports that it has settled.
 * docs/protocols/references.md specifies the protocol. */
struct tdm__pins {
    tdm_ref **refs;    /* Owned array; each reference in it is retained once. */
    uint32_t count;    /* Number of references in `refs`. */
    uint32_t capacity; /* Number of references that fit into `refs`. */
};

/* Retains `ref` and appends it to the list. */
tdm_status tdm__pins_add(struct tdm__pins *pins, tdm_ref *ref);
/* Releases all references and empties the list. */
void tdm__pins_release(struct tdm__pins *pins);

/* Opens every reference in the document, and the keep-alive references of its actor handles, and
 * adds them to `pins`. On failure the list is empty. */
tdm_status tdm__pins_from_document(tdm_runtime *runtime, const tdm_document *document,
                                   struct tdm__pins *pins);
/* As tdm__pins_from_document(), for packed bytes into which the user may have copied values of
 * other documents. */
tdm_status tdm__pins_from_packed(tdm_runtime *runtime, struct tdm_bytes packed,
                                 struct tdm__pins *pins);

/* Returns true if the owner of each pinned reference has counted this process as a borrower.
 * References whose owner has ended count as settled. */
bool tdm__pins_are_settled(const struct tdm__pins *pins);
/* Drives the loop until all references are settled or `timeout_ms` have passed. */
tdm_status tdm__pins_wait_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                  int64_t timeout_ms);
/* Called once, with the loop's lock, when all pinned references are settled. */
typedef void tdm__pins_settled_fn(void *arg);
/* Calls fn(arg) when all references in `pins` are settled, immediately if they already are.
 * Copies and retains the list until then. On failure `fn` is not called. */
tdm_status tdm__pins_on_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                tdm__pins_settled_fn *fn, void *arg);
/* Calls all callbacks that wait for references to settle, at the end of the runtime. */
void tdm__pins_abandon_settling(tdm_runtime *runtime);

/* ---- packing and unpacking with references ---------------------------------------------- */

/* Packs like tdm_pack_va(), also with the letters R (reference) and h (handle). Adds the packed
 * references to `pins`, including those inside values that v and p copy. */
tdm_status tdm__refs_pack(tdm_runtime *runtime, tdm_writer *writer, const char *format,
                          va_list args, struct tdm__pins *pins);
/* Writes a reference (letter R) or a handle (h). A callback for tdm__fill_placeholders(); its
 * argument is the runtime. */
tdm_status tdm__refs_fill_placeholder(void *runtime, tdm_writer *writer, char letter, void *object);
/* Unpacks like tdm_unpack_va(), also with the letters R (reference) and h (handle). NULL as
 * `runtime` is allowed without these letters. */
tdm_status tdm__refs_unpack(tdm_runtime *runtime, const tdm_value *array, const char *format,
                            va_list args);

/* ---- references in replies -------------------------------------------------------------- */

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

#endif
