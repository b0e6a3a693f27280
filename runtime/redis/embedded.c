/* embedded.c - a private redis-server of this node, for clusters that bring none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/embedded.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/process/spawn.h"
#include "runtime/redis/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What it has answered it has written to its file, so nothing is lost when it is killed.  (With
 * "everysec" it would put off writing while the disk is slow.)  When the machine dies, so does
 * all that it knows of. */

/* It runs through a symbolic link of our own name, so that ps shows whose it is and nobody
 * takes it for the machine's redis-server. */
#define LINK_NAME "tandem-store"

enum {
    START_MS = 10000,
    STOP_MS = 2000,
    KILL_MS = 5000,
    BACK_OFF_MS_MIN = 10,
    BACK_OFF_MS_MAX = 1000,
    LIVED_WELL_MS = 10000, /* after so long a life the back-off starts anew */
    DEATHS_MAX_AT_START = 3,
    URL_BYTES = 128,
    LOG_TAIL_BYTES = 1024
};

struct tdm__redis_embedded {
    struct tdm__loop *loop; /* borrowed */
    char directory[PATH_MAX];
    char program[PATH_MAX + 32]; /* the link */
    struct tdm__redis_address address;
    char url[URL_BYTES];
    struct tdm__process process; /* while `alive` */
    bool alive;
    bool stopping;
    struct tdm__fd_watch *watch; /* owned: the pidfd of the living one */
    struct tdm__timer *timer;    /* owned: the next start */
    int64_t started_ms;
    int64_t back_off_ms;
    uint32_t deaths;
    char last_words[320]; /* how the last one ended, and why in its own words */
};

static void on_end(void *arg, int fd, unsigned ready);

/* ---- the process ------------------------------------------------------------------------ */

static tdm_status run_server(struct tdm__redis_embedded *server)
{
    char *argv[] = {LINK_NAME,
                    "--port",
                    "0",
                    "--unixsocket",
                    server->address.path,
                    "--unixsocketperm",
                    "600",
                    "--dir",
                    server->directory,
                    "--logfile",
                    "redis.log",
                    "--appendonly",
                    "yes",
                    "--appendfsync",
                    "no", /* see above */
                    "--save",
                    "",
                    "--maxmemory-policy",
                    "noeviction",
                    "--daemonize",
                    "no",
                    "--proc-title-template",
                    LINK_NAME,
                    NULL};
    struct tdm__spawn_options options = {
        .program = server->program,
        .argv = argv,
        .working_directory = server->directory,
        .dies_with_parent = true,
    };
    tdm_status status;

    options.output_fd = open("/dev/null", O_WRONLY | O_CLOEXEC); /* it has its log file */
    if (options.output_fd < 0) {
        return tdm__fail_errno(errno, "open /dev/null");
    }
    status = tdm__spawn(&options, &server->process);
    (void)close(options.output_fd);
    TDM_TRY(status);
    server->alive = true;
    server->started_ms = tdm__clock_ms();
    return tdm__fd_watch_create(server->loop, server->process.pidfd, TDM__READABLE, on_end, server,
                                &server->watch);
}

static void start_later(struct tdm__redis_embedded *server)
{
    if (tdm__clock_ms() - server->started_ms > LIVED_WELL_MS) {
        server->back_off_ms = BACK_OFF_MS_MIN;
    }
    TDM_ASSERT(tdm__timer_set(server->timer, tdm__clock_ms() + server->back_off_ms) == TDM_OK);
    server->back_off_ms *= 2;
    if (server->back_off_ms > BACK_OFF_MS_MAX) {
        server->back_off_ms = BACK_OFF_MS_MAX;
    }
}

/* The end of its log; the directory may be gone before anybody looks into it. */
static void read_log_tail(const struct tdm__redis_embedded *server, char tail[LOG_TAIL_BYTES])
{
    char path[PATH_MAX + 16];
    ssize_t got = -1;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/redis.log", server->directory);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)lseek(fd, -(off_t)(LOG_TAIL_BYTES - 1), SEEK_END); /* fails where it is shorter */
        got = read(fd, tail, LOG_TAIL_BYTES - 1);
        (void)close(fd);
    }
    tail[got > 0 ? got : 0] = '\0';
}

