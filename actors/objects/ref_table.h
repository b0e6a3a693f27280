/* ref_table.h - references that other processes know: whose they are, and who holds them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_TABLE_H
#define TDM_ACTORS_OBJECTS_REF_TABLE_H

#include "runtime/rpc/rpc.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* The table of references that other processes know. A process owns the references that it
 * creates. A reference that it passes on gets an id and enters the table of its runtime. A
 * reference that it borrows from another process enters the table, too; the owner counts at most
 * one pin for it ("object.pin" to "object.unpin"), however many handles the user has. Guarded by
 * the loop's lock. */
struct tdm__ref_table;

/* Format of the name of the socket at which a process listens for borrowers, in its node's
 * directory; the argument is the process id as text. The daemon removes the socket of a process
 * that was killed. */
#define TDM__OWNER_SOCKET "o-%.16s"

/* Creates the reference table of a runtime. */
tdm_status tdm__ref_table_create(tdm_runtime *runtime, struct tdm__ref_table **objects_out);
/* Frees the table after all connections have closed. References that the user still holds stay
 * readable. NULL is allowed. */
void tdm__ref_table_destroy(struct tdm__ref_table *objects); /* NULL is allowed */

/* Replies to a call of the service "object". Returns false and does nothing for any other call. */
bool tdm__ref_table_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming);

/* Releases what a reply that arrived too late exports or pins, since no caller waits for it. A
 * callback for tdm__rpc_on_late_reply() with the runtime as argument. */
void tdm__ref_table_discard_stray_reply(void *runtime, struct tdm__conn *conn, uint64_t call_id,
                                        uint64_t item, struct tdm__rpc_reply *reply);

/* Writes the reference so that another process can open it. From then on this process listens
 * for borrowers. */
tdm_status tdm__reference_write(tdm_writer *writer, tdm_ref *ref);
/* Finds or creates this process's reference to the object that the bytes name, and adds a
 * holder. */
tdm_status tdm__reference_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_ref **ref_out);
/* Requests the value of a borrowed reference from its owner, once. Does nothing for other
 * references. */
void tdm__reference_fetch(tdm_ref *ref);

/* ---- called by ref.c -------------------------------------------------------------------- */

/* A reference's entry in the table. */
struct tdm__shared_ref;
/* Sends the value to all processes that wait for it. Called when the reference completes. */
void tdm__shared_ref_on_done(struct tdm__shared_ref *shared);
/* Removes the entry from the table and frees it. Called when the last holder releases the
 * reference. */
void tdm__shared_ref_on_last_release(struct tdm__shared_ref *shared);
/* Returns true if the reference is owned here, or if its owner has counted this process as a
 * borrower or has ended. */
bool tdm__shared_ref_is_settled(const struct tdm__shared_ref *shared);
/* Returns true if another process owns the reference. */
bool tdm__shared_ref_is_borrowed(const struct tdm__shared_ref *shared);

/* Numbers of entries in the reference table, for tests and tools. */
struct tdm__ref_table_counts {
    uint32_t owned;         /* References of this process that were passed on and still exist. */
    uint32_t borrower_pins; /* Pins of other processes on references of this one. */
    uint32_t borrowed;      /* References of other processes. */
    uint32_t reply_pins;    /* Replies and items whose references the caller has not settled yet. */
};
/* Counts the entries of the runtime's reference table. */
void tdm__ref_table_counts(tdm_runtime *runtime, struct tdm__ref_table_counts *count_out);

#endif
