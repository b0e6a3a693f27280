/* functions.h - the library of Lua functions that is loaded into Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_FUNCTIONS_H
#define TDM_REDIS_FUNCTIONS_H

/* Capacity of the name of the library, or of one of its functions, with its NUL. */
enum { TDM__REDIS_NAME_BYTES = 40 };

/* The library of Lua functions. All names contain a hash of the Lua source, since daemons of two
 * builds may share a server: builds with different sources then use different libraries. */
struct tdm__redis_library {
    char name[TDM__REDIS_NAME_BYTES];             /* Name of the library. */
    char read_function[TDM__REDIS_NAME_BYTES];    /* Name of the function that reads records. */
    char commit_function[TDM__REDIS_NAME_BYTES];  /* Name of the function that commits writes. */
    char renew_function[TDM__REDIS_NAME_BYTES];   /* Name of the function that renews a lease. */
    char session_function[TDM__REDIS_NAME_BYTES]; /* Name of the function that opens a session, in
                                                   * which a writer commits. */
    const char *text;                             /* Source text for FUNCTION LOAD (static). */
};

/* Returns the library, whose names are computed at the first call. Any thread may call this. */
const struct tdm__redis_library *tdm__redis_library(void);

#endif
