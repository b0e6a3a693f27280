/* ref_owners.h - the processes that own references borrowed here, and the pins sent to them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_OWNERS_H
#define TDM_ACTORS_OBJECTS_REF_OWNERS_H

#include "actors/objects/ref_records.h"

#include <stdbool.h>

/* Creates a reference to an object of another process, connects to that owner and sends the pin.
 * A failure to connect makes the reference fail with TDM_E_OWNER_DIED. */
tdm_status tdm__borrowed_ref_open(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  const struct ref_owner_address *address, tdm_ref **ref_out);
/* Removes a borrowed entry from its owner and sends the unpin. */
void tdm__borrowed_ref_release(struct tdm__shared_ref *shared);
/* Frees all owners, at the end of the runtime. */
void tdm__owners_destroy(struct tdm__ref_table *objects);

/* ---- for borrowed_refs.c ------------------------------------------------------------------- */

/* Finds or creates the connected owner with this address. */
tdm_status tdm__ref_owner_get(struct tdm__ref_table *objects,
                              const struct ref_owner_address *address,
                              struct ref_owner **owner_out);
/* Frees the owner if its connection has closed, no question about its end is open, and no
 * reference is borrowed from it. */
void tdm__ref_owner_free_if_unused(struct ref_owner *owner);
/* Sends a request about one reference to its owner. If `fn` is not NULL, it gets the reference
 * as its argument, with a holder that it must release. */
tdm_status tdm__borrowed_ref_send_request(struct tdm__shared_ref *shared, const char *method,
                                          tdm__rpc_reply_fn *fn);
/* Returns true if the reply is TDM_E_CLOSED because the connection to the owner has closed. The
 * end of the owner then fails the reference. */
bool tdm__borrowed_ref_reply_is_closed(const tdm_ref *ref, const struct tdm__rpc_reply *reply);
/* Completes a borrowed reference with a failure, unless it is complete. */
void tdm__borrowed_ref_fail(tdm_ref *ref, tdm_status status, const char *detail);

#endif
