/* embedded.c - a private redis-server of this node, for clusters without a Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The server is a child process with a pidfd. When it ends, server_on_exit() logs why and starts it
 * again after a delay that doubles with each failure. A server that runs but does not reply is
 * killed, and so started again. While the server starts, START_EXITS_MAX
 * exits make the start fail.
 *
 * Before the server replies to a commit, it writes the change to its append-only file, without
 * fsync, so nothing is lost when the process is killed. (With "everysec" it would delay writes
 * while the disk is slow.) If the machine fails, everything that the data describes fails too. All
 * functions run on the loop's thread; start and stop run the loop themselves. */
#include "runtime/redis/embedded.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/process/spawn.h"
#include "runtime/redis/connection.h"
#include "runtime/redis/server_program.h"
#include "runtime/redis/server_watch.h"

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

/* Name of the symbolic link through which the server is started. So ps shows that it belongs to
 * Tandem and is not the machine's redis-server. */
#define LINK_NAME "tandem-store"

/* Time limits and sizes for the redis-server process. */
enum {
    START_MS = 10000,     /* Milliseconds within which the redis-server must reply to PING. */
    STOP_MS = 2000,       /* Milliseconds to wait for the redis-server's end after SIGTERM. */
    KILL_MS = 5000,       /* Milliseconds to wait for the redis-server's end after SIGKILL. */
    BACK_OFF_MS_MIN = 10, /* First delay before a restart of the redis-server in milliseconds. */
    /* Longest delay before a restart of the redis-server in milliseconds. */
    BACK_OFF_MS_MAX = 1000,
    /* Milliseconds for which the redis-server must run so that the delay before a restart is
     * BACK_OFF_MS_MIN again. */
    STABLE_RUN_MS = 10000,
    /* Number of exits of the redis-server after which starting it fails. */
    START_EXITS_MAX = 3,
    SILENT_MS = 5000, /* Milliseconds without a reply after which the redis-server is killed. */
    URL_BYTES = 128,  /* Capacity of the redis-server's URL. */
    /* Bytes that are read from the end of the redis-server's log. */
    LOG_TAIL_BYTES = 1024
};

/* A redis-server process that this process supervises. */
struct tdm__redis_embedded {
    /* Event loop on which the redis-server is supervised (borrowed). */
    struct tdm__loop *loop;
    char directory[PATH_MAX]; /* Directory of the redis-server's files. */
    /* Path of the symbolic link to redis-server, which is executed. */
    char program[PATH_MAX + 32];
    struct tdm__redis_address address; /* Address of the redis-server's Unix socket. */
    char url[URL_BYTES];               /* URL of the redis-server's Unix socket. */
    struct tdm__process process;       /* The redis-server process; valid while `running`. */
    bool running;                      /* Whether the redis-server process is running. */
    /* Whether tdm__redis_embedded_stop() is ending the process, so that it is not restarted. */
    bool stopping;
    /* Watch of the running process's pidfd (owned); NULL without a process. */
    struct tdm__fd_watch *watch;
    /* Timer at which the redis-server is started again (owned). */
    struct tdm__timer *timer;
    /* Watch that notices that the redis-server does not reply (owned); NULL until it is ready. */
    struct tdm__redis_server_watch *silence_watch;
    /* Time of the last start of the redis-server, in milliseconds on CLOCK_MONOTONIC. */
    int64_t started_ms;
    int64_t back_off_ms;  /* Delay before the next restart in milliseconds. */
    uint32_t exits_count; /* Number of times the redis-server process has ended. */
    /* How the last redis-server process ended, with the last warning of its log. */
    char last_exit_text[320];
};

/* Called by the loop when the redis-server's pidfd is readable: the process has ended. */
static void server_on_exit(void *arg, int fd, unsigned ready);

/* ---- the process ------------------------------------------------------------------------ */

/* Starts the redis-server process and watches for its end. */
static tdm_status server_spawn(struct tdm__redis_embedded *server)
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
                    "no", /* Without fsync, see the note above. */
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

    /* The server writes to its log file. */
    options.output_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (options.output_fd < 0) {
        return tdm__fail_errno(errno, "open /dev/null");
    }
    status = tdm__spawn(&options, &server->process);
    (void)close(options.output_fd);
    TDM_TRY(status);
    server->running = true;
    server->started_ms = tdm__clock_ms();
    return tdm__fd_watch_create(server->loop, server->process.pidfd, TDM__READABLE, server_on_exit,
                                server, &server->watch);
}

