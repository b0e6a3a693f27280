/* worker_logs.c - the output of a node's workers: kept in files, printed, read by others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_logs.h"

#include "actors/daemon/log_files.h"
#include "actors/daemon/node.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 64 << 10,
    READ_BYTES_MAX = 1 << 20,
    PRINT_CHUNKS_PER_PASS = 8, /* printed before the daemon looks after others again */
    PRINT_MS = 20,             /* from a line to the terminal, at most about so long */
    CHECK_MS = 1000,           /* between looks at the sizes where nobody prints */
    SLOW_READER_MS = 20,
    PRUNE_MS = 60000,
    ENDED_MAX = 512, /* processes that are remembered */
    LAST_WORDS_MS = 2000
};

static const char *const suffixes[TDM__LOG_STREAMS] = {".out", ".err"};

struct log_stream {
    char name[TDM__LOG_NAME_BYTES];
    uint64_t printed; /* up to this offset */
};

struct tdm__log_source {
    struct tdm__log_source *next;
    struct tdm__worker_logs *logs; /* borrowed */
    struct tdm__id actor;
    char label[TDM__ACTOR_NAME_BYTES]; /* name or class */
    char origin[TDM__ACTOR_NAME_BYTES + 24];
    int64_t pid;
    bool is_live;
    struct log_stream streams[TDM__LOG_STREAMS];
};

struct tdm__worker_logs {
    struct tdm__loop *loop; /* borrowed */
    struct tdm__node *node; /* borrowed; may be NULL */
    char directory[TDM__PATH_BYTES];
    struct tdm__log_source *all; /* newest first */
    uint32_t ended_count;
    uint64_t serial;
    struct tdm__log_printer *printer; /* owned; NULL when nothing is printed */
    int changes;                      /* inotify; -1 where there is none: then the timer looks */
    struct tdm__fd_watch *watch;
    struct tdm__timer *timer;
    bool timer_is_set;
    int64_t prune_ms;
    uint64_t lost_bytes;
    char chunk[CHUNK_BYTES];
};

static void write_path(const struct tdm__worker_logs *logs, const char *name,
                       char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES])
{
    (void)snprintf(path, TDM__PATH_BYTES + TDM__LOG_NAME_BYTES, "%s/%s", logs->directory, name);
}

static uint64_t file_bytes(const char *path)
{
    struct stat about;

    return stat(path, &about) < 0 ? 0 : (uint64_t)about.st_size;
}

/* ---- printing --------------------------------------------------------------------------- */

/* A file that became shorter was emptied; one that begins later has lost its beginning. */
static void logs_count_lost(struct tdm__worker_logs *logs, struct log_stream *stream,
                            const struct tdm__log_file_range *piece)
{
    if (piece->file_bytes < stream->printed) {
        stream->printed = 0;
    } else if (piece->offset > stream->printed) {
        logs->lost_bytes += piece->offset - stream->printed;
        stream->printed = piece->offset;
    }
}

/* Prints one chunk; true when there is more that can be printed now. */
static bool print_chunk(struct tdm__log_source *source, enum tdm__log_stream number)
{
    struct tdm__worker_logs *logs = source->logs;
    struct log_stream *stream = &source->streams[number];
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct tdm__log_file_range piece;
    uint64_t size_bytes;
    size_t taken;
    bool is_all;

    write_path(logs, stream->name, path);
    size_bytes = file_bytes(path);
    if (size_bytes == stream->printed ||
        tdm__log_file_read(path, size_bytes < stream->printed ? 0 : stream->printed, logs->chunk,
                           sizeof(logs->chunk), &piece) != TDM_OK) {
        return false;
    }
    logs_count_lost(logs, stream, &piece);
    is_all = piece.offset + piece.bytes_count >= piece.file_bytes;
    taken = tdm__log_printer_write(logs->printer, number, source->origin, logs->chunk,
                                   piece.bytes_count, is_all && !source->is_live);
    stream->printed += taken;
    return taken > 0 && !is_all;
}

