/* ref_table.h - references as bytes: entering them into the table of references, and opening them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_REF_TABLE_H
#define TDM_ACTORS_OBJECTS_REF_TABLE_H

#include <tandem/actor.h>

/* Writes the reference so that another process can open it. From then on this process listens
 * for borrowers. */
tdm_status tdm__reference_write(tdm_writer *writer, tdm_ref *ref);
/* Finds or creates this process's reference to the object that the bytes name, and adds a
 * holder. */
tdm_status tdm__reference_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_ref **ref_out);

#endif
