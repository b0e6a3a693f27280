/* placeholders.h - packing and unpacking around objects that only the layer above knows. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_PLACEHOLDERS_H
#define TDM_RUNTIME_WIRE_PLACEHOLDERS_H

#include "runtime/wire/value.h"

/* ---- packing ---------------------------------------------------------------------------- */

enum { TDM__PLACEHOLDERS_MAX = 4096 }; /* of both kinds together, in one format */

/* A reference or a handle that is passed on. */
struct tdm__object_placeholder {
    void *object;
    size_t offset;        /* its extension belongs before this byte of what was packed */
    uint32_t refs_before; /* letters r in front of it */
    char letter;          /* R or h */
};

/* All lists are borrowed from the writer, until it is cleared or destroyed. */
struct tdm__placeholders {
    uint32_t count; /* of the letters r */
    void **refs;
    size_t *offsets; /* value i belongs before byte offsets[i] of what was packed */
    uint32_t links_count;
    struct tdm__object_placeholder *links; /* in order */
};

/* tdm_pack_va(), with three more letters, which take a pointer and leave a placeholder: r for one
 * value, not inside ( ) or { }; R for a reference, h for a handle, anywhere.  What is packed is
 * no value until all placeholders are filled. */
tdm_status tdm__pack_with_placeholders(tdm_writer *writer, const char *format, va_list args,
                                       struct tdm__placeholders *placeholders);

/* Writes what belongs in a placeholder of that letter: exactly one value. */
typedef tdm_status tdm__placeholder_fill_fn(void *arg, tdm_writer *writer, char letter,
                                            void *object);

/* Copies `packed`, what tdm__pack_with_placeholders() wrote, with every placeholder filled by fn,
 * in order. Arrays behind a placeholder may lose their alignment; readers then copy them. */
tdm_status tdm__fill_placeholders(tdm_writer *filled, struct tdm_bytes packed,
                                  const struct tdm__placeholders *placeholders,
                                  tdm__placeholder_fill_fn *fn, void *arg);

/* ---- unpacking -------------------------------------------------------------------------- */

struct tdm__unpack_hooks {
    /* Makes the object that a reference (R) or a handle (h) stands for. */
    tdm_status (*open)(void *arg, char letter, struct tdm_bytes bytes, void **object_out);
    /* Undoes open, because a later one failed. */
    void (*drop)(void *arg, char letter, void *object);
    void *arg;
};

/* tdm_unpack_va(), with two more letters: R and h fill a pointer with what the hook opened,
 * and the caller owns it.  Nothing is filled or left open on failure. */
tdm_status tdm__unpack_with_hooks(const tdm_value *array, const char *format, va_list args,
                                  const struct tdm__unpack_hooks *hooks);

#endif