/* True when all that is there has been printed. */
static bool print_source(struct tdm__log_source *source)
{
    bool done = true;

    for (int number = 0; number < TDM__LOG_STREAMS; number++) {
        int chunks = 0;

        while (chunks < PRINT_CHUNKS_PER_PASS &&
               print_chunk(source, (enum tdm__log_stream)number)) {
            chunks++;
        }
        done = done && chunks < PRINT_CHUNKS_PER_PASS;
    }
    return done;
}

static bool is_unprinted(const struct tdm__log_source *source)
{
    for (int number = 0; number < TDM__LOG_STREAMS; number++) {
        char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

        write_path(source->logs, source->streams[number].name, path);
        if (file_bytes(path) > source->streams[number].printed) {
            return true;
        }
    }
    return false;
}

/* ---- bounds ----------------------------------------------------------------------------- */

static bool is_in_use(const void *arg, const char *name)
{
    const struct tdm__worker_logs *logs = arg;

    if (strncmp(name, "tandemd", strlen("tandemd")) == 0) {
        return true;
    }
    for (const struct tdm__log_source *source = logs->all; source != NULL; source = source->next) {
        if (source->is_live && (strcmp(source->streams[TDM__LOG_OUT].name, name) == 0 ||
                                strcmp(source->streams[TDM__LOG_ERR].name, name) == 0)) {
            return true;
        }
    }
    return false;
}

static void bound_files(struct tdm__worker_logs *logs)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

    for (const struct tdm__log_source *source = logs->all; source != NULL; source = source->next) {
        for (int number = 0; number < TDM__LOG_STREAMS && source->is_live; number++) {
            write_path(logs, source->streams[number].name, path);
            tdm__log_file_bound(path, TDM__LOG_FILE_BYTES);
        }
    }
    write_path(logs, "tandemd.err", path);
    tdm__log_file_bound(path, TDM__LOG_FILE_BYTES);
    if (logs->prune_ms <= tdm__clock_ms()) {
        logs->prune_ms = tdm__deadline_after(PRUNE_MS);
        tdm__log_files_prune(logs->directory, TDM__LOG_TOTAL_BYTES, is_in_use, logs);
    }
}

/* Forgets the processes that ended longest ago, beyond those that are remembered. */
static void logs_forget_ended(struct tdm__worker_logs *logs)
{
    uint32_t ended = 0;

    for (struct tdm__log_source **place = &logs->all; *place != NULL;) {
        struct tdm__log_source *source = *place;

        ended += source->is_live ? 0 : 1;
        if (source->is_live || ended <= ENDED_MAX) {
            place = &source->next;
            continue;
        }
        *place = source->next;
        free(source);
    }
    logs->ended_count = ended < ENDED_MAX ? ended : ENDED_MAX;
}

/* ---- looking ---------------------------------------------------------------------------- */

static void logs_schedule_read(struct tdm__worker_logs *logs, int64_t milliseconds)
{
    logs->timer_is_set = true;
    (void)tdm__timer_set(logs->timer, tdm__deadline_after(milliseconds));
}

/* Takes the news, whatever they are: every file is looked at. */
static void drain_changes(struct tdm__worker_logs *logs)
{
    char news[4096];

    while (logs->changes >= 0 && read(logs->changes, news, sizeof(news)) > 0) {
    }
}

static void on_timer(void *arg)
{
    struct tdm__worker_logs *logs = arg;
    bool done = true;
    bool flushed = true;

    logs->timer_is_set = false;
    drain_changes(logs);
    if (logs->printer != NULL) {
        for (struct tdm__log_source *source = logs->all; source != NULL; source = source->next) {
            done = (!source->is_live || print_source(source)) && done;
        }
        flushed = tdm__log_printer_flush(logs->printer);
    }
    bound_files(logs);
    if (!done) {
        logs_schedule_read(logs, 0);
    } else if (!flushed) {
        logs_schedule_read(logs, SLOW_READER_MS);
    } else if (logs->changes < 0) {
        logs_schedule_read(logs, logs->printer != NULL ? PRINT_MS : CHECK_MS);
    } else {
        (void)tdm__fd_watch_set_events(logs->watch, TDM__READABLE);
    }
}

