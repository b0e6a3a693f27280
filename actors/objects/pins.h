/* pins.h - references that are kept because something that was packed or read contains them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_PINS_H
#define TDM_ACTORS_OBJECTS_PINS_H

#include "runtime/rpc/rpc.h"
#include "runtime/wire/placeholders.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* Who passes references on keeps them until the receiver has registered with their owners (is
 * "settled"): the caller until the call is answered, and the callee answers only when settled;
 * the callee of a reply with references until the caller says so.  docs/protocols/references.md
 * has the whole of it. */
struct tdm__pins {
    tdm_ref **refs; /* owned, and each held once */
    uint32_t count;
    uint32_t room;
};

/* Adds one more hold on `ref`. */
tdm_status tdm__pins_add(struct tdm__pins *pins, tdm_ref *ref);
void tdm__pins_release(struct tdm__pins *pins);

/* Opens every reference in the document (and what keeps the actors of its handles alive), so
 * that they stay while the document does.  Nothing is held on failure. */
tdm_status tdm__pins_from_document(tdm_runtime *runtime, const tdm_document *document,
                                   struct tdm__pins *pins);
/* The same for packed bytes, which may contain what other documents gave. */
tdm_status tdm__pins_from_packed(tdm_runtime *runtime, struct tdm_bytes packed,
                                 struct tdm__pins *pins);

/* Have their owners answered for all of them?  One whose owner is gone is settled, too. */
bool tdm__pins_are_settled(const struct tdm__pins *pins);
/* Drives the loop until they are. */
tdm_status tdm__pins_wait_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                  int64_t timeout_ms);
/* Calls fn(arg) once, when they are: maybe at once.  Keeps holds of its own until then. */
typedef void tdm__pins_settled_fn(void *arg);
tdm_status tdm__pins_on_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                tdm__pins_settled_fn *fn, void *arg);
/* At a process's end: tells all who wait for that, settled or not. */
void tdm__pins_abandon_settling(tdm_runtime *runtime);

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
tdm_status tdm__refs_pack(tdm_runtime *runtime, tdm_writer *writer, const char *format,
                          va_list args, struct tdm__pins *pins);
/* For tdm__fill_placeholders(): writes a reference or a handle; arg is the runtime. */
tdm_status tdm__refs_fill_placeholder(void *runtime, tdm_writer *writer, char letter, void *object);
/* tdm_unpack_va() with the letters R and h. */
tdm_status tdm__refs_unpack(tdm_runtime *runtime, const tdm_value *array, const char *format,
                            va_list args);

/* ---- references in replies -------------------------------------------------------------- */

/* The references in one answer or item, held by the callee while it may have to send that
 * (again), and after that until the caller has settled, or is gone.  Counted. */
struct tdm__passed_refs;
/* Takes `holds` on TDM_OK; NULL for none. */
tdm_status tdm__passed_refs_create(struct tdm__pins *pins, struct tdm__passed_refs **passed_out);
void tdm__passed_refs_retain(struct tdm__passed_refs *passed);  /* NULL is allowed */
void tdm__passed_refs_release(struct tdm__passed_refs *passed); /* NULL is allowed */

/* They go to the caller of `incoming`, with its reply (`item` 0) or an item.
 * TDM_E_VALUE_LOST when they have been let go of: a caller had them, or never asked again. */
tdm_status tdm__reply_pins_create(tdm_runtime *runtime, const struct tdm__incoming_call *incoming,
                                  uint64_t item, struct tdm__passed_refs *passed);
/* The caller tells the callee when it has settled; nothing happens for a reply without any. */
void tdm__reply_pins_acknowledge(tdm_runtime *runtime, struct tdm__conn *conn, uint64_t call_id,
                                 uint64_t item, const tdm_document *document);

#endif