/* What the last line says if it is a warning, "PID:M DATE # why"; else NULL. */
static const char *last_warning(char *text)
{
    size_t length = strlen(text);
    const char *line;
    const char *why;

    if (length > 0 && text[length - 1] == '\n') {
        text[length - 1] = '\0';
    }
    line = strrchr(text, '\n');
    why = strstr(line == NULL ? text : line, " # ");
    return why == NULL ? NULL : why + strlen(" # ");
}

/* One that gives up says why; one that was killed could not. */
static void note_last_words(struct tdm__redis_embedded *server, int wait_status)
{
    char tail[LOG_TAIL_BYTES];
    const char *why;
    char how[64];

    (void)tdm__wait_status_text(wait_status, how, sizeof(how));
    read_log_tail(server, tail);
    why = WIFEXITED(wait_status) ? last_warning(tail) : NULL;
    (void)snprintf(server->last_words, sizeof(server->last_words), "%s%s%.200s", how,
                   why == NULL ? "" : ": ", why == NULL ? "" : why);
}

static void on_end(void *arg, int fd, unsigned ready)
{
    struct tdm__redis_embedded *server = arg;
    int wait_status;

    (void)fd;
    (void)ready;
    if (!tdm__process_reap(&server->process, &wait_status)) {
        return;
    }
    tdm__fd_watch_destroy(server->watch);
    server->watch = NULL;
    tdm__process_forget(&server->process);
    server->alive = false;
    server->deaths++;
    note_last_words(server, wait_status);
    if (!server->stopping) {
        tdm__log(TDM__ERROR, "redis", "%s ended: %s; see %s/redis.log", LINK_NAME,
                 server->last_words, server->directory);
        start_later(server);
    }
}

static void on_timer(void *arg)
{
    struct tdm__redis_embedded *server = arg;

    if (run_server(server) != TDM_OK) {
        tdm__log(TDM__ERROR, "redis", "%s: %s", LINK_NAME, tdm_error_detail());
        if (!server->alive) {
            start_later(server);
        }
    }
}

/* ---- the directory ---------------------------------------------------------------------- */

static tdm_status make_directory(const char *path)
{
    struct stat status;

    if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST) {
        return tdm__fail_errno(errno, "mkdir %s", path);
    }
    if (lstat(path, &status) != 0) {
        return tdm__fail_errno(errno, "lstat %s", path);
    }
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return tdm__fail(TDM_E_STATE,
                         "%s: wanted a directory of uid %u with mode 0700, found mode %o of uid "
                         "%u; remove it",
                         path, geteuid(), status.st_mode, status.st_uid);
    }
    return TDM_OK;
}

static tdm_status find_program(char program[PATH_MAX])
{
    const char *path = secure_getenv("PATH");

    while (path != NULL && *path != '\0') {
        size_t bytes = strcspn(path, ":");
        int written = snprintf(program, PATH_MAX, "%.*s/redis-server", (int)bytes, path);

        if (program[0] == '/' && written < PATH_MAX && access(program, X_OK) == 0) {
            return TDM_OK;
        }
        path += bytes + (path[bytes] == ':');
    }
    return tdm__fail(TDM_E_NOT_FOUND, "redis-server is not installed: apt install redis-server");
}

static tdm_status make_link(struct tdm__redis_embedded *server)
{
    char program[PATH_MAX];

    TDM_TRY(find_program(program));
    (void)snprintf(server->program, sizeof(server->program), "%s/" LINK_NAME, server->directory);
    if (unlink(server->program) != 0 && errno != ENOENT) {
        return tdm__fail_errno(errno, "unlink %s", server->program);
    }
    if (symlink(program, server->program) != 0) {
        return tdm__fail_errno(errno, "symlink %s to %s", server->program, program);
    }
    return TDM_OK;
}

static tdm_status set_up_directory(struct tdm__redis_embedded *server, const char *directory)
{
    char absolute[PATH_MAX];
    int written;

    if (realpath(directory, absolute) == NULL) {
        return tdm__fail_errno(errno, "realpath %s", directory);
    }
    written = snprintf(server->directory, sizeof(server->directory), "%s/redis", absolute);
    if (written >= (int)sizeof(server->directory)) {
        return tdm__fail(TDM_E_LIMIT, "%s/redis: too long a path", absolute);
    }
    written = snprintf(server->url, sizeof(server->url), "unix://%s/socket", server->directory);
    if (written >= (int)sizeof(server->url)) {
        return tdm__fail(TDM_E_LIMIT,
                         "%s/socket: too long for a unix socket; use a shorter "
                         "directory",
                         server->directory);
    }
    TDM_TRY(tdm__redis_address_parse(server->url, &server->address));
    TDM_TRY(make_directory(server->directory));
    return make_link(server);
}

