/* supervisor_watch.c - notices that the supervisor of this daemon is stopped, and continues it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/supervisor_watch.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/log.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TICK_MS = 1000 }; /* Time between two looks at the supervisor, in milliseconds. */

/* Definition of the watch. Its creator owns it. */
struct tdm__supervisor_watch {
    struct tdm__timer *timer; /* Timer of the next look (owned). */
    pid_t supervisor;         /* Process ID of the supervisor. */
    bool was_stopped;         /* Whether the supervisor was stopped at the last look. */
};

/* Returns whether a process is stopped by a signal. */
static bool is_stopped(pid_t pid)
{
    char path[48];
    char text[512];
    const char *after_name;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (!tdm__file_read_text(path, text, sizeof(text))) {
        return false;
    }
    after_name = strrchr(text, ')'); /* The state follows the name in parentheses. */
    return after_name != NULL && strncmp(after_name, ") T", 3) == 0;
}

/* Looks at the supervisor, and continues it if it is stopped for the second time in a row. */
static void on_tick(void *arg)
{
    struct tdm__supervisor_watch *watch = arg;
    bool stopped = is_stopped(watch->supervisor);

    if (stopped && watch->was_stopped) {
        tdm__log(TDM__ERROR, "supervisor",
                 "the supervisor of this node (pid %d) is stopped, and could not end the node's "
                 "processes: it is continued by SIGCONT",
                 (int)watch->supervisor);
        (void)kill(watch->supervisor, SIGCONT);
    }
    watch->was_stopped = stopped;
    TDM_ASSERT(tdm__timer_set(watch->timer, tdm__deadline_after(TICK_MS)) == TDM_OK);
}

tdm_status tdm__supervisor_watch_create(struct tdm__loop *loop, pid_t supervisor,
                                        struct tdm__supervisor_watch **watch_out)
{
    struct tdm__supervisor_watch *watch = calloc(1, sizeof(*watch));
    tdm_status status;

    if (watch == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the watch of the supervisor");
    }
    watch->supervisor = supervisor;
    status = tdm__timer_create(loop, on_tick, watch, &watch->timer);
    if (status != TDM_OK) {
        free(watch);
        return status;
    }
    TDM_ASSERT(tdm__timer_set(watch->timer, tdm__deadline_after(TICK_MS)) == TDM_OK);
    *watch_out = watch;
    return TDM_OK;
}

void tdm__supervisor_watch_destroy(struct tdm__supervisor_watch *watch)
{
    if (watch != NULL) {
        tdm__timer_destroy(watch->timer);
        free(watch);
    }
}