static void on_changes(void *arg, int fd, unsigned ready)
{
    struct tdm__worker_logs *logs = arg;

    (void)fd;
    (void)ready;
    (void)tdm__fd_watch_set_events(logs->watch,
                                   0); /* more of them tell nothing new until the timer */
    if (!logs->timer_is_set) {
        logs_schedule_read(logs, logs->printer != NULL ? PRINT_MS : CHECK_MS);
    }
}

/* ---- sources ---------------------------------------------------------------------------- */

tdm_status tdm__worker_logs_open(struct tdm__worker_logs *logs, const struct tdm__actor_spec *spec,
                                 int fds_out[TDM__LOG_STREAMS], struct tdm__log_source **source_out)
{
    struct tdm__log_source *source = calloc(1, sizeof(*source));
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    tdm_status status = TDM_OK;
    int opened = 0;

    if (source == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the output of a worker");
    }
    *source = (struct tdm__log_source){
        .logs = logs, .next = logs->all, .actor = spec->id, .is_live = true};
    (void)snprintf(source->label, sizeof(source->label), "%s",
                   spec->name[0] != '\0' ? spec->name : spec->class_name);
    logs->serial++;
    for (; opened < TDM__LOG_STREAMS && status == TDM_OK; opened++) {
        char *name = source->streams[opened].name;

        (void)snprintf(name, TDM__LOG_NAME_BYTES, "starting-%llu%s",
                       (unsigned long long)logs->serial, suffixes[opened]);
        write_path(logs, name, path);
        status = tdm__log_file_open(path, &fds_out[opened]);
    }
    if (status != TDM_OK) {
        for (int i = 0; i < opened - 1; i++) {
            (void)close(fds_out[i]);
        }
        free(source);
        return status;
    }
    logs->all = source;
    *source_out = source;
    return TDM_OK;
}

void tdm__log_source_started(struct tdm__log_source *source, pid_t pid)
{
    char from[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    char to[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    char id[TDM__ID_TEXT_BYTES];

    source->pid = pid;
    (void)snprintf(source->origin, sizeof(source->origin), "%s pid=%d", source->label, (int)pid);
    for (int number = 0; number < TDM__LOG_STREAMS; number++) {
        char *name = source->streams[number].name;

        write_path(source->logs, name, from);
        tdm__log_file_name(source->label, tdm__id_text(&source->actor, id), pid, suffixes[number],
                           name);
        write_path(source->logs, name, to);
        (void)rename(from, to);
    }
}

void tdm__log_source_ended(struct tdm__log_source *source)
{
    struct tdm__worker_logs *logs = source->logs;

    source->is_live = false;
    if (logs->printer != NULL) {
        int64_t deadline_ms = tdm__deadline_after(LAST_WORDS_MS);

        while (is_unprinted(source) && tdm__clock_ms() < deadline_ms &&
               (!print_source(source) || is_unprinted(source))) {
            if (!tdm__log_printer_flush(logs->printer)) {
                break; /* a slow reader: what is left stays in the file */
            }
        }
        if (!tdm__log_printer_flush(logs->printer) && !logs->timer_is_set) {
            logs_schedule_read(logs, SLOW_READER_MS);
        }
    }
    for (int number = 0; number < TDM__LOG_STREAMS; number++) {
        char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

        write_path(logs, source->streams[number].name, path);
        tdm__log_file_bound(path, TDM__LOG_FILE_BYTES);
        if (file_bytes(path) == 0) {
            (void)unlink(path);
        }
    }
    logs->ended_count++;
    if (logs->ended_count > ENDED_MAX) {
        logs_forget_ended(logs);
    }
}

size_t tdm__log_source_last_lines(const struct tdm__log_source *source, uint32_t lines_max,
                                  char *text, size_t room)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

    write_path(source->logs, source->streams[TDM__LOG_ERR].name, path);
    return tdm__log_file_last_lines(path, lines_max, text, room);
}

uint64_t tdm__worker_logs_lost_bytes(const struct tdm__worker_logs *logs)
{
    return logs->lost_bytes;
}

/* ---- all of it -------------------------------------------------------------------------- */

static tdm_status make_directory(struct tdm__worker_logs *logs, const char *node_directory)
{
    int length = snprintf(logs->directory, sizeof(logs->directory), "%s/logs", node_directory);

    if (length < 0 || (size_t)length >= sizeof(logs->directory)) {
        return tdm__fail(TDM_E_LIMIT, "the node's directory has %zu bytes, its path is too long",
                         strlen(node_directory));
    }
    if (mkdir(logs->directory, 0700) < 0 && errno != EEXIST) {
        return tdm__fail_errno(errno, "mkdir %s", logs->directory);
    }
    return TDM_OK;
}

static void logs_include_daemon(const struct tdm__worker_logs *logs)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    int fd;

    write_path(logs, "tandemd.err", path);
    if (tdm__log_file_open(path, &fd) == TDM_OK) {
        tdm__log_add_output(fd);
    }
}

