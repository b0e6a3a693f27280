/* spill.h - large values that are moved to a file because shared memory is short. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_SPILL_H
#define TDM_ACTORS_OBJECTS_SPILL_H

#include <tandem/value.h>

/* Writes the bytes to a new file in `directory` and removes its name, so that the space is free
 * again when the descriptor is closed or the process ends. Returns TDM_E_LIMIT if the disk is
 * full. */
tdm_status tdm__spill_write(const char *directory, struct tdm_bytes bytes, int *fd_out);
/* Reads the first `size_bytes` of the file. Returns TDM_E_IO if it is shorter. */
tdm_status tdm__spill_read(int fd, void *data, size_t size_bytes);

#endif
