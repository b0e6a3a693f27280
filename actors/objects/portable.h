/* portable.h - references and handles as bytes that programs pass on by themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_PORTABLE_H
#define TDM_ACTORS_OBJECTS_PORTABLE_H

#include <tandem/actor.h>

/* Fills the portable form of a reference or handle; `object` is that reference or handle as one
 * packed value, borrowed. */
tdm_status tdm__portable_write(struct tdm_bytes object, struct tdm_portable *portable_out);
/* Parses the portable form of an object of the kind `kind`, TDM_REFERENCE or TDM_HANDLE. The caller
 * destroys `*document_out`, from which `*object_out`, the contents of the packed reference or
 * handle, is borrowed. Returns TDM_E_PROTOCOL for bytes that are no portable form, and TDM_E_TYPE
 * for one of the other kind. */
tdm_status tdm__portable_read(struct tdm_bytes bytes, enum tdm_value_kind kind,
                              tdm_document **document_out, struct tdm_bytes *object_out);
/* Lets the owner keep the reference until the owner's process ends, because nobody counts who has
 * its portable form. The reference has been packed before. Does nothing if its owner has ended.
 * Needs the loop's lock. */
void tdm__reference_keep(tdm_ref *ref);

#endif
