/* redis_functions.c - `tandem redis-functions`: prints the library of Lua functions for Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/functions.h"

#include "cli/command.h"

#include <stdio.h>

static struct tdm__option options[] = {{NULL, false, NULL}};

/* Runs `tandem redis-functions`. */
static int redis_functions_main(const struct tdm__parsed_arguments *args)
{
    (void)args;
    (void)fputs(tdm__redis_library()->text, stdout);
    return TDM__EXIT_SUCCESS;
}

const struct tdm__command tdm__command_redis_functions = {
    .name = "redis-functions",
    .summary = "print the functions that an administrator loads into Redis",
    .help = "usage: tandem redis-functions | redis-cli -x FUNCTION LOAD\n\n"
            "Prints the library of Lua functions that this version of Tandem calls in Redis.\n"
            "A daemon loads it by itself if its Redis user may run FUNCTION LOAD; for a user\n"
            "with fewer rights an administrator loads it once. The name of the library contains\n"
            "a hash of its text. A version of Tandem with other functions therefore has a\n"
            "library of another name, which can be loaded beside this one.\n",
    .options = options,
    .run = redis_functions_main};
