/* shared_ref.h - the entries of the table of references that other processes know. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_SHARED_REF_H
#define TDM_ACTORS_OBJECTS_SHARED_REF_H

#include "actors/objects/ref_records.h"

#include <stdbool.h>

/* Returns the entry of the object with this id, or NULL. */
struct tdm__shared_ref *tdm__shared_ref_find(struct tdm__ref_table *objects,
                                             const struct tdm__id *id);
/* Creates the entry of `ref` under `id`; the reference owns it. Grows the table if necessary. */
tdm_status tdm__shared_ref_create(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  tdm_ref *ref, struct tdm__shared_ref **shared_out);
/* Returns true if the reference is owned here, or if its owner has counted this process as a
 * borrower or has ended. */
bool tdm__shared_ref_is_settled(const struct tdm__shared_ref *shared);
/* Returns true if another process owns the reference. */
bool tdm__shared_ref_is_borrowed(const struct tdm__shared_ref *shared);
/* Returns the id of the node whose process owns the reference; NULL if this process owns it. */
const struct tdm__id *tdm__shared_ref_owner_node(const struct tdm__shared_ref *shared);
/* Removes the entry from the table and its reference; the caller frees it. */
void tdm__shared_ref_remove(struct tdm__shared_ref *shared);

#endif
