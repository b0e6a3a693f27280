/* pins.h - references that stay alive because packed or parsed data contains them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_PINS_H
#define TDM_ACTORS_OBJECTS_PINS_H

#include "actors/objects/ref.h"
#include "runtime/wire/placeholders.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* Opens every reference in the document, and the keep-alive references of its actor handles, and
 * adds them to `pins`. On failure the list is empty. */
tdm_status tdm__pins_from_document(tdm_runtime *runtime, const tdm_document *document,
                                   struct tdm__pins *pins);
/* As tdm__pins_from_document(), for packed bytes into which the user may have copied values of
 * other documents. */
tdm_status tdm__pins_from_packed(tdm_runtime *runtime, struct tdm_bytes packed,
                                 struct tdm__pins *pins);

/* ---- packing and unpacking with references ---------------------------------------------- */

/* Packs like tdm_pack_va(), also with the letters R (reference) and h (handle). Adds the packed
 * references to `pins`, including those inside values that v and p copy. */
tdm_status tdm__refs_pack(tdm_runtime *runtime, tdm_writer *writer, const char *format,
                          va_list args, struct tdm__pins *pins);
/* Writes a reference (letter R) or a handle (h). A tdm__object_write_fn, whose argument is the
 * runtime. */
tdm_status tdm__refs_write_object(void *runtime, tdm_writer *writer, char letter, void *object);
/* Unpacks like tdm_unpack_va(), also with the letters R (reference) and h (handle). NULL as
 * `runtime` is allowed without these letters. */
tdm_status tdm__refs_unpack(tdm_runtime *runtime, const tdm_value *array, const char *format,
                            va_list args);

#endif
