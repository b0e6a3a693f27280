/* directory.h - a private directory for a daemon's sockets and logs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_DIRECTORY_H
#define TDM_RUNTIME_DIRECTORY_H

#include <stddef.h>
#include <tandem/error.h>

/* Makes "tandem-XXXXXX" under $TMPDIR (or /tmp), 0700.  Its path must leave room for the names of
 * sockets: TDM_E_LIMIT, with the remedy, where it does not. */
tdm_status tdm__directory_make(char *path, size_t room);
/* Makes that directory, 0700; refuses one that others own or may write (TDM_E_AUTH). */
tdm_status tdm__directory_use(const char *path);
/* With all its content; what cannot be removed stays. */
void tdm__directory_remove(const char *path);

#endif
