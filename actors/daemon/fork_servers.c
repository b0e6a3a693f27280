/* fork_servers.c - the fork servers of a node: which programs have one, and whether it replies. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The table has two lists. `used` has the keys in the order of their last use, each with a fork
 * server or without one. `abandoned` has fork servers that did not reply to a request in time.
 *
 * An abandoned fork server gets no more requests, and its key can get another one. It cannot be
 * killed while workers that it has forked live, because their reapers die with it; it is killed
 * when the last of them has ended. If it runs again before, it finds that nobody waits for the
 * reports on its requests, and forks nothing (fork_server.c).
 *
 * workers_count counts the workers for which the fork server was asked and that have not ended,
 * awaited_count those of them without a report. Everything runs on the daemon's loop thread. */
#include "actors/daemon/fork_servers.h"

#include "actors/common/worker_bootstrap.h"
#include "actors/daemon/worker_environment.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/fdpass.h"
#include "runtime/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* Number of the keys used last that are kept, with their fork servers; older keys are kept only
     * while they have living workers. */
    FORK_SERVERS_MAX = 16,
    /* Longest time in milliseconds until the first report of a fork server. Its program may load
     * large libraries before. */
    FIRST_REPLY_MS = 60000,
    /* Lateness of the timer from which on the daemon itself is to blame, in milliseconds. */
    TIMER_LATE_MS = 1000
};

/* Definition of a fork server. The table owns it. */
struct tdm__fork_server {
    struct tdm__fork_servers *servers; /* Table that contains this entry, borrowed. */
    struct tdm__fork_server *next;     /* Next entry of the list that contains this entry. */
    char *key; /* Text of program, arguments, directory and environment, owned. */
    /* True if the fork server cannot fork because its program runs threads; workers with the key
     * are executed then. */
    bool runs_threads;
    bool is_abandoned;           /* True if it is in the list `abandoned`. */
    bool has_replied;            /* True once the running process has sent a report. */
    struct tdm__process process; /* Process of the fork server; pid 0 while it does not run. */
    /* Socket to the process of the fork server, owned; -1 while it does not run. */
    int control;
    /* Watch of `control` in the event loop, owned; NULL while the fork server does not run. */
    struct tdm__fd_watch *watch;
    uint32_t workers_count; /* Number of workers that belong to the fork server. */
    uint32_t awaited_count; /* Number of requests without a report. */
    /* Time of the oldest request without a report, or of the last report after it, in milliseconds
     * of tdm__clock_ms(). */
    int64_t awaited_since_ms;
};

/* Definition of the table. The table of workers owns it. */
struct tdm__fork_servers {
    struct tdm__loop *loop;             /* Loop of the daemon, borrowed. */
    int64_t reply_ms;                   /* Longest time for one request, in milliseconds. */
    tdm__fork_server_silent_fn *silent; /* Callback for fork servers that do not reply. */
    void *arg;                          /* First argument of `silent`. */
    struct tdm__fork_server *used; /* Keys and fork servers, used most recently first, owned. */
    struct tdm__fork_server *abandoned; /* Fork servers that did not reply in time, owned. */
    struct tdm__timer *timer; /* Timer of the next check for fork servers that do not reply. */
};

/* ---- processes -------------------------------------------------------------------------- */

tdm_status tdm__worker_program_execute(const struct tdm__worker_program *program, const char *role,
                                       struct tdm__spawn_options *options,
                                       struct tdm__process *process_out)
{
    char role_text[64];
    tdm_status status;

    (void)snprintf(role_text, sizeof(role_text), TDM__WORKER_VARIABLE "=%s", role);
    options->program = program->argv[0];
    options->argv = program->argv;
    options->working_directory = program->directory;
    options->environment = program->environment;
    options->dies_with_parent = true;
    tdm__worker_environment_add(program->environment, role_text);
    status = tdm__spawn(options, process_out);
    tdm__worker_environment_drop_last(program->environment);
    return status;
}

/* Kills and reaps the process of a fork server, if it runs. Workers that it has forked die. */
static void end_process(struct tdm__fork_server *fork_server)
{
    int wait_status;

    if (fork_server->process.pid == 0) {
        return;
    }
    tdm__fd_watch_destroy(fork_server->watch);
    fork_server->watch = NULL;
    (void)close(fork_server->control);
    fork_server->control = -1;
    tdm__process_signal(&fork_server->process, SIGKILL);
    (void)waitpid(fork_server->process.pid, &wait_status, 0);
    tdm__process_forget(&fork_server->process);
    fork_server->process = (struct tdm__process){0, -1};
    fork_server->has_replied = false;
    fork_server->awaited_count = 0;
}

/* Finds that a fork server has ended: it sends nothing on its socket. */
static void on_control_readable(void *arg, int fd, unsigned ready)
{
    (void)fd;
    (void)ready;
    end_process(arg);
}

