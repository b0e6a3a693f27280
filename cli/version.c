/* version.c - `tandem version`. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/version.h"
#include "cli/command.h"

#include <stdio.h>

static struct tdm__option options[] = {{NULL, false, NULL}};

/* Runs `tandem version` and returns the exit code. */
static int version_main(const struct tdm__parsed_arguments *args)
{
    (void)args;
    (void)puts("tandem " TDM__VERSION);
    return TDM__EXIT_SUCCESS;
}

const struct tdm__command tdm__command_version = {.name = "version",
                                                  .summary = "print the version",
                                                  .help = "usage: tandem version\n",
                                                  .options = options,
                                                  .run = version_main};
