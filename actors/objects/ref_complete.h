/* ref_complete.h - completes a reference with its value, and pins the references inside of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_COMPLETE_H
#define TDM_ACTORS_OBJECTS_REF_COMPLETE_H

#include "actors/objects/ref.h"

/* Completes the reference, once, and wakes its waiters. Takes ownership of `document`, which may
 * be NULL: the value, or the values that the failure `status` carries. A value becomes a failure if
 * a reference inside the document cannot be opened. */
void tdm__ref_complete(tdm_ref *ref, tdm_status status, const char *detail, tdm_document *document);
/* Returns a copy of the values that a failure carries, for one more reference that fails so. The
 * caller destroys the copy. Returns NULL if `document` is NULL or there is no memory. */
tdm_document *tdm__failure_values_copy(const tdm_document *document);
/* Completes the reference with a large value of this process, which is parsed only when the user
 * asks for it. Takes ownership of `large`. */
void tdm__ref_complete_large(tdm_ref *ref, struct tdm__large *large);

#endif
