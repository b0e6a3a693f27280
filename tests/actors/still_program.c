/* still_program.c - a worker that says nothing and stays, or ends at once with STILL=status. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    const char *status = getenv("STILL");

    if (status != NULL) {
        return (int)strtol(status, NULL, 10);
    }
    for (;;) {
        (void)pause();
    }
}
