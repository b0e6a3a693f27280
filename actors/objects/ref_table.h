/* ref_table.h - references that other processes know: whose they are, and who holds them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_TABLE_H
#define TDM_ACTORS_OBJECTS_REF_TABLE_H

#include "runtime/rpc/rpc.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* A process owns the references that it makes.  One that it passes on gets an id and enters
 * the table of its runtime; so does one that it borrows from another process, of which it has
 * at most one hold (`object.pin` … `object.unpin`), however many handles it gives its user.
 * All of it hangs on the loop: with its lock. */
struct tdm__ref_table;

/* Where a process listens for those who borrow from it, in its node's directory: with the id of
 * the process as text.  Who was killed leaves the socket to its daemon. */
#define TDM__OWNER_SOCKET "o-%.16s"

tdm_status tdm__ref_table_create(tdm_runtime *runtime, struct tdm__ref_table **objects_out);
/* When all connections are closed: references that the user still has stay readable. */
void tdm__ref_table_destroy(struct tdm__ref_table *objects); /* NULL is allowed */

/* Answers a call of the service "object"; false, and nothing done, for any other. */
bool tdm__ref_table_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming);

/* For tdm__rpc_on_late_reply(), with the runtime: nobody wants the answer any more, and what it
 * lends or holds is given back. */
void tdm__ref_table_discard_stray_reply(void *runtime, struct tdm__conn *conn, uint64_t call_id,
                                        uint64_t item, struct tdm__rpc_reply *reply);

/* Writes the reference, so that another process can open it: from here on others may ask. */
tdm_status tdm__reference_write(tdm_writer *writer, tdm_ref *ref);
/* Finds or makes this process's reference to what those bytes name, with one more holder. */
tdm_status tdm__reference_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_ref **ref_out);
/* Its value is wanted here: a borrowed one is asked for. */
void tdm__reference_fetch(tdm_ref *ref);

/* ---- told by ref.c ---------------------------------------------------------------------- */

struct tdm__shared_ref;
/* The value is there: those who asked for it get it. */
void tdm__shared_ref_on_done(struct tdm__shared_ref *shared);
/* The last holder has gone. */
void tdm__shared_ref_on_last_release(struct tdm__shared_ref *shared);
bool tdm__shared_ref_is_settled(const struct tdm__shared_ref *shared);
bool tdm__shared_ref_is_borrowed(const struct tdm__shared_ref *shared);

/* How many there are, for tests and tools. */
struct tdm__ref_table_counts {
    uint32_t owned;         /* passed on, and still here */
    uint32_t borrower_pins; /* holds that others have on them */
    uint32_t borrowed;      /* of others */
    uint32_t reply_pins;    /* replies whose references the caller has not settled yet */
};
void tdm__ref_table_counts(tdm_runtime *runtime, struct tdm__ref_table_counts *count_out);

#endif
