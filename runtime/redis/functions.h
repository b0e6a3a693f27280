/* functions.h - our function library inside Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_FUNCTIONS_H
#define TDM_REDIS_FUNCTIONS_H

/* The names carry a version: daemons of two versions may share a server, each with its own
 * library.  Change the Lua, change the version. */
#define TDM__REDIS_LIBRARY         "tandem_4"
#define TDM__REDIS_READ_FUNCTION   "tandem_4_read"
#define TDM__REDIS_COMMIT_FUNCTION "tandem_4_commit"

/* How long the outcome of a commit is kept for a repeated request; a commit is not repeated
 * once this time is near. */
enum { TDM__REDIS_OUTCOME_KEPT_MS = 60000 };

/* For FUNCTION LOAD, one behind the other: no compiler has to take longer strings. */
enum { TDM__REDIS_LIBRARY_STRINGS = 2 };
extern const char *const tdm__redis_functions[TDM__REDIS_LIBRARY_STRINGS];

#endif
