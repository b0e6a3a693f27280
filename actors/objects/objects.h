/* objects.h - the objects of a runtime: references and large values, and calls about them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_OBJECTS_H
#define TDM_ACTORS_OBJECTS_OBJECTS_H

#include "actors/objects/object_callbacks.h"
#include "actors/process/runtime.h"

#include <stdbool.h>

/* Creates the object memory and the reference table of a runtime, and stores them there. `client`
 * is constant; it is what the client side does for references. */
tdm_status tdm__objects_create(tdm_runtime *runtime, const struct tdm__object_callbacks *client);
/* Frees the table and the memory, after all connections have closed. References and values that the
 * user still holds stay readable. The runtime may lack both. */
void tdm__objects_destroy(tdm_runtime *runtime);

/* Replies to a call of the service "object". Returns false and does nothing for any other call. */
bool tdm__objects_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming);

/* Releases what a reply that arrived too late exports or pins, since no caller waits for it. A
 * callback for tdm__rpc_on_late_reply() with the runtime as argument. */
void tdm__objects_discard_stray_reply(void *runtime, struct tdm__conn *conn, uint64_t call_id,
                                      uint64_t item, struct tdm__rpc_reply *reply);

/* Numbers of entries in the reference table, for tests and tools. */
struct tdm__ref_table_counts {
    /* References to objects that this process owns and that other processes know. */
    uint32_t owned;
    uint32_t borrower_pins; /* Pins of other processes on references of this one. */
    uint32_t borrowed;      /* References to objects that other processes own. */
    uint32_t reply_pins;    /* Replies and items whose references the caller has not settled yet. */
};
/* Counts the entries of the runtime's reference table. */
void tdm__ref_table_counts(tdm_runtime *runtime, struct tdm__ref_table_counts *count_out);

#endif