/* Schedules the next start of the redis-server and doubles the delay. */
static void server_start_later(struct tdm__redis_embedded *server)
{
    if (tdm__clock_ms() - server->started_ms > STABLE_RUN_MS) {
        server->back_off_ms = BACK_OFF_MS_MIN;
    }
    TDM_ASSERT(tdm__timer_set(server->timer, tdm__clock_ms() + server->back_off_ms) == TDM_OK);
    server->back_off_ms *= 2;
    if (server->back_off_ms > BACK_OFF_MS_MAX) {
        server->back_off_ms = BACK_OFF_MS_MAX;
    }
}

/* Reads the end of the redis-server's log to `tail`, for an error message, because the log may be
 * removed before a person can read it. */
static void read_log_tail(const struct tdm__redis_embedded *server, char tail[LOG_TAIL_BYTES])
{
    char path[PATH_MAX + 16];
    ssize_t got = -1;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/redis.log", server->directory);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        /* Seeking fails if the file is shorter; reading then starts at its beginning. */
        (void)lseek(fd, -(off_t)(LOG_TAIL_BYTES - 1), SEEK_END);
        got = read(fd, tail, LOG_TAIL_BYTES - 1);
        (void)close(fd);
    }
    tail[got > 0 ? got : 0] = '\0';
}

/* Returns the message of the last line of the redis-server's log `text` if that line is a warning
 * ("PID:M DATE # message"), else NULL. */
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

/* Stores in server->last_exit_text how the redis-server ended. A process that exited has logged the
 * cause; a killed one has not. */
static void server_note_exit(struct tdm__redis_embedded *server, int wait_status)
{
    char tail[LOG_TAIL_BYTES];
    const char *why;
    char how[64];

    (void)tdm__wait_status_text(wait_status, how, sizeof(how));
    read_log_tail(server, tail);
    why = WIFEXITED(wait_status) ? last_warning(tail) : NULL;
    (void)snprintf(server->last_exit_text, sizeof(server->last_exit_text), "%s%s%.200s", how,
                   why == NULL ? "" : ": ", why == NULL ? "" : why);
}

/* Handles the end of the redis-server process: logs the end and schedules a restart, unless
 * tdm__redis_embedded_stop() caused it. */
static void server_on_exit(void *arg, int fd, unsigned ready)
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
    server->running = false;
    server->exits_count++;
    server_note_exit(server, wait_status);
    if (!server->stopping) {
        tdm__log(TDM__ERROR, "redis", "%s ended: %s; see %s/redis.log", LINK_NAME,
                 server->last_exit_text, server->directory);
        server_start_later(server);
    }
}

/* Kills a redis-server that runs and does not reply; server_on_exit() starts it again. */
static void server_on_silence(void *arg)
{
    struct tdm__redis_embedded *server = arg;

    if (server->running && !server->stopping) {
        tdm__log(TDM__ERROR, "redis",
                 "%s (pid %d) has not replied for %d ms: it is killed and started again", LINK_NAME,
                 (int)server->process.pid, SILENT_MS);
        tdm__process_signal(&server->process, SIGKILL);
    }
}

/* Runs when the timer fires: starts the redis-server again. */
static void server_on_timer(void *arg)
{
    struct tdm__redis_embedded *server = arg;

    if (server_spawn(server) != TDM_OK) {
        tdm__log(TDM__ERROR, "redis", "%s: %s", LINK_NAME, tdm_error_detail());
        if (!server->running) {
            server_start_later(server);
        }
    }
}

/* ---- the directory ---------------------------------------------------------------------- */

/* Creates the directory of the redis-server's files, or checks that an existing one belongs to this
 * user only. */
static tdm_status directory_create(const char *path)
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

/* Creates the symbolic link to the server's program that is executed, and replaces an old one. */
static tdm_status server_create_link(struct tdm__redis_embedded *server)
{
    char program[PATH_MAX];

    TDM_TRY(tdm__redis_server_program_find(program));
    (void)snprintf(server->program, sizeof(server->program), "%s/" LINK_NAME, server->directory);
    if (unlink(server->program) != 0 && errno != ENOENT) {
        return tdm__fail_errno(errno, "unlink %s", server->program);
    }
    if (symlink(program, server->program) != 0) {
        return tdm__fail_errno(errno, "symlink %s to %s", server->program, program);
    }
    return TDM_OK;
}

