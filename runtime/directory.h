/* directory.h - a private directory for a daemon's sockets and logs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_DIRECTORY_H
#define TDM_RUNTIME_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <tandem/error.h>

/* Where directories are made: $TMPDIR, or /tmp. */
const char *tdm__directory_parent_path(void);
#define TDM__DIRECTORY_NAME_START "tandem-"
/* Makes "tandem-XXXXXX" there, 0700.  Its path must leave room for the names
 * of sockets: TDM_E_LIMIT, with the remedy, where it does not. */
tdm_status tdm__directory_create(char *path, size_t room);
/* Makes that directory, 0700; refuses one that others own or may write (TDM_E_AUTH). */
tdm_status tdm__directory_create_at(const char *path);
/* With all its content; what cannot be removed stays. */
void tdm__directory_remove(const char *path);

/* Says that the directory is in use, for as long as `fd_out` or a duplicate of it is open, in
 * this process or in one forked from it: TDM_E_EXISTS if another process has said so.  What
 * processes are started below the owner get TDM__DIRECTORY_VARIABLE=path in their environment.
 */
tdm_status tdm__directory_lock(const char *path, int *fd_out);
#define TDM__DIRECTORY_VARIABLE "TANDEM_DIRECTORY"
/* Is it in use by a daemon of this user? */
bool tdm__directory_is_locked(const char *path);

/* Kills the processes that were started below the owner of `path`, who is dead, and removes the
 * sockets at which nobody listens any more.  With the lock. */
void tdm__directory_clear_leftovers(const char *path);
/* Finds what tdm__directory_create() made for owners that are all dead, killed together with
 * their supervisors: kills what they left running, and removes the directories. */
void tdm__directory_remove_abandoned(void);

#endif
