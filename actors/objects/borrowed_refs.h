/* borrowed_refs.h - the values of references that other processes own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_BORROWED_REFS_H
#define TDM_ACTORS_OBJECTS_BORROWED_REFS_H

#include <tandem/actor.h>

/* Requests the value of a borrowed reference from its owner, once. Does nothing for other
 * references. */
void tdm__reference_fetch(tdm_ref *ref);

#endif