/* Sets the paths of the redis-server's files and creates its directory and symbolic link. */
static tdm_status server_set_up_directory(struct tdm__redis_embedded *server, const char *directory)
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
    TDM_TRY(directory_create(server->directory));
    return server_create_link(server);
}

/* ---- start and stop --------------------------------------------------------------------- */

/* State of waiting until a starting redis-server is ready. */
struct readiness {
    /* The redis-server that is starting. */
    const struct tdm__redis_embedded *server;
    /* A connection to the redis-server that becomes ready when the server replies to PING. */
    struct tdm__redis_connection *connection;
};

/* Tells the loop to stop when the redis-server is ready or has ended too often. */
static bool start_is_decided(void *arg)
{
    const struct readiness *readiness = arg;

    return tdm__redis_connection_is_ready(readiness->connection) ||
           readiness->server->exits_count >= START_EXITS_MAX;
}

/* Ignores an event of the connection that waits for the redis-server. */
static void ignore_event(void *arg)
{
    (void)arg;
}

/* Callbacks of the connection that only shows whether the redis-server replies to PING. */
static const struct tdm__redis_connection_ops readiness_ops = {.ready = ignore_event,
                                                               .lost = ignore_event};

/* Fails with the reason why a starting redis-server has ended again and again. A server that is too
 * old for an option of the command line ends so, without a line in its log. */
static tdm_status fail_early_exits(const struct tdm__redis_embedded *server)
{
    char program[PATH_MAX];
    ssize_t length = readlink(server->program, program, sizeof(program) - 1);

    program[length < 0 ? 0 : length] = '\0';
    return tdm__fail(
        TDM_E_STORE,
        "%s (%s) ended %u times: %s; see %s/redis.log. It must be Redis 7 or later, or "
        "Valkey; TANDEM_REDIS_SERVER names another program",
        LINK_NAME, program, server->exits_count, server->last_exit_text, server->directory);
}

/* Blocks until the redis-server replies to PING. Fails with the reason from the server's log. */
static tdm_status server_wait_ready(struct tdm__redis_embedded *server)
{
    struct readiness readiness = {.server = server};
    tdm_status status = tdm__redis_connection_create(server->loop, &server->address, &readiness_ops,
                                                     NULL, &readiness.connection);

    TDM_TRY(status);
    status =
        tdm__loop_run(server->loop, start_is_decided, &readiness, tdm__deadline_after(START_MS));
    if (status != TDM_OK) {
        status = tdm__fail(TDM_E_STORE, "%s does not answer within %d ms: %s; see %s/redis.log",
                           LINK_NAME, START_MS, tdm__redis_connection_trouble(readiness.connection),
                           server->directory);
    } else if (!tdm__redis_connection_is_ready(readiness.connection)) {
        status = fail_early_exits(server);
    }
    tdm__redis_connection_destroy(readiness.connection);
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
    status = server_set_up_directory(server, directory);
    if (status == TDM_OK) {
        status = tdm__timer_create(loop, server_on_timer, server, &server->timer);
    }
    if (status == TDM_OK) {
        status = server_spawn(server);
    }
    if (status == TDM_OK) {
        status = server_wait_ready(server);
    }
    if (status == TDM_OK) {
        status = tdm__redis_server_watch_create(loop, &server->address, SILENT_MS,
                                                server_on_silence, server, &server->silence_watch);
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

/* Tells the loop whether the redis-server process has ended. */
static bool server_has_ended(void *arg)
{
    return !((const struct tdm__redis_embedded *)arg)->running;
}

void tdm__redis_embedded_stop(struct tdm__redis_embedded *server)
{
    if (server == NULL) {
        return;
    }
    server->stopping = true;
    tdm__redis_server_watch_destroy(server->silence_watch);
    if (server->running) {
        tdm__process_signal(&server->process, SIGTERM);
        if (tdm__loop_run(server->loop, server_has_ended, server, tdm__deadline_after(STOP_MS)) !=
            TDM_OK) {
            tdm__process_signal(&server->process, SIGKILL);
            (void)tdm__loop_run(server->loop, server_has_ended, server,
                                tdm__deadline_after(KILL_MS));
        }
    }
    /* Even SIGKILL did not end a process that hangs in the kernel. The process will be reaped by
     * init. */
    if (server->running) {
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
    return server->running ? server->process.pid : 0;
}
