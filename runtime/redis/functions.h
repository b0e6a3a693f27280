/* functions.h - our function library inside Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_FUNCTIONS_H
#define TDM_REDIS_FUNCTIONS_H

/* The names carry a version: daemons of two versions may share a server, each with its own
 * library.  Change the Lua, change the version. */
#define TDM__REDIS_LIBRARY "tandem_3"
#define TDM__REDIS_READ    "tandem_3_read"
#define TDM__REDIS_COMMIT  "tandem_3_commit"

/* How long the outcome of a commit is kept for a repeated request; a commit is not repeated
 * once this time is near. */
enum { TDM__REDIS_OUTCOME_KEPT_MS = 60000 };

/* For FUNCTION LOAD. */
extern const char tdm__redis_functions[];

#endif
