/* step.c - named steps of a protocol, at which a test may break this very process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/step.h"

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

struct plan {
    char process[64];
    char step[64];
    unsigned long count;
    char action[8];
    char file[256];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct plan plan;
static bool planned;
static const char *self = "driver";
static atomic_ulong passed;

static void read_plan(void)
{
    const char *text = getenv("TANDEM_STEP");
    char count[8];

    if (text == NULL) {
        return;
    }
    planned = sscanf(text, "%63s %63s %7s %7s %255s", plan.process, plan.step, count,
                     plan.action, plan.file) == 5 &&
              (strcmp(plan.action, "kill") == 0 || strcmp(plan.action, "stop") == 0);
    plan.count = planned ? strtoul(count, NULL, 10) : 0;
    if (!planned) {
        tdm__log(TDM__WARN, "step",
                 "TANDEM_STEP=\"%.200s\": wanted PROCESS STEP COUNT kill|stop FILE", text);
    }
}

void tdm__step_as(const char *process)
{
    self = process;
}

static void break_here(void)
{
    int fd = open(plan.file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0) {
        return; /* another one did */
    }
    (void)dprintf(fd, "%s %d\n", self, (int)getpid());
    (void)close(fd);
    (void)kill(getpid(), plan.action[0] == 'k' ? SIGKILL : SIGSTOP);
}

void tdm__step(const char *name)
{
    (void)pthread_once(&once, read_plan);
    if (!planned || strcmp(name, plan.step) != 0 || strcmp(self, plan.process) != 0) {
        return;
    }
    if (atomic_fetch_add(&passed, 1) + 1 == plan.count) {
        break_here();
    }
}
