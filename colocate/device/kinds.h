/* kinds.h - the kinds of device that a node may have, by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_KINDS_H
#define TDM_COLOCATE_DEVICE_KINDS_H

#include "colocate/device/kind.h"

/* Size of the text of tdm__device_kind_names(), with the NUL. */
enum { TDM__DEVICE_KIND_NAMES_BYTES = 128 };

/* Returns the kind with this index in the table of all kinds, or NULL behind the last one. */
const struct tdm__device_kind *tdm__device_kind_at(uint32_t index);

/* Writes the names of all kinds for an error message, for example "host or cuda". Returns
 * `text`. */
const char *tdm__device_kind_names(char text[TDM__DEVICE_KIND_NAMES_BYTES]);

/* Finds a kind by its name. TDM_E_NOT_FOUND names the kinds that exist. */
tdm_status tdm__device_kind_by_name(const char *name, const struct tdm__device_kind **kind_out);

/* Writes the kind of device and the UUID of GPU number `gpu` of this node, which the daemon put
 * into the environment (TDM__GPU_UUIDS_VARIABLE). The UUID is "" if the node does not have that
 * GPU, and for kinds whose GPUs have no UUIDs. */
tdm_status tdm__device_of_process(uint32_t gpu, const struct tdm__device_kind **kind_out,
                                  char uuid[TDM__UUID_BYTES]);

#endif