/* Where the kernel gives no more watches, the timer looks by itself. */
static tdm_status watch_directory(struct tdm__worker_logs *logs)
{
    logs->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (logs->changes >= 0 && inotify_add_watch(logs->changes, logs->directory, IN_MODIFY) < 0) {
        (void)close(logs->changes);
        logs->changes = -1;
    }
    if (logs->changes < 0) {
        logs_schedule_read(logs, CHECK_MS);
        return TDM_OK;
    }
    return tdm__fd_watch_create(logs->loop, logs->changes, TDM__READABLE, on_changes, logs,
                                &logs->watch);
}

tdm_status tdm__worker_logs_create(struct tdm__loop *loop,
                                   const struct tdm__worker_logs_options *options,
                                   struct tdm__worker_logs **logs_out)
{
    struct tdm__log_printer_options printer = {.fds = {STDOUT_FILENO, STDERR_FILENO},
                                               .fold = options->fold};
    struct tdm__worker_logs *logs = calloc(1, sizeof(*logs));
    tdm_status status;

    if (logs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the output of workers");
    }
    logs->loop = loop;
    logs->node = options->node;
    logs->changes = -1;
    status = make_directory(logs, options->directory);
    if (status == TDM_OK && options->print) {
        status = tdm__log_printer_create(&printer, &logs->printer);
    }
    if (status == TDM_OK) {
        status = tdm__timer_create(loop, on_timer, logs, &logs->timer);
    }
    if (status == TDM_OK) {
        status = watch_directory(logs);
    }
    if (status != TDM_OK) {
        tdm__worker_logs_destroy(logs);
        return status;
    }
    logs_include_daemon(logs);
    *logs_out = logs;
    return TDM_OK;
}

void tdm__worker_logs_destroy(struct tdm__worker_logs *logs)
{
    if (logs == NULL) {
        return;
    }
    tdm__log_printer_destroy(logs->printer);
    tdm__fd_watch_destroy(logs->watch);
    tdm__timer_destroy(logs->timer);
    if (logs->changes >= 0) {
        (void)close(logs->changes);
    }
    while (logs->all != NULL) {
        struct tdm__log_source *source = logs->all;

        logs->all = source->next;
        free(source);
    }
    free(logs);
}

/* ---- the service "log" ------------------------------------------------------------------ */

