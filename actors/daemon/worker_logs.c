/* worker_logs.c - the output of a node's workers: kept in files, printed, and served to tools. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A source is the pair of log files of one worker: opened before the start under the name
 * "starting-N", renamed when the pid is known, remembered with ENDED_MAX others after the end.
 * Where output is printed, inotify or a timer reports changes, and each pass prints at most
 * PRINT_CHUNKS_PER_PASS chunks of each file, so that the loop stays responsive. Otherwise the files
 * are only limited in size.
 *
 * Invariants: `printed` never exceeds the end of its file; bytes that were overwritten before they
 * were printed are counted in lost_bytes; a source in use is never freed. log_files.c limits and
 * reads files, log_printer.c prints lines, log_service.c serves them. Everything runs on the
 * daemon's loop thread. */

#include "actors/daemon/worker_logs.h"

#include "actors/common/log_label.h"
#include "actors/daemon/worker_logs_state.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* Most chunks of one log file that are printed before the loop serves other events. */
    PRINT_CHUNKS_PER_PASS = 8,
    /* Most milliseconds from a worker's write to the print on the daemon's terminal. */
    PRINT_MS = 20,
    /* Milliseconds between checks of the files' sizes if nothing is printed. */
    CHECK_MS = 1000,
    SLOW_READER_MS = 20,  /* Milliseconds until the next attempt to print to a slow reader. */
    PRUNE_MS = 60000,     /* Milliseconds between removals of old log files. */
    ENDED_MAX = 512,      /* Number of ended workers whose files are remembered. */
    FINAL_PRINT_MS = 2000 /* Most milliseconds for printing the last lines of an ended worker. */
};

static const char *const suffixes[TDM__LOG_STREAMS] = {".out", ".err"};

void tdm__worker_logs_path(const struct tdm__worker_logs *logs, const char *name,
                           char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES])
{
    (void)snprintf(path, TDM__PATH_BYTES + TDM__LOG_NAME_BYTES, "%s/%s", logs->directory, name);
}

/* ---- printing --------------------------------------------------------------------------- */

void tdm__worker_logs_count_lost(struct tdm__worker_logs *logs, struct log_stream *stream,
                                 const struct tdm__log_file_range *range)
{
    if (range->file_bytes < stream->printed) {
        stream->printed = 0;
    } else if (range->offset > stream->printed) {
        logs->lost_bytes += range->offset - stream->printed;
        stream->printed = range->offset;
    }
}

void tdm__log_source_set_origin(const struct tdm__log_source *source, struct log_stream *stream,
                                const char *name, size_t name_bytes)
{
    const char *shown = name_bytes == 0 ? source->label : name;
    size_t shown_bytes = name_bytes == 0 ? strlen(source->label) : name_bytes;
    char label[TDM__LOG_LABEL_BYTES];

    (void)snprintf(label, sizeof(label), "%.*s", (int)shown_bytes, shown);
    (void)snprintf(stream->origin, sizeof(stream->origin), "%s%s pid=%d", tdm__utf8_trim(label),
                   strlen(label) < shown_bytes ? "…" : "", (int)source->pid);
}

/* Prints the text of logs->chunk, which has `bytes` bytes and contains log labels. Returns how many
 * bytes were taken. */
static size_t source_print_text(struct tdm__log_source *source, enum tdm__log_stream stream_number,
                                size_t bytes, bool is_last)
{
    struct tdm__worker_logs *logs = source->logs;
    struct log_stream *stream = &source->streams[stream_number];
    struct tdm__log_label label;
    size_t used = 0;

    while (tdm__log_label_find(logs->chunk + used, bytes - used, &label)) {
        size_t taken = tdm__log_printer_write(logs->printer, stream_number, stream->origin,
                                              logs->chunk + used, label.begin, true);

        if (taken < label.begin) {
            return used + taken;
        }
        tdm__log_source_set_origin(source, stream, label.name, label.name_bytes);
        used += label.end;
    }
    return used + tdm__log_printer_write(logs->printer, stream_number, stream->origin,
                                         logs->chunk + used, bytes - used, is_last);
}

/* Prints one chunk of one log file of a worker. Returns true when more can be printed now. */
static bool source_print_chunk(struct tdm__log_source *source, enum tdm__log_stream stream_number)
{
    struct tdm__worker_logs *logs = source->logs;
    struct log_stream *stream = &source->streams[stream_number];
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct tdm__log_file_range range;
    uint64_t size_bytes;
    size_t taken;
    bool is_all;

    tdm__worker_logs_path(logs, stream->name, path);
    size_bytes = tdm__log_file_bytes(path);
    if (size_bytes == stream->printed ||
        tdm__log_file_read(path, size_bytes < stream->printed ? 0 : stream->printed, logs->chunk,
                           sizeof(logs->chunk), &range) != TDM_OK) {
        return false;
    }
    tdm__worker_logs_count_lost(logs, stream, &range);
    is_all = range.offset + range.bytes_count >= range.file_bytes;
    taken = source_print_text(source, stream_number, range.bytes_count, is_all && !source->is_live);
    stream->printed += taken;
    return taken > 0 && !is_all;
}

