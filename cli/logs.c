/* logs.c - `tandem logs`: prints the output of an actor, or the log of a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The node of the actor has its output in files, and its daemon serves pieces of them. The command
 * reads piece after piece from an offset. With --tail it reads the end of the file first and prints
 * only the last lines. With --follow it polls every FOLLOW_MS until the actor has ended and its
 * output has been read. The node keeps the output of dead actors as long as it remembers them.
 * There is one thread. */

#include "actors/common/log_label.h"
#include "actors/process/runtime.h"
#include "cli/cluster.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/state.h>
#include <unistd.h>

static struct tdm__option options[] = {
    {"--node", false, NULL}, {"--follow", false, NULL}, {"-f", false, NULL}, {"--tail", true, NULL},
    {"--err", false, NULL},  {"--address", true, NULL}, {NULL, false, NULL}};

enum {
    PIECE_BYTES = 256 << 10, /* Largest number of bytes of a log that one request reads. */
    TAIL_BYTES = 1 << 20, /* Number of bytes at the end of a log in which --tail looks for lines. */
    FOLLOW_MS = 100       /* Time in milliseconds between two polls of --follow. */
};

/* The log that is being read, and the position in it. */
struct log_reader {
    tdm_runtime *runtime; /* Connection to the cluster (borrowed). */
    /* ID of the node that has the log; "" for the node to which the command is connected. */
    char node[33];
    char actor[33]; /* ID of the actor whose output is read; "" for the log of the node's daemon. */
    int64_t stream; /* Which output of the actor is read: 0 for stdout, 1 for stderr. */
    /* Offset in the log of the next byte to read; a negative offset counts from the end. */
    int64_t offset;
    /* Whether the process was still running at the last read. */
    bool is_live;
    /* Whether the last read reached the end of the file. */
    bool at_end;
};

/* ---- finding the actor ------------------------------------------------------------------ */

/* Finds the actor that matches `word`, and fills in the actor's ID and node. */
static tdm_status find_actor(tdm_runtime *runtime, const char *word, struct log_reader *log_reader)
{
    const struct tdm_actor_state *actors;
    const struct tdm_actor_state *found = NULL;
    uint32_t count;

    TDM_TRY(tdm_list_actors(runtime, TDM__CLUSTER_TIMEOUT_MS, &actors, &count, NULL));
    for (uint32_t i = 0; i < count; i++) {
        /* The last actor that matches is the newest one. */
        if (tdm__cluster_actor_matches(&actors[i], word)) {
            found = &actors[i];
        }
    }
    if (found != NULL) {
        (void)snprintf(log_reader->actor, sizeof(log_reader->actor), "%s", found->id);
        (void)snprintf(log_reader->node, sizeof(log_reader->node), "%s", found->node_id);
    }
    tdm_list_free(actors);
    if (found == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND,
                         "finding the actor failed: no actor has the name \"%s\" or an id that "
                         "begins with it. See: tandem "
                         "list actors",
                         word);
    }
    return TDM_OK;
}

/* ---- log_reader ---------------------------------------------------------------------------- */

/* Returns the offset in bytes at which the last `lines` lines of a text begin. */
static size_t begin_of_last_lines(const char *text, size_t bytes, uint64_t lines)
{
    size_t first = bytes;
    uint64_t seen = 0;

    while (first > 0) {
        if (text[first - 1] == '\n' && first != bytes && ++seen == lines) {
            break;
        }
        first--;
    }
    return lines == 0 ? bytes : first;
}

/* Prints a text without its log labels. */
static void print_without_labels(const char *text, size_t bytes)
{
    struct tdm__log_label label;

    while (tdm__log_label_find(text, bytes, &label)) {
        (void)fwrite(text, 1, label.begin, stdout);
        text += label.end;
        bytes -= label.end;
    }
    (void)fwrite(text, 1, bytes, stdout);
    (void)fflush(stdout);
}

/* Reads the next piece of the log and prints its last `tail` lines (all if UINT64_MAX). Moves the
 * offset behind the piece. */
