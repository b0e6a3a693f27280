/* log_service.c - serves the output of a node's workers to commands and drivers. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A command reads ranges of log files ("log.read"). A driver that did not start this node takes the
 * new lines of its job ("log.take") several times a second and prints them. Both see the files that
 * worker_logs.c keeps. The offset up to which lines were printed or taken is the same one, because
 * the lines of a job have one reader: this node's daemon, if it prints, or else the job's driver.
 * A reply holds at most TAKE_BYTES_MAX bytes; what is left over is taken by the next request.
 * Everything runs on the daemon's loop thread. */

#include "actors/daemon/log_service.h"

#include "actors/common/log_label.h"
#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/worker_logs_state.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sizes of replies. */
enum {
    READ_BYTES_MAX = 1 << 20,   /* Most bytes in one reply of "log.read". */
    TAKE_BYTES_MAX = 256 << 10, /* Most bytes of lines in one reply of "log.take". */
    TAKE_PIECES_MAX = 128       /* Most pieces in one reply of "log.take". */
};

/* If a request is for the node `node_id`, and that is another node, forwards the request to that
 * node's daemon and returns true. `node_id` may be NULL. */
static bool log_forward_if_remote(const struct tdm__worker_logs *logs, const char *node_id,
                                  struct tdm__incoming_call *incoming)
{
    struct tdm__id node;

    if (logs->node == NULL || node_id == NULL || tdm__id_parse(node_id, &node) != TDM_OK ||
        tdm__id_equal(&node, &logs->node->record.id)) {
        return false;
    }
    tdm__node_forward(logs->node, &node, tdm__incoming_method(incoming),
                      tdm__incoming_packed(incoming), tdm__incoming_deadline(incoming),
                      tdm__incoming_pass_reply, incoming);
    return true;
}

/* ---- log.read --------------------------------------------------------------------------- */

/* Finds the log files of the newest worker of the actor with the id `actor`, in text form. */
static tdm_status logs_find_source(const struct tdm__worker_logs *logs, const char *actor,
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

/* Replies to "log.read" with a range of a log file. */
static void log_reply_read(struct tdm__worker_logs *logs, const struct tdm__log_source *source,
                           const struct tdm__log_read_message *request,
                           struct tdm__incoming_call *incoming)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct tdm__log_piece_message reply;
    struct tdm__log_file_range range = {0};
    uint64_t size_bytes;
    uint64_t back;
    char *bytes;

    tdm__worker_logs_path(
        logs, source == NULL ? "tandemd.err" : source->streams[request->stream].name, path);
    size_bytes = tdm__log_file_bytes(path);
    back = request->offset < 0 ? (uint64_t)-request->offset : 0;
    range.offset = request->offset >= 0 ? (uint64_t)request->offset
                   : back < size_bytes  ? size_bytes - back
                                        : 0;
    range.file_bytes = size_bytes;
    bytes = malloc(request->bytes_max + 1);
    if (bytes == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a range of a log");
        return;
    }
    if (range.offset < size_bytes) { /* A removed file counts as empty. */
        (void)tdm__log_file_read(path, range.offset, bytes, request->bytes_max, &range);
    }
    reply = (struct tdm__log_piece_message){.pid = source == NULL ? getpid() : source->pid,
                                            .is_live = source == NULL || source->is_live,
                                            .path = path,
                                            .offset = range.offset,
                                            .text = {bytes, range.bytes_count},
                                            .file_bytes = range.file_bytes};
    tdm__incoming_reply_message(incoming, tdm__log_piece_table(), &reply);
    free(bytes);
}

/* Serves "log.read" for this node. The actor id "" in the request stands for the daemon's own log.
 */
static void serve_read_here(struct tdm__worker_logs *logs,
                            const struct tdm__log_read_message *request,
                            struct tdm__incoming_call *incoming)
{
    const struct tdm__log_source *source = NULL;
    tdm_status status = TDM_OK;

    if (request->stream < 0 || request->stream >= TDM__LOG_STREAMS ||
        request->bytes_max > READ_BYTES_MAX || request->offset == INT64_MIN) {
        status = tdm__fail(TDM_E_INVAL, "stream %lld, offset %lld, %llu bytes",
                           (long long)request->stream, (long long)request->offset,
                           (unsigned long long)request->bytes_max);
    }
    if (status == TDM_OK && request->actor[0] != '\0') {
        status = logs_find_source(logs, request->actor, &source);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        return;
    }
    log_reply_read(logs, source, request, incoming);
}

/* Serves "log.read". */
static void serve_read(struct tdm__worker_logs *logs, struct tdm__incoming_call *incoming)
{
    struct tdm__log_read_message request;
    tdm_status status = tdm__incoming_decode(incoming, tdm__log_read_table(), &request);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        return;
    }
    if (!log_forward_if_remote(logs, request.node_id, incoming)) {
        serve_read_here(logs, &request, incoming);
    }
}

/* ---- log.take --------------------------------------------------------------------------- */

/* Lines that are taken for one reply. */
struct taken_lines {
    /* The pieces, whose origins and texts are in the other members. */
    struct tdm__worker_lines_message pieces[TAKE_PIECES_MAX];
    uint32_t pieces_count; /* Number of pieces in use. */
    /* Origin of each piece, such as "trainer pid=12". */
    char origins[TAKE_PIECES_MAX][TDM__LOG_ORIGIN_BYTES];
    size_t text_bytes;         /* Number of bytes of `text` in use. */
    char text[TAKE_BYTES_MAX]; /* Texts of the pieces, with labels between them. */
};

