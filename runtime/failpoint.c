/* failpoint.c - named steps of a protocol, at which a test may break this very process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/failpoint.h"

#include "runtime/clock.h"
#include "runtime/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLANS_MAX = 2 };

struct plan {
    char process[64];
    char step[64];
    unsigned long count;
    char action[8];
    char file[256];
    atomic_ulong passed;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct plan plans[PLANS_MAX];
static int plans_count;
static const char *self = "driver";

static bool failpoint_parse(const char *text, struct plan *plan)
{
    char count[8];

    if (sscanf(text, "%63s %63s %7s %7s %255[^ ;]", plan->process, plan->step, count, plan->action,
               plan->file) != 5 ||
        (strcmp(plan->action, "kill") != 0 && strcmp(plan->action, "stop") != 0)) {
        tdm__log(TDM__WARN, "failpoint",
                 "TANDEM_FAILPOINT=\"%.200s\": wanted PROCESS FAILPOINT COUNT kill|stop FILE",
                 text);
        return false;
    }
    plan->count = strtoul(count, NULL, 10);
    return true;
}

static void failpoints_parse_all(void)
{
    const char *text = getenv("TANDEM_FAILPOINT");

    while (text != NULL && plans_count < PLANS_MAX && failpoint_parse(text, &plans[plans_count])) {
        plans_count++;
        text = strchr(text, ';');
        text = text == NULL ? NULL : text + 1;
    }
}

void tdm__failpoint_set_process(const char *process)
{
    self = process;
}

static void failpoint_trigger(const struct plan *plan)
{
    int fd = open(plan->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0) {
        return; /* another one did */
    }
    (void)dprintf(fd, "%s %d %lld\n", self, (int)getpid(), (long long)tdm__clock_ns());
    (void)close(fd);
    (void)kill(getpid(), plan->action[0] == 'k' ? SIGKILL : SIGSTOP);
}

void tdm__failpoint_hit(const char *name)
{
    (void)pthread_once(&once, failpoints_parse_all);
    for (int i = 0; i < plans_count; i++) {
        struct plan *plan = &plans[i];

        if (strcmp(name, plan->step) == 0 && strcmp(self, plan->process) == 0 &&
            atomic_fetch_add(&plan->passed, 1) + 1 == plan->count) {
            failpoint_trigger(plan);
        }
    }
}
