/* ref_table.h - references as bytes: entering them into the table of references, and opening them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_TABLE_H
#define TDM_ACTORS_OBJECTS_REF_TABLE_H

#include "runtime/id.h"

#include <tandem/actor.h>

/* Gives the id of the reference, which is the same in all processes. A reference of this process
 * that has none gets a new one. */
tdm_status tdm__reference_id(tdm_ref *ref, struct tdm__id *id_out);
/* Writes the reference so that another process can open it. From then on this process listens
 * for borrowers. */
tdm_status tdm__reference_write(tdm_writer *writer, tdm_ref *ref);
/* Finds or creates this process's reference to the object that the bytes name, and adds a
 * holder. */
tdm_status tdm__reference_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_ref **ref_out);

#endif
