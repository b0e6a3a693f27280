/* placeholders.h - packs and unpacks formats with references and actor handles. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_PLACEHOLDERS_H
#define TDM_RUNTIME_WIRE_PLACEHOLDERS_H

#include "runtime/wire/value.h"

#include <stdbool.h>

/* ---- packing ---------------------------------------------------------------------------- */

/* Writes the one value that stands for an object: for the letter R or h a reference or a handle as
 * itself, for the letter r the value of a reference. */
typedef tdm_status tdm__object_write_fn(void *arg, tdm_writer *writer, char letter, void *object);

/* Packs like tdm_pack_va(), with three more letters: R for a reference, h for an actor handle, and
 * & for a list of these.  write(arg, …) writes each of them where it stands.  TDM_E_INVAL if the
 * format or a list has the letter r. */
tdm_status tdm__pack_with_objects(tdm_writer *writer, const char *format, va_list args,
                                  tdm__object_write_fn *write, void *arg);
/* Returns true if the format or a list among its arguments has the letter r. */
bool tdm__format_awaits_values(const char *format, va_list args);

/* Largest number of references and handles in one format. */
enum { TDM__PLACEHOLDERS_MAX = 4096 };

/* Placeholder of a reference (letter R) or an actor handle (letter h) that is passed on as
 * itself. */
struct tdm__object_placeholder {
    void *object; /* Reference or actor handle for which the place is held; owned by the caller. */
    /* Position in the packed bytes at which the object's extension must be inserted. */
    size_t offset;
    uint32_t refs_before; /* Number of placeholders of the letter r in front of this placeholder. */
    char letter;          /* Letter of the format: R or h. */
};

/* All placeholders of one packed format.  The arrays are borrowed from the writer until it is
 * cleared or destroyed. */
struct tdm__placeholders {
    uint32_t count; /* Number of references whose values are to be inserted (letter r). */
    void **refs;    /* References whose values are to be inserted, in order; owned by the caller. */
    /* Position in the packed bytes at which the value of refs[i] must be inserted. */
    size_t *offsets;
    /* Number of references and handles that are passed on (letters R and h). */
    uint32_t links_count;
    /* Placeholders of the references and handles that are passed on, in order. */
    struct tdm__object_placeholder *links;
};

/* Packs like tdm_pack_va(), with three more letters, each of which takes a pointer and leaves a
 * placeholder: r for the value of a reference (not inside of ( ) or { }), R for the reference
 * itself, and h for an actor handle.  The packed bytes are a valid value only when all
 * placeholders have been filled. */
tdm_status tdm__pack_with_placeholders(tdm_writer *writer, const char *format, va_list args,
                                       struct tdm__placeholders *placeholders);

/* Copies the bytes of tdm__pack_with_placeholders() to `filled` and calls write(arg, …) for the
 * object of each placeholder, in order.  Arrays behind a placeholder may lose their alignment;
 * readers then copy them. */
tdm_status tdm__fill_placeholders(tdm_writer *filled, struct tdm_bytes packed,
                                  const struct tdm__placeholders *placeholders,
                                  tdm__object_write_fn *write, void *arg);

/* ---- unpacking -------------------------------------------------------------------------- */

/* Functions by which the layer above creates objects from references and handles. */
struct tdm__unpack_hooks {
    /* Creates the object for the bytes of a reference (letter R) or of an actor handle (h). */
    tdm_status (*open)(void *arg, char letter, struct tdm_bytes bytes, void **object_out);
    /* Destroys an object that open() has created, because unpacking has failed later. */
    void (*drop)(void *arg, char letter, void *object);
    void *arg; /* First argument of open() and drop(). */
};

/* Unpacks like tdm_unpack_va(), with two more letters: R and h store the object that the hook has
 * opened, and the caller owns it.  On failure nothing is stored and all opened objects are
 * dropped. */
tdm_status tdm__unpack_with_hooks(const tdm_value *array, const char *format, va_list args,
                                  const struct tdm__unpack_hooks *hooks);

#endif
