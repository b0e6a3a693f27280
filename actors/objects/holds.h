/* holds.h - references that are kept because something that was packed or read contains them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_HOLDS_H
#define TDM_ACTORS_OBJECTS_HOLDS_H

#include "runtime/rpc/rpc.h"
#include "runtime/wire/holes.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* Who passes references on keeps them until the receiver has registered with their owners (is
 * "settled"): the caller until the call is answered, and the callee answers only when settled;
 * the callee of a reply with references until the caller says so.  docs/protocols/references.md
 * has the whole of it. */
struct tdm__holds {
    tdm_ref **refs; /* owned, and each held once */
    uint32_t count;
    uint32_t room;
};

/* Adds one more hold on `ref`. */
tdm_status tdm__holds_add(struct tdm__holds *holds, tdm_ref *ref);
void tdm__holds_release(struct tdm__holds *holds);

/* Opens every reference in the document (and what keeps the actors of its handles alive), so
 * that they stay while the document does.  Nothing is held on failure. */
tdm_status tdm__holds_of_document(tdm_runtime *runtime, const tdm_document *document,
                                  struct tdm__holds *holds);
/* The same for packed bytes, which may contain what other documents gave. */
tdm_status tdm__holds_of_packed(tdm_runtime *runtime, struct tdm_bytes packed,
                                struct tdm__holds *holds);

/* Have their owners answered for all of them?  One whose owner is gone is settled, too. */
bool tdm__holds_settled(const struct tdm__holds *holds);
/* Drives the loop until they are. */
tdm_status tdm__holds_settle(tdm_runtime *runtime, const struct tdm__holds *holds,
                             int64_t timeout_ms);
/* Calls fn(arg) once, when they are: maybe at once.  Keeps holds of its own until then. */
typedef void tdm__settled_fn(void *arg);
tdm_status tdm__holds_when_settled(tdm_runtime *runtime, const struct tdm__holds *holds,
                                   tdm__settled_fn *fn, void *arg);
/* At a process's end: tells all who wait for that, settled or not. */
void tdm__holds_give_up(tdm_runtime *runtime);

/* ---- packing and unpacking with references ---------------------------------------------- */

/* Does the format contain one of the letters?  strpbrk() is made for longer texts than these.
 */
static inline bool tdm__format_has(const char *format, const char *letters)
{
    for (; *format != '\0'; format++) {
        for (const char *letter = letters; *letter != '\0'; letter++) {
            if (*format == *letter) {
                return true;
            }
        }
    }
    return false;
}

/* tdm_pack_va() with the letters R and h; what was packed is held in `holds`, values that v and
 * p brought in included. */
tdm_status tdm__links_pack(tdm_runtime *runtime, tdm_writer *writer, const char *format,
                           va_list args, struct tdm__holds *holds);
/* For tdm__fill_holes(): writes a reference or a handle; arg is the runtime. */
tdm_status tdm__link_fill(void *runtime, tdm_writer *writer, char letter, void *object);
/* tdm_unpack_va() with the letters R and h. */
tdm_status tdm__links_unpack(tdm_runtime *runtime, const tdm_value *array, const char *format,
                             va_list args);

/* ---- references in replies -------------------------------------------------------------- */

/* The references in one answer or item, held by the callee while it may have to send that
 * (again), and after that until the caller has settled, or is gone.  Counted. */
struct tdm__passed;
/* Takes `holds` on TDM_OK; NULL for none. */
tdm_status tdm__passed_create(struct tdm__holds *holds, struct tdm__passed **passed_out);
void tdm__passed_retain(struct tdm__passed *passed);  /* NULL is allowed */
void tdm__passed_release(struct tdm__passed *passed); /* NULL is allowed */

/* They go to the caller of `incoming`, with its reply (`item` 0) or an item.
 * TDM_E_VALUE_LOST when they have been let go of: a caller had them, or never asked again. */
tdm_status tdm__reply_keeps(tdm_runtime *runtime, const struct tdm__incoming *incoming,
                            uint64_t item, struct tdm__passed *passed);
/* The caller tells the callee when it has settled; nothing happens for a reply without any. */
void tdm__reply_arrived(tdm_runtime *runtime, struct tdm__conn *conn, uint64_t call_id,
                        uint64_t item, const tdm_document *document);

#endif