static tdm_status read_piece(struct log_reader *log_reader, uint64_t tail)
{
    uint64_t bytes_max = tail == UINT64_MAX ? PIECE_BYTES : TAIL_BYTES;
    tdm_document *document;
    const struct tdm__log_read_message message = {.actor = log_reader->actor,
                                                  .stream = log_reader->stream,
                                                  .offset = log_reader->offset,
                                                  .bytes_max = bytes_max,
                                                  .node_id = log_reader->node};
    struct tdm__log_piece_message piece;
    struct tdm_bytes text;
    tdm_writer *writer;
    size_t first = 0;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__log_read_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(log_reader->runtime, "log.read", tdm_writer_bytes(writer),
                                          TDM__CLUSTER_TIMEOUT_MS, &document);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    status = tdm__log_piece_decode(tdm_document_root(document), &piece);
    if (status != TDM_OK) {
        tdm_document_destroy(document);
        return status;
    }
    text = piece.text;
    if (tail != UINT64_MAX) {
        first = begin_of_last_lines(text.data, text.size_bytes, tail);
    }
    if (text.size_bytes > first) {
        print_without_labels((const char *)text.data + first, text.size_bytes - first);
    }
    log_reader->offset = (int64_t)(piece.offset + text.size_bytes);
    log_reader->at_end = log_reader->offset >= (int64_t)piece.file_bytes;
    log_reader->is_live = piece.is_live;
    tdm_document_destroy(document);
    return TDM_OK;
}

/* Prints the rest of the log. With `follow`, continues until the actor or daemon ends. */
static tdm_status read_all(struct log_reader *log_reader, const char *tail, bool follow)
{
    if (tail != NULL) {
        log_reader->offset = -(int64_t)TAIL_BYTES;
        TDM_TRY(read_piece(log_reader, strtoull(tail, NULL, 10)));
    }
    for (;;) {
        tdm_status status = read_piece(log_reader, UINT64_MAX);

        if (status == TDM_E_NODE_LOST && follow) {
            (void)fputs("tandem: the node has ended\n", stderr);
            return TDM_OK;
        }
        TDM_TRY(status);
        if (log_reader->at_end && (!follow || !log_reader->is_live || ferror(stdout) != 0)) {
            return TDM_OK;
        }
        if (log_reader->at_end) {
            (void)poll(NULL, 0, FOLLOW_MS);
        }
    }
}

/* Chooses the log that the command line names and prints the log. */
static tdm_status logs_print(tdm_runtime *runtime, const struct tdm__parsed_arguments *args)
{
    struct log_reader log_reader = {.runtime = runtime,
                                    .stream = tdm__option_value(args, "--err") != NULL};
    bool follow =
        tdm__option_value(args, "--follow") != NULL || tdm__option_value(args, "-f") != NULL;

    if (args->operands_count > 0) {
        TDM_TRY(find_actor(runtime, args->operands[0], &log_reader));
    }
    return read_all(&log_reader, tdm__option_value(args, "--tail"), follow);
}

/* Returns whether the text is a decimal number. */
static bool is_number(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* Runs `tandem logs` and returns the exit code. */
static int logs_main(const struct tdm__parsed_arguments *args)
{
    const char *tail = tdm__option_value(args, "--tail");
    tdm_runtime *runtime;
    tdm_status status;

    if ((args->operands_count == 0) == (tdm__option_value(args, "--node") == NULL)) {
        return tdm__refuse_arguments("logs", "name one actor, or give --node");
    }
    if (tail != NULL && !is_number(tail)) {
        return tdm__refuse_arguments("logs", "--tail: expected a number of lines, got \"%s\"",
                                     tail);
    }
    status = tdm__cluster_join(args, &runtime);
    return status == TDM_OK ? tdm__cluster_leave(runtime, logs_print(runtime, args))
                            : tdm__command_failed(status);
}

const struct tdm__command tdm__command_logs = {
    .name = "logs",
    .summary = "print what an actor printed",
    .help = "usage: tandem logs ACTOR|--node [--err] [--tail N] [--follow]\n\n"
            "ACTOR is a name, or at least 4 digits of an id; `tandem list actors` tells both.\n"
            "What dead actors printed is there while their node remembers them.\n\n"
            "  --node        what the daemon of the node logged\n"
            "  --err         stderr instead of stdout\n"
            "  --tail N      only the last N lines (of the last MiB)\n"
            "  --follow, -f  goes on until the actor ends\n"
            "  --address     of a node; default: TANDEM_ADDRESS, else the only node here\n",
    .options = options,
    .operands_min = 0,
    .operands_max = 1,
    .run = logs_main};
