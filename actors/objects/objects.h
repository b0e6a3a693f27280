/* objects.h - references that other processes know: whose they are, and who holds them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_OBJECTS_H
#define TDM_ACTORS_OBJECTS_OBJECTS_H

#include "runtime/rpc/rpc.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* A process owns the references that it makes.  One that it passes on gets an id and enters
 * the table of its runtime; so does one that it borrows from another process, of which it has
 * at most one hold (`object.hold` … `object.drop`), however many handles it gives its user.
 * All of it hangs on the loop: with its lock. */
struct tdm__objects;

/* Where a process listens for those who borrow from it, in its node's directory: with the id of
 * the process as text.  Who was killed leaves the socket to its daemon. */
#define TDM__OWNER_SOCKET "o-%.16s"

tdm_status tdm__objects_create(tdm_runtime *runtime, struct tdm__objects **objects_out);
/* When all connections are closed: references that the user still has stay readable. */
void tdm__objects_destroy(struct tdm__objects *objects); /* NULL is allowed */

/* Answers a call of the service "object"; false, and nothing done, for any other. */
bool tdm__objects_serve(tdm_runtime *runtime, struct tdm__incoming *incoming);

/* For tdm__rpc_on_stray(), with the runtime: nobody wants the answer any more, and what it
 * lends or holds is given back. */
void tdm__objects_stray(void *runtime, struct tdm__conn *conn, uint64_t call_id, uint64_t item,
                        struct tdm__reply *reply);

/* Writes the reference, so that another process can open it: from here on others may ask. */
tdm_status tdm__reference_write(tdm_writer *writer, tdm_ref *ref);
/* Finds or makes this process's reference to what those bytes name, with one more holder. */
tdm_status tdm__reference_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_ref **ref_out);
/* Its value is wanted here: a borrowed one is asked for. */
void tdm__reference_want(tdm_ref *ref);

/* ---- told by ref.c ---------------------------------------------------------------------- */

struct tdm__shared;
/* The value is there: those who asked for it get it. */
void tdm__shared_done(struct tdm__shared *shared);
/* The last holder has gone. */
void tdm__shared_end(struct tdm__shared *shared);
bool tdm__shared_is_settled(const struct tdm__shared *shared);
bool tdm__shared_is_borrowed(const struct tdm__shared *shared);

/* How many there are, for tests and tools. */
struct tdm__objects_count {
    uint32_t owned;    /* passed on, and still here */
    uint32_t loans;    /* holds that others have on them */
    uint32_t borrowed; /* of others */
    uint32_t kept;     /* replies whose references the caller has not settled yet */
};
void tdm__objects_count(tdm_runtime *runtime, struct tdm__objects_count *count_out);

#endif
