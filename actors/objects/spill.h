/* spill.h - a value that lies in a file because memory was short. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_SPILL_H
#define TDM_ACTORS_OBJECTS_SPILL_H

#include <tandem/value.h>

/* Writes it to a file in `directory` that has no name any more: its space is free again when
 * the descriptor is closed, also by the process's end.  TDM_E_LIMIT where the disk is full. */
tdm_status tdm__spill_write(const char *directory, struct tdm_bytes bytes, int *fd_out);
/* All of it; TDM_E_IO. */
tdm_status tdm__spill_read(int fd, void *data, size_t size_bytes);

#endif
