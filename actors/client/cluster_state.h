/* cluster_state.h - the records behind the public lists of what exists in the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CLUSTER_STATE_H
#define TDM_ACTORS_CLIENT_CLUSTER_STATE_H

#include <stdint.h>
#include <tandem/value.h>

/* Returns the record from which element `index` of a list was filled: a map that may have entries
 * without a member in the public struct. `list` is what tdm_list_actors() or a similar function
 * returned; the record is borrowed from it. NULL if the list is shorter. */
const tdm_value *tdm__list_record(const void *list, uint32_t index);
/* Returns the number of nodes that did not reply with their parts of a list. `list` is what
 * tdm_list_placement_groups() or a similar function returned. */
uint32_t tdm__list_missing_nodes(const void *list);

#endif
