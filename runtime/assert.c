/* assert.c - reports a failed assertion and aborts the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void tdm__assert_failed(const char *expression, const char *file, int line)
{
    (void)fprintf(stderr, "tandem: pid %d: assertion failed: %s at %s:%d\n", (int)getpid(),
                  expression, file, line);
    abort();
}
