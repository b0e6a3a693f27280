/* signals.c - keeps SIGPIPE from ending this process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/signals.h"

#include <signal.h>
#include <stddef.h>

void tdm__ignore_sigpipe(void)
{
    struct sigaction action;

    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL) {
        action.sa_handler = SIG_IGN;
        (void)sigaction(SIGPIPE, &action, NULL);
    }
}