/* Prints new output of both log files of a worker, up to PRINT_CHUNKS_PER_PASS chunks each. Returns
 * true when everything has been printed. */
static bool source_print(struct tdm__log_source *source)
{
    bool done = true;

    for (int stream_number = 0; stream_number < TDM__LOG_STREAMS; stream_number++) {
        int chunks = 0;

        while (chunks < PRINT_CHUNKS_PER_PASS &&
               source_print_chunk(source, (enum tdm__log_stream)stream_number)) {
            chunks++;
        }
        done = done && chunks < PRINT_CHUNKS_PER_PASS;
    }
    return done;
}

/* True if a log file of the worker has output that was not printed. */
static bool source_has_unprinted(const struct tdm__log_source *source)
{
    for (int stream_number = 0; stream_number < TDM__LOG_STREAMS; stream_number++) {
        char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

        tdm__worker_logs_path(source->logs, source->streams[stream_number].name, path);
        if (tdm__log_file_bytes(path) > source->streams[stream_number].printed) {
            return true;
        }
    }
    return false;
}

/* ---- bounds ----------------------------------------------------------------------------- */

/* True for a log file that must not be removed: that of the daemon or of a living worker. */
static bool logs_file_is_in_use(const void *arg, const char *name)
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

/* Limits the size of each log file of a living worker, and every PRUNE_MS that of all log files
 * together. */
static void logs_limit_files(struct tdm__worker_logs *logs)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

    for (const struct tdm__log_source *source = logs->all; source != NULL; source = source->next) {
        for (int stream_number = 0; stream_number < TDM__LOG_STREAMS && source->is_live;
             stream_number++) {
            tdm__worker_logs_path(logs, source->streams[stream_number].name, path);
            tdm__log_file_bound(path, TDM__LOG_FILE_BYTES);
        }
    }
    tdm__worker_logs_path(logs, "tandemd.err", path);
    tdm__log_file_bound(path, TDM__LOG_FILE_BYTES);
    if (logs->prune_ms <= tdm__clock_ms()) {
        logs->prune_ms = tdm__deadline_after(PRUNE_MS);
        tdm__log_files_prune(logs->directory, TDM__LOG_TOTAL_BYTES, logs_file_is_in_use, logs);
    }
}

/* Frees the entries of workers that ended first, beyond ENDED_MAX entries of ended workers. */
static void logs_forget_ended(struct tdm__worker_logs *logs)
{
    uint32_t ended = 0;

    for (struct tdm__log_source **link = &logs->all; *link != NULL;) {
        struct tdm__log_source *source = *link;

        ended += source->is_live ? 0 : 1;
        if (source->is_live || ended <= ENDED_MAX) {
            link = &source->next;
            continue;
        }
        *link = source->next;
        free(source);
    }
    logs->ended_count = ended < ENDED_MAX ? ended : ENDED_MAX;
}

/* ---- passes over the files --------------------------------------------------------------- */

/* Sets the timer so that the next pass over the log files begins in `milliseconds`. */
static void logs_schedule_read(struct tdm__worker_logs *logs, int64_t milliseconds)
{
    logs->timer_is_set = true;
    (void)tdm__timer_set(logs->timer, tdm__deadline_after(milliseconds));
}

/* Discards pending inotify events, because a pass checks every log file anyway. */
static void logs_drain_inotify(struct tdm__worker_logs *logs)
{
    char events[4096];

    while (logs->inotify_fd >= 0 && read(logs->inotify_fd, events, sizeof(events)) > 0) {
    }
}

/* Makes one pass over the log files: prints new output, limits the files' sizes and schedules the
 * next pass. */
static void on_logs_timer(void *arg)
{
    struct tdm__worker_logs *logs = arg;
    bool done = true;
    bool flushed = true;

    logs->timer_is_set = false;
    logs_drain_inotify(logs);
    if (logs->printer != NULL) {
        for (struct tdm__log_source *source = logs->all; source != NULL; source = source->next) {
            done = (!source->is_live || source_print(source)) && done;
        }
        flushed = tdm__log_printer_flush(logs->printer);
    }
    logs_limit_files(logs);
    if (!done) {
        logs_schedule_read(logs, 0);
    } else if (!flushed) {
        logs_schedule_read(logs, SLOW_READER_MS);
    } else if (logs->inotify_fd < 0) {
        logs_schedule_read(logs, logs->printer != NULL ? PRINT_MS : CHECK_MS);
    } else {
        (void)tdm__fd_watch_set_events(logs->watch, TDM__READABLE);
    }
}