/* Adds a piece with the stream's present origin; an empty text adds nothing. */
static void taken_add(struct taken_lines *taken, const struct log_stream *stream, int stream_number,
                      const char *text, size_t text_bytes)
{
    char *origin = taken->origins[taken->pieces_count];

    if (text_bytes == 0) {
        return;
    }
    (void)snprintf(origin, sizeof(taken->origins[0]), "%s", stream->origin);
    taken->pieces[taken->pieces_count++] = (struct tdm__worker_lines_message){
        .origin = origin, .stream = stream_number, .text = {text, text_bytes}};
}

/* Returns how many bytes at the beginning of `text` are whole lines. */
static size_t whole_lines(const char *text, size_t text_bytes)
{
    const char *newline = text_bytes == 0 ? NULL : memrchr(text, '\n', text_bytes);

    return newline == NULL ? 0 : (size_t)(newline - text) + 1;
}

/* Adds the pieces of a text from a log file. `is_last` is true if the file will not grow. Returns
 * how many bytes of the text were used. */
static size_t taken_add_text(struct taken_lines *taken, const struct tdm__log_source *source,
                             int stream_number, struct log_stream *stream, const char *text,
                             size_t text_bytes, bool is_last)
{
    struct tdm__log_label label;
    size_t used = 0;
    size_t rest;

    while (taken->pieces_count + 2 < TAKE_PIECES_MAX &&
           tdm__log_label_find(text + used, text_bytes - used, &label)) {
        taken_add(taken, stream, stream_number, text + used, label.begin);
        tdm__log_source_set_origin(source, stream, label.name, label.name_bytes);
        used += label.end;
    }
    if (tdm__log_label_find(text + used, text_bytes - used, &label)) {
        return used; /* No room for what follows the label. */
    }
    rest = text_bytes - used;
    if (!is_last && rest < TDM__LOG_CHUNK_BYTES) { /* A longer line is broken. */
        rest = whole_lines(text + used, rest);
    }
    taken_add(taken, stream, stream_number, text + used, rest);
    return used + rest;
}

/* Takes lines of one log file of a worker. Returns true if there is more than fits. */
static bool stream_take(struct tdm__worker_logs *logs, struct tdm__log_source *source,
                        int stream_number, struct taken_lines *taken)
{
    struct log_stream *stream = &source->streams[stream_number];
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct tdm__log_file_range range;
    uint64_t size_bytes;
    size_t used;
    bool is_all;

    tdm__worker_logs_path(logs, stream->name, path);
    size_bytes = tdm__log_file_bytes(path);
    if (size_bytes == stream->printed) {
        return false;
    }
    if (taken->text_bytes + TDM__LOG_CHUNK_BYTES > TAKE_BYTES_MAX ||
        taken->pieces_count + 2 >= TAKE_PIECES_MAX) {
        return true;
    }
    if (tdm__log_file_read(path, size_bytes < stream->printed ? 0 : stream->printed,
                           taken->text + taken->text_bytes, TDM__LOG_CHUNK_BYTES,
                           &range) != TDM_OK) {
        return false;
    }
    tdm__worker_logs_count_lost(logs, stream, &range);
    is_all = range.offset + range.bytes_count >= range.file_bytes;
    used = taken_add_text(taken, source, stream_number, stream, taken->text + taken->text_bytes,
                          range.bytes_count, is_all && !source->is_live);
    taken->text_bytes += range.bytes_count;
    stream->printed += used;
    return used > 0 && stream->printed < range.file_bytes;
}

/* Takes the new lines of all workers of a job. Returns true if there are more than fit. */
static bool logs_take(struct tdm__worker_logs *logs, const struct tdm__id *job,
                      struct taken_lines *taken)
{
    bool has_more = false;

    for (struct tdm__log_source *source = logs->all; source != NULL; source = source->next) {
        for (int i = 0; i < TDM__LOG_STREAMS && tdm__id_equal(&source->job, job); i++) {
            has_more = stream_take(logs, source, i, taken) || has_more;
        }
    }
    return has_more;
}

/* Serves "log.take". */
static void serve_take(struct tdm__worker_logs *logs, struct tdm__incoming_call *incoming)
{
    struct tdm__log_lines_message reply = {.has_more = false};
    struct tdm__log_take_message request;
    struct taken_lines *taken;

    if (tdm__incoming_decode(incoming, tdm__log_take_table(), &request) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    if (log_forward_if_remote(logs, request.node_id, incoming)) {
        return;
    }
    taken = malloc(sizeof(*taken));
    if (taken == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "lines of workers");
        return;
    }
    taken->pieces_count = 0;
    taken->text_bytes = 0;
    if (logs->printer == NULL) {
        reply.has_more = logs_take(logs, &request.job, taken);
    }
    reply.pieces.count = taken->pieces_count;
    reply.pieces.items = taken->pieces;
    tdm__incoming_reply_message(incoming, tdm__log_lines_table(), &reply);
    free(taken);
}

/* ---- the service ------------------------------------------------------------------------ */

/* Serves the calls of the service "log". */
static void log_serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "log.read") == 0) {
        serve_read(self, incoming);
    } else if (strcmp(method, "log.take") == 0) {
        serve_take(self, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

const struct tdm__service_ops tdm__log_service = {.prefix = "log", .serve = log_serve};