/* Limits how long a request may wait until a fork server with a full socket takes it, because the
 * daemon serves nobody meanwhile. */
static tdm_status limit_send(int control)
{
    const struct timeval limit = {.tv_sec = 1};

    return setsockopt(control, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0
               ? tdm__fail_errno(errno, "setsockopt of a fork server's socket")
               : TDM_OK;
}

/* Starts the process of a fork server. */
static tdm_status start_process(struct tdm__fork_server *fork_server,
                                const struct tdm__worker_program *program)
{
    struct tdm__spawn_options options = {.fds_count = 1, .output_fd = -1};
    int control[2];
    tdm_status status;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    options.fds[0] = control[1];
    status = limit_send(control[0]);
    if (status == TDM_OK) {
        status =
            tdm__worker_program_execute(program, "fork_server", &options, &fork_server->process);
    }
    (void)close(control[1]);
    if (status == TDM_OK) {
        fork_server->control = control[0];
        status = tdm__fd_watch_create(fork_server->servers->loop, control[0], TDM__READABLE,
                                      on_control_readable, fork_server, &fork_server->watch);
    }
    if (status != TDM_OK) {
        (void)close(control[0]);
        fork_server->control = -1;
        fork_server->process = (struct tdm__process){0, -1};
    }
    return status;
}

/* ---- the lists -------------------------------------------------------------------------- */

/* Removes a fork server from the list `*list`. Returns false if the list does not have it. */
static bool list_remove(struct tdm__fork_server **list, const struct tdm__fork_server *fork_server)
{
    while (*list != NULL && *list != fork_server) {
        list = &(*list)->next;
    }
    if (*list == NULL) {
        return false;
    }
    *list = fork_server->next;
    return true;
}

/* Kills and frees a fork server that is in no list. */
static void fork_server_free(struct tdm__fork_server *fork_server)
{
    end_process(fork_server);
    free(fork_server->key);
    free(fork_server);
}

/* Frees the fork servers that were used least recently, beyond FORK_SERVERS_MAX. Each one costs a
 * process and a copy of its environment. */
static void forget_old(struct tdm__fork_servers *servers)
{
    struct tdm__fork_server **link = &servers->used;
    uint32_t count = 0;

    while (*link != NULL) {
        struct tdm__fork_server *fork_server = *link;

        if (++count > FORK_SERVERS_MAX && fork_server->workers_count == 0) {
            *link = fork_server->next;
            fork_server_free(fork_server);
        } else {
            link = &fork_server->next;
        }
    }
}

/* Creates an entry for a new key, which it then owns. Returns NULL without memory. */
static struct tdm__fork_server *create_entry(struct tdm__fork_servers *servers, char *key)
{
    struct tdm__fork_server *fork_server = calloc(1, sizeof(*fork_server));

    if (fork_server == NULL) {
        free(key);
        return NULL;
    }
    *fork_server = (struct tdm__fork_server){
        .servers = servers, .key = key, .process = {0, -1}, .control = -1};
    return fork_server;
}

struct tdm__fork_server *tdm__fork_servers_find(struct tdm__fork_servers *servers, char *key)
{
    struct tdm__fork_server *fork_server = servers->used;
    bool was_used;

    if (key == NULL) {
        return NULL;
    }
    while (fork_server != NULL && strcmp(fork_server->key, key) != 0) {
        fork_server = fork_server->next;
    }
    was_used = fork_server != NULL;
    if (was_used) {
        free(key);
        (void)list_remove(&servers->used, fork_server);
    } else {
        fork_server = create_entry(servers, key);
        if (fork_server == NULL) {
            return NULL;
        }
    }
    fork_server->next = servers->used;
    servers->used = fork_server;
    forget_old(servers);
    return was_used && !fork_server->runs_threads ? fork_server : NULL;
}

/* ---- replies ---------------------------------------------------------------------------- */

/* Returns how long the fork server may take until its next report, in milliseconds. */
static int64_t patience_ms(const struct tdm__fork_server *fork_server)
{
    return fork_server->has_replied ? fork_server->servers->reply_ms : FIRST_REPLY_MS;
}

/* Sets the timer to the earliest time at which a fork server counts as silent. */
static void set_timer(struct tdm__fork_servers *servers)
{
    int64_t next_ms = TDM__NEVER;

    for (const struct tdm__fork_server *fork_server = servers->used; fork_server != NULL;
         fork_server = fork_server->next) {
        int64_t late_ms = fork_server->awaited_since_ms + patience_ms(fork_server);

        if (fork_server->awaited_count > 0 && (next_ms == TDM__NEVER || late_ms < next_ms)) {
            next_ms = late_ms;
        }
    }
    if (next_ms == TDM__NEVER) {
        tdm__timer_clear(servers->timer);
    } else {
        TDM_ASSERT(tdm__timer_set(servers->timer, next_ms) == TDM_OK);
    }
}

/* Takes a fork server that does not reply out of use. */
static void abandon(struct tdm__fork_server *fork_server)
{
    struct tdm__fork_servers *servers = fork_server->servers;

    tdm__log(TDM__ERROR, "workers",
             "the fork server of %.200s (pid %d) has not forked a worker for %lld ms: its workers "
             "are executed instead, and it is killed when the ones that it has forked have ended",
             fork_server->key, (int)fork_server->process.pid, (long long)patience_ms(fork_server));
    (void)list_remove(&servers->used, fork_server);
    fork_server->is_abandoned = true;
    fork_server->next = servers->abandoned;
    servers->abandoned = fork_server;
    fork_server->awaited_count = 0;
    fork_server->workers_count++; /* Keeps the entry until the callback has returned. */
    servers->silent(servers->arg, fork_server);
    tdm__fork_server_release(fork_server);
}

/* Takes all fork servers out of use that have not replied for long. If the timer is late, the
 * daemon itself stood still and may have reports to read, so that the time begins again. */
static void on_timer(void *arg)
{
    struct tdm__fork_servers *servers = arg;
    struct tdm__fork_server *next;

    for (struct tdm__fork_server *fork_server = servers->used; fork_server != NULL;
         fork_server = next) {
        int64_t late_ms =
            tdm__clock_ms() - fork_server->awaited_since_ms - patience_ms(fork_server);

        next = fork_server->next;
        if (fork_server->awaited_count > 0 && late_ms >= TIMER_LATE_MS) {
            fork_server->awaited_since_ms = tdm__clock_ms();
        } else if (fork_server->awaited_count > 0 && late_ms >= 0) {
            abandon(fork_server);
        }
    }
    set_timer(servers);
}

tdm_status tdm__fork_server_send(struct tdm__fork_server *fork_server,
                                 const struct tdm__worker_program *program,
                                 const struct tdm__fork_server_request *request, const int *fds,
                                 uint32_t fds_count)
{
    if (fork_server->process.pid == 0) {
        TDM_TRY(start_process(fork_server, program));
    }
    TDM_TRY(tdm__fds_send(fork_server->control, request, sizeof(*request), fds, fds_count));
    if (fork_server->awaited_count++ == 0) {
        fork_server->awaited_since_ms = tdm__clock_ms();
    }
    fork_server->workers_count++;
    set_timer(fork_server->servers);
    return TDM_OK;
}

void tdm__fork_server_replied(struct tdm__fork_server *fork_server)
{
    fork_server->has_replied = true;
    fork_server->awaited_since_ms = tdm__clock_ms();
    if (fork_server->awaited_count > 0) {
        fork_server->awaited_count--;
    }
    set_timer(fork_server->servers);
}

void tdm__fork_server_disable(struct tdm__fork_server *fork_server)
{
    fork_server->runs_threads = true;
    end_process(fork_server);
}

void tdm__fork_server_release(struct tdm__fork_server *fork_server)
{
    TDM_ASSERT(fork_server->workers_count > 0);
    fork_server->workers_count--;
    if (fork_server->is_abandoned && fork_server->workers_count == 0) {
        (void)list_remove(&fork_server->servers->abandoned, fork_server);
        fork_server_free(fork_server);
    }
}

/* ---- the table -------------------------------------------------------------------------- */

tdm_status tdm__fork_servers_create(struct tdm__loop *loop, int64_t reply_ms,
                                    tdm__fork_server_silent_fn *silent, void *arg,
                                    struct tdm__fork_servers **servers_out)
{
    struct tdm__fork_servers *servers = calloc(1, sizeof(*servers));
    tdm_status status;

    if (servers == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the table of fork servers");
    }
    *servers = (struct tdm__fork_servers){
        .loop = loop, .reply_ms = reply_ms, .silent = silent, .arg = arg};
    status = tdm__timer_create(loop, on_timer, servers, &servers->timer);
    if (status != TDM_OK) {
        free(servers);
        return status;
    }
    *servers_out = servers;
    return TDM_OK;
}

/* Kills and frees all fork servers of a list. */
static void list_free(struct tdm__fork_server *first)
{
    while (first != NULL) {
        struct tdm__fork_server *next = first->next;

        fork_server_free(first);
        first = next;
    }
}

void tdm__fork_servers_destroy(struct tdm__fork_servers *servers)
{
    if (servers == NULL) {
        return;
    }
    list_free(servers->used);
    list_free(servers->abandoned);
    tdm__timer_destroy(servers->timer);
    free(servers);
}

/* Returns whether a fork server of the list has the process `pid`. */
static bool list_owns(const struct tdm__fork_server *first, pid_t pid)
{
    while (first != NULL && first->process.pid != pid) {
        first = first->next;
    }
    return first != NULL;
}

bool tdm__fork_servers_own(const struct tdm__fork_servers *servers, pid_t pid)
{
    return list_owns(servers->used, pid) || list_owns(servers->abandoned, pid);
}
