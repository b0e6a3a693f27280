/* functions.h - the library of Lua functions that is loaded into Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_FUNCTIONS_H
#define TDM_REDIS_FUNCTIONS_H

/* Names of the library and its functions. They contain a version, because daemons of two versions
 * may share a server. Change the version with every change of the Lua code. */
#define TDM__REDIS_LIBRARY "tandem_8"
/* Name of the Lua function that reads records. */
#define TDM__REDIS_READ_FUNCTION "tandem_8_read"
/* Name of the Lua function that commits writes. */
#define TDM__REDIS_COMMIT_FUNCTION "tandem_8_commit"
/* Name of the Lua function that renews the lease of a member. */
#define TDM__REDIS_RENEW_FUNCTION "tandem_8_renew"

/* Name of the Lua function that opens a session, in which a writer commits. */
#define TDM__REDIS_SESSION_FUNCTION "tandem_8_session"

/* Number of strings of the Lua library's source text, to be concatenated for FUNCTION LOAD. One
 * string would be longer than compilers must accept. */
enum { TDM__REDIS_LIBRARY_STRINGS = 5 };
/* Source text of the library of Lua functions. */
extern const char *const tdm__redis_functions[TDM__REDIS_LIBRARY_STRINGS];

#endif
