/* directory.h - a daemon's private directory for sockets and logs, its lock and its clean-up. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_DIRECTORY_H
#define TDM_RUNTIME_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <tandem/error.h>

/* Returns the path of the directory in which daemons' private directories are created: $TMPDIR, or
 * "/tmp" if that is unset or empty. The text is borrowed from the environment. */
const char *tdm__directory_parent_path(void);
/* Beginning of the name of every directory that tdm__directory_create() creates. */
#define TDM__DIRECTORY_NAME_START "tandem-"
/* Creates the directory "tandem-XXXXXX" with mode 0700 in tdm__directory_parent_path() and writes
 * its path to `path`, a buffer of `capacity_bytes`.  Returns TDM_E_LIMIT, with the remedy, if the
 * path is too long for sockets inside the directory. */
tdm_status tdm__directory_create(char *path, size_t capacity_bytes);
/* Creates the directory `path` with mode 0700 unless it exists.  Returns TDM_E_AUTH if the
 * existing directory belongs to another user or others may write to it, and TDM_E_LIMIT if the path
 * is too long for sockets inside the directory. */
tdm_status tdm__directory_create_at(const char *path);
/* The same for a directory that has no sockets, whose path may be longer. */
tdm_status tdm__directory_create_private(const char *path);
/* Removes the directory `path` and everything in it. Entries that cannot be removed stay; no error
 * is reported. */
void tdm__directory_remove(const char *path);

/* Locks the directory `path` for a daemon by flock(2) on its file "lock" and stores the descriptor
 * in `fd_out`. The lock lasts until that descriptor and its duplicates, also those in forked
 * processes, are closed. Returns TDM_E_EXISTS if another process holds the lock, and
 * TDM_E_NOT_FOUND if another daemon took the directory for abandoned and removed it. The daemon
 * starts all its descendants with TDM__DIRECTORY_VARIABLE=path in their environment, so that they
 * can be found later. */
tdm_status tdm__directory_lock(const char *path, int *fd_out);
/* Creates a private directory like tdm__directory_create() and locks it like tdm__directory_lock().
 * Tries another name when another daemon takes the new directory for an abandoned one. */
tdm_status tdm__directory_create_locked(char *path, size_t capacity_bytes, int *fd_out);
/* Environment variable that holds the daemon's directory in every process below that daemon. */
#define TDM__DIRECTORY_VARIABLE "TANDEM_DIRECTORY"
/* Returns true if a live process holds the lock of the directory `path` and the lock file belongs
 * to this user. */
bool tdm__directory_is_locked(const char *path);

/* Kills all processes that a dead daemon of the directory `path` has left running, and removes
 * its socket files.  The caller must hold the lock of the directory. */
void tdm__directory_clear_leftovers(const char *path);
/* Finds directories of tdm__directory_create() whose daemon and supervisor were both killed.
 * Kills the processes that they left running and removes the directories. */
void tdm__directory_remove_abandoned(void);

#endif