/* ---- start and stop --------------------------------------------------------------------- */

/* Asked by the loop while it starts. */
struct readiness {
    const struct tdm__redis_embedded *server;
    struct tdm__redis_connection *link;
};

static bool is_decided(void *arg)
{
    const struct readiness *readiness = arg;

    return tdm__redis_connection_is_ready(readiness->link) ||
           readiness->server->deaths >= DEATHS_MAX_AT_START;
}

static void ignore(void *arg)
{
    (void)arg;
}

static const struct tdm__redis_connection_ops readiness_ops = {.ready = ignore, .lost = ignore};

static tdm_status wait_until_ready(struct tdm__redis_embedded *server)
{
    struct readiness readiness = {.server = server};
    tdm_status status = tdm__redis_connection_create(server->loop, &server->address, &readiness_ops,
                                                     NULL, &readiness.link);

    TDM_TRY(status);
    status = tdm__loop_run(server->loop, is_decided, &readiness, tdm__deadline_after(START_MS));
    if (status != TDM_OK) {
        status = tdm__fail(TDM_E_STORE, "%s does not answer within %d ms: %s; see %s/redis.log",
                           LINK_NAME, START_MS, tdm__redis_connection_trouble(readiness.link),
                           server->directory);
    } else if (!tdm__redis_connection_is_ready(readiness.link)) {
        status = tdm__fail(TDM_E_STORE, "%s ended %u times: %s; see %s/redis.log", LINK_NAME,
                           server->deaths, server->last_words, server->directory);
    }
    tdm__redis_connection_destroy(readiness.link);
    return status;
}

tdm_status tdm__redis_embedded_start(struct tdm__loop *loop, const char *directory,
                                     struct tdm__redis_embedded **server_out)
{
    struct tdm__redis_embedded *server = calloc(1, sizeof(*server));
    tdm_status status;

    if (server == NULL) {
        return tdm__fail(TDM_E_NOMEM, "embedded redis");
    }
    server->loop = loop;
    server->back_off_ms = BACK_OFF_MS_MIN;
    status = set_up_directory(server, directory);
    if (status == TDM_OK) {
        status = tdm__timer_create(loop, on_timer, server, &server->timer);
    }
    if (status == TDM_OK) {
        status = run_server(server);
    }
    if (status == TDM_OK) {
        status = wait_until_ready(server);
    }
    if (status != TDM_OK) {
        char detail[TDM__ERROR_DETAIL_BYTES];

        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        tdm__redis_embedded_stop(server);
        return tdm__fail(status, "%s", detail);
    }
    *server_out = server;
    return TDM_OK;
}

static bool has_ended(void *arg)
{
    return !((const struct tdm__redis_embedded *)arg)->alive;
}

void tdm__redis_embedded_stop(struct tdm__redis_embedded *server)
{
    if (server == NULL) {
        return;
    }
    server->stopping = true;
    if (server->alive) {
        tdm__process_signal(&server->process, SIGTERM);
        if (tdm__loop_run(server->loop, has_ended, server, tdm__deadline_after(STOP_MS)) !=
            TDM_OK) {
            tdm__process_signal(&server->process, SIGKILL);
            (void)tdm__loop_run(server->loop, has_ended, server, tdm__deadline_after(KILL_MS));
        }
    }
    if (server->alive) { /* not even SIGKILL: it hangs in the kernel; its end is init's matter */
        tdm__log(TDM__ERROR, "redis", "%s, pid %d, does not end", LINK_NAME, server->process.pid);
        tdm__fd_watch_destroy(server->watch);
        tdm__process_forget(&server->process);
    }
    tdm__timer_destroy(server->timer);
    free(server);
}

const char *tdm__redis_embedded_url(const struct tdm__redis_embedded *server)
{
    return server->url;
}

pid_t tdm__redis_embedded_pid(const struct tdm__redis_embedded *server)
{
    return server->alive ? server->process.pid : 0;
}