static void on_passed(void *arg, struct tdm__rpc_reply *reply)
{
    if (reply->status == TDM_OK) {
        tdm__incoming_reply(arg, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(arg, reply->status, reply->detail);
    }
}

/* Passes the call on if it is for another node. */
static bool pass_on(const struct tdm__worker_logs *logs, struct tdm__incoming_call *incoming)
{
    struct tdm__log_read_message message;
    struct tdm__id node;

    if (logs->node == NULL ||
        tdm__incoming_decode(incoming, tdm__log_read_table(), &message) != TDM_OK ||
        message.node_id == NULL || tdm__id_parse(message.node_id, &node) != TDM_OK ||
        tdm__id_equal(&node, &logs->node->record.id)) {
        return false;
    }
    tdm__node_forward(logs->node, &node, "log.read", tdm__incoming_packed(incoming),
                      tdm__incoming_deadline(incoming), on_passed, incoming);
    return true;
}

static tdm_status find_source(const struct tdm__worker_logs *logs, const char *actor,
                              const struct tdm__log_source **source_out)
{
    struct tdm__id id;

    TDM_TRY(tdm__id_parse(actor, &id));
    for (const struct tdm__log_source *source = logs->all; source != NULL; source = source->next) {
        if (tdm__id_equal(&source->actor, &id)) {
            *source_out = source;
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_NOT_FOUND, "no output of actor %s is kept on this node", actor);
}

static void log_reply_read(struct tdm__worker_logs *logs, const struct tdm__log_source *source,
                           const struct tdm__log_read_message *request,
                           struct tdm__incoming_call *incoming)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct tdm__log_piece_message reply;
    struct tdm__log_file_range piece = {0};
    uint64_t size_bytes;
    uint64_t back;
    char *bytes;

    write_path(logs, source == NULL ? "tandemd.err" : source->streams[request->stream].name, path);
    size_bytes = file_bytes(path);
    back = request->offset < 0 ? (uint64_t)-request->offset : 0;
    piece.offset = request->offset >= 0 ? (uint64_t)request->offset
                   : back < size_bytes  ? size_bytes - back
                                        : 0;
    piece.file_bytes = size_bytes;
    bytes = malloc(request->bytes_max + 1);
    if (bytes == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a piece of a log");
        return;
    }
    if (piece.offset < size_bytes) { /* a file that has gone is an empty one */
        (void)tdm__log_file_read(path, piece.offset, bytes, request->bytes_max, &piece);
    }
    reply = (struct tdm__log_piece_message){.pid = source == NULL ? getpid() : source->pid,
                                            .is_live = source == NULL || source->is_live,
                                            .path = path,
                                            .offset = piece.offset,
                                            .text = {bytes, piece.bytes_count},
                                            .file_bytes = piece.file_bytes};
    tdm__incoming_reply_message(incoming, tdm__log_piece_table(), &reply);
    free(bytes);
}

static void serve_read(struct tdm__worker_logs *logs, struct tdm__incoming_call *incoming)
{
    const struct tdm__log_source *source = NULL;
    struct tdm__log_read_message request;
    tdm_status status = tdm__incoming_decode(incoming, tdm__log_read_table(), &request);

    if (status == TDM_OK && (request.stream < 0 || request.stream >= TDM__LOG_STREAMS ||
                             request.bytes_max > READ_BYTES_MAX || request.offset == INT64_MIN)) {
        status = tdm__fail(TDM_E_INVAL, "stream %lld, offset %lld, %llu bytes",
                           (long long)request.stream, (long long)request.offset,
                           (unsigned long long)request.bytes_max);
    }
    if (status == TDM_OK && request.actor[0] != '\0') {
        status = find_source(logs, request.actor, &source);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        return;
    }
    log_reply_read(logs, source, &request, incoming);
}

static void log_serve(void *self, struct tdm__incoming_call *incoming)
{
    if (strcmp(tdm__incoming_method(incoming), "log.read") != 0) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, tdm__incoming_method(incoming));
    } else if (!pass_on(self, incoming)) {
        serve_read(self, incoming);
    }
}

const struct tdm__service_ops tdm__log_service = {.prefix = "log", .serve = log_serve};
