/* private_path.h - whether other users of the machine can change what is at a path. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PRIVATE_PATH_H
#define TDM_RUNTIME_PRIVATE_PATH_H

#include <stdbool.h>

/* Returns true if only this user and root can change what the path leads to: the file or directory
 * and all directories above it belong to one of them, and no group and no other user may write to
 * them. Directories with the sticky bit, such as /tmp, may be writable: nobody else can exchange an
 * entry of this user there. Links are followed first. False if the path leads nowhere. Blocks on
 * the disk. */
bool tdm__path_is_private(const char *path);

#endif