/* Schedules a pass over the log files because one of them has changed. */
static void on_inotify_readable(void *arg, int fd, unsigned ready)
{
    struct tdm__worker_logs *logs = arg;

    (void)fd;
    (void)ready;
    (void)tdm__fd_watch_set_events(logs->watch,
                                   /* Stop watching: further events tell nothing new until the timer
                                    * fires. */
                                   0);
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
        .logs = logs, .next = logs->all, .actor = spec->id, .job = spec->job, .is_live = true};
    (void)snprintf(source->label, sizeof(source->label), "%s",
                   spec->name[0] != '\0' ? spec->name : spec->class_name);
    logs->starting_number++;
    for (; opened < TDM__LOG_STREAMS && status == TDM_OK; opened++) {
        char *name = source->streams[opened].name;

        (void)snprintf(name, TDM__LOG_NAME_BYTES, "starting-%llu%s",
                       (unsigned long long)logs->starting_number, suffixes[opened]);
        tdm__worker_logs_path(logs, name, path);
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
    for (int stream_number = 0; stream_number < TDM__LOG_STREAMS; stream_number++) {
        char *name = source->streams[stream_number].name;

        tdm__log_source_set_origin(source, &source->streams[stream_number], NULL, 0);
        tdm__worker_logs_path(source->logs, name, from);
        tdm__log_file_name(source->label, tdm__id_text(&source->actor, id), pid,
                           suffixes[stream_number], name);
        tdm__worker_logs_path(source->logs, name, to);
        (void)rename(from, to);
    }
}

void tdm__log_source_ended(struct tdm__log_source *source)
{
    struct tdm__worker_logs *logs = source->logs;

    source->is_live = false;
    if (logs->printer != NULL) {
        int64_t deadline_ms = tdm__deadline_after(FINAL_PRINT_MS);

        while (source_has_unprinted(source) && tdm__clock_ms() < deadline_ms &&
               (!source_print(source) || source_has_unprinted(source))) {
            if (!tdm__log_printer_flush(logs->printer)) {
                /* The reader of stdout is slow, so the rest is not printed and stays in the file.
                 */
                break;
            }
        }
        if (!tdm__log_printer_flush(logs->printer) && !logs->timer_is_set) {
            logs_schedule_read(logs, SLOW_READER_MS);
        }
    }
    for (int stream_number = 0; stream_number < TDM__LOG_STREAMS; stream_number++) {
        char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

        tdm__worker_logs_path(logs, source->streams[stream_number].name, path);
        tdm__log_file_bound(path, TDM__LOG_FILE_BYTES);
        if (tdm__log_file_bytes(path) == 0) {
            (void)unlink(path);
        }
    }
    logs->ended_count++;
    if (logs->ended_count > ENDED_MAX) {
        logs_forget_ended(logs);
    }
}

size_t tdm__log_source_last_lines(const struct tdm__log_source *source, uint32_t lines_max,
                                  char *text, size_t capacity)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

    tdm__worker_logs_path(source->logs, source->streams[TDM__LOG_ERR].name, path);
    return tdm__log_label_remove(text, tdm__log_file_last_lines(path, lines_max, text, capacity));
}

uint64_t tdm__worker_logs_lost_bytes(const struct tdm__worker_logs *logs)
{
    return logs->lost_bytes;
}

/* ---- creation and destruction ------------------------------------------------------------ */

/* Creates the folder "logs" of the log files in the directory of the node. */
static tdm_status logs_create_directory(struct tdm__worker_logs *logs, const char *node_directory)
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

/* Writes the daemon's own log to a file in the folder "logs", too. */
static void logs_include_daemon(const struct tdm__worker_logs *logs)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    int fd;

    tdm__worker_logs_path(logs, "tandemd.err", path);
    if (tdm__log_file_open(path, &fd) == TDM_OK) {
        tdm__log_add_output(fd);
    }
}

/* Watches the folder of log files by inotify; where the kernel has no watches left, the timer
 * polls. */
static tdm_status logs_watch_directory(struct tdm__worker_logs *logs)
{
    logs->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (logs->inotify_fd >= 0 &&
        inotify_add_watch(logs->inotify_fd, logs->directory, IN_MODIFY) < 0) {
        (void)close(logs->inotify_fd);
        logs->inotify_fd = -1;
    }
    if (logs->inotify_fd < 0) {
        logs_schedule_read(logs, CHECK_MS);
        return TDM_OK;
    }
    return tdm__fd_watch_create(logs->loop, logs->inotify_fd, TDM__READABLE, on_inotify_readable,
                                logs, &logs->watch);
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
    logs->inotify_fd = -1;
    status = logs_create_directory(logs, options->directory);
    if (status == TDM_OK && options->print) {
        status = tdm__log_printer_create(&printer, &logs->printer);
    }
    if (status == TDM_OK) {
        status = tdm__timer_create(loop, on_logs_timer, logs, &logs->timer);
    }
    if (status == TDM_OK) {
        status = logs_watch_directory(logs);
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
    if (logs->inotify_fd >= 0) {
        (void)close(logs->inotify_fd);
    }
    while (logs->all != NULL) {
        struct tdm__log_source *source = logs->all;

        logs->all = source->next;
        free(source);
    }
    free(logs);
}
