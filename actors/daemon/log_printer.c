/* log_printer.c - prints lines of other processes on this process's stdout and stderr. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Lines are collected in one buffer for each stream and written with write(2) when poll() reports
 * the stream as writable. A pipe that is reported as writable accepts PIPE_BUF bytes, the size of
 * the buffer, without blocking. When the reader is slow, the buffer stays full and the caller keeps
 * its lines.
 *
 * Folding: a printed line is remembered for FOLD_MS; equal lines of any process within that time
 * are only counted, and the count is printed afterwards. Invariant: a buffer contains whole lines.
 * Everything runs on the daemon's loop thread. */

#include "actors/daemon/log_printer.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 4096,   /* Capacity of the line buffer of a stream; equals PIPE_BUF. */
    LINE_BYTES_MAX = 3900, /* Most bytes of a line; a longer one is broken. */
    FOLDED_MAX = 64,       /* Most lines whose repetitions are counted at the same time. */
    FOLD_MS = 5000,        /* Milliseconds for which repetitions of a line are counted. */
    FINAL_WRITE_MS = 1000  /* Milliseconds that each of the last writes waits for the reader. */
};

/* A line that was printed a short while ago, and the number of its repetitions since. */
struct folded_line {
    char *line;        /* Text of the line, owned; NULL in an unused entry. */
    size_t line_bytes; /* Length of `line`. */
    /* Process that wrote the last repetition, such as "trainer pid=12". */
    char origin[80];
    enum tdm__log_stream stream; /* Stream on which the line was printed. */
    /* Time at which the number of repetitions is printed, in milliseconds on CLOCK_MONOTONIC. */
    int64_t until_ms;
    uint32_t repeats; /* Number of repetitions of the line that were not printed. */
};

/* A printer for the two streams of this process. */
struct tdm__log_printer {
    /* Descriptors on which stdout's and stderr's lines are printed, borrowed. */
    int fds[TDM__LOG_STREAMS];
    bool is_coloured[TDM__LOG_STREAMS]; /* True for a stream whose origins are coloured. */
    bool fold;                          /* True if repeated lines are counted instead of printed. */
    /* Lines that were printed within the last FOLD_MS, with the counts of their repetitions. */
    struct folded_line folded_lines[FOLDED_MAX];
    struct line_buffer {          /* Buffers of the two streams. */
        char bytes[BUFFER_BYTES]; /* Whole lines to print, each with its origin and its newline. */
        size_t count;             /* Number of bytes in `bytes`. */
    } buffers[TDM__LOG_STREAMS];
};

tdm_status tdm__log_printer_create(const struct tdm__log_printer_options *options,
                                   struct tdm__log_printer **printer_out)
{
    struct tdm__log_printer *printer = calloc(1, sizeof(*printer));
    const char *no_color = getenv("NO_COLOR");

    if (printer == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a printer of lines");
    }
    printer->fold = options->fold;
    for (int i = 0; i < TDM__LOG_STREAMS; i++) {
        printer->fds[i] = options->fds[i];
        printer->is_coloured[i] =
            isatty(options->fds[i]) != 0 && (no_color == NULL || no_color[0] == '\0');
    }
    *printer_out = printer;
    return TDM_OK;
}

/* ---- buffers ----------------------------------------------------------------------------- */

/* Writes the buffered lines of a stream to its descriptor and waits at most `patience_ms`
 * milliseconds for the reader. Returns false when the reader is slow. The lines are dropped if the
 * descriptor is broken. */
static bool line_buffer_write(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                              int patience_ms)
{
    struct line_buffer *line_buffer = &printer->buffers[stream];
    struct pollfd reader = {.fd = printer->fds[stream], .events = POLLOUT};
    size_t written = 0;

    if (line_buffer->count == 0) {
        return true;
    }
    if (poll(&reader, 1, patience_ms) == 0) {
        return false;
    }
    while (written < line_buffer->count) {
        ssize_t got = write(reader.fd, line_buffer->bytes + written, line_buffer->count - written);

        if (got < 0 && errno != EINTR) {
            break;
        }
        written += got > 0 ? (size_t)got : 0;
    }
    line_buffer->count = 0;
    return true;
}

/* Writes the prefix of a line, "(origin) ", and returns its length. */
static size_t format_origin(const struct tdm__log_printer *printer, enum tdm__log_stream stream,
                            const char *origin, char text[128])
{
    bool coloured = printer->is_coloured[stream];

    return (size_t)snprintf(text, 128, "%s(%.80s)%s ", coloured ? "\033[36m" : "", origin,
                            coloured ? "\033[0m" : "");
}

/* Adds one line to the buffer of its stream. Returns false, and adds nothing, when the buffer is
 * full and the reader is slow. */
static bool line_buffer_add(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                            const char *origin, const char *line, size_t line_bytes)
{
    struct line_buffer *line_buffer = &printer->buffers[stream];
    char prefix[128];
    size_t prefix_bytes = format_origin(printer, stream, origin, prefix);
    char *end;

    if (line_buffer->count + prefix_bytes + line_bytes + 1 > BUFFER_BYTES &&
        !line_buffer_write(printer, stream, 0)) {
        return false;
    }
    end = line_buffer->bytes + line_buffer->count;
    memcpy(end, prefix, prefix_bytes);
    memcpy(end + prefix_bytes, line, line_bytes);
    end[prefix_bytes + line_bytes] = '\n';
    line_buffer->count += prefix_bytes + line_bytes + 1;
    return true;
}

/* ---- repeated lines --------------------------------------------------------------------- */

/* Prints how often a folded line was repeated and frees the entry. Returns false if the reader is
 * slow and the caller must try again. */
static bool folded_line_print_count(struct tdm__log_printer *printer,
                                    struct folded_line *folded_line)
{
    char line[LINE_BYTES_MAX];
    int shown_bytes =
        (int)(folded_line->line_bytes > LINE_BYTES_MAX - 64 ? LINE_BYTES_MAX - 64
                                                            : folded_line->line_bytes);
    int line_bytes = snprintf(line, sizeof(line), "%.*s [repeated %ux across actors]", shown_bytes,
                              folded_line->line, folded_line->repeats);

    if (folded_line->repeats > 0 && line_bytes > 0 &&
        !line_buffer_add(printer, folded_line->stream, folded_line->origin, line,
                         (size_t)line_bytes)) {
        return false;
    }
    free(folded_line->line);
    *folded_line = (struct folded_line){.line = NULL};
    return true;
}

bool tdm__log_printer_flush(struct tdm__log_printer *printer)
{
    int64_t now_ms = tdm__clock_ms();
    bool done = true;

    for (int i = 0; i < FOLDED_MAX; i++) {
        if (printer->folded_lines[i].line != NULL && printer->folded_lines[i].until_ms <= now_ms) {
            (void)folded_line_print_count(printer, &printer->folded_lines[i]);
        }
        done = done && printer->folded_lines[i].line == NULL;
    }
    for (int i = 0; i < TDM__LOG_STREAMS; i++) {
        done = line_buffer_write(printer, (enum tdm__log_stream)i, 0) && done;
    }
    return done;
}

/* If the same line was printed within the last FOLD_MS, counts the repetition and returns true. */
static bool folded_line_count(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                              const char *origin, const char *line, size_t line_bytes)
{
    for (int i = 0; i < FOLDED_MAX; i++) {
        struct folded_line *folded_line = &printer->folded_lines[i];

        if (folded_line->line != NULL && folded_line->line_bytes == line_bytes &&
            folded_line->stream == stream && memcmp(folded_line->line, line, line_bytes) == 0) {
            (void)snprintf(folded_line->origin, sizeof(folded_line->origin), "%s", origin);
            folded_line->repeats++;
            return true;
        }
    }
    return false;
}

/* Remembers a printed line, so that its repetitions are counted, if there is a free entry. */
static void folded_line_add(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                            const char *line, size_t line_bytes)
{
    struct folded_line *place = printer->folded_lines;

    while (place < printer->folded_lines + FOLDED_MAX && place->line != NULL) {
        place++;
    }
    if (place == printer->folded_lines + FOLDED_MAX ||
        (place->line = malloc(line_bytes + 1)) == NULL) {
        return;
    }
    memcpy(place->line, line, line_bytes);
    place->line_bytes = line_bytes;
    place->stream = stream;
    place->until_ms = tdm__deadline_after(FOLD_MS);
}

/* ---- lines ------------------------------------------------------------------------------ */

/* Finds the first line of `text`: `*line_out` is its length without the newline, `*taken_out` with
 * it. Returns false if the line is not complete. */
static bool find_first_line(const char *text, size_t text_bytes, bool is_last, size_t *line_out,
                            size_t *taken_out)
{
    const char *end = memchr(text, '\n', text_bytes < LINE_BYTES_MAX ? text_bytes : LINE_BYTES_MAX);

    if (end != NULL) {
        *line_out = (size_t)(end - text);
        *taken_out = *line_out + 1;
        return true;
    }
    *line_out = text_bytes < LINE_BYTES_MAX ? text_bytes : LINE_BYTES_MAX;
    *taken_out = *line_out;
    return text_bytes >= LINE_BYTES_MAX || (is_last && text_bytes > 0);
}

size_t tdm__log_printer_write(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                              const char *origin, const char *text, size_t text_bytes, bool is_last)
{
    size_t used = 0;
    size_t line_bytes;
    size_t taken;

    while (find_first_line(text + used, text_bytes - used, is_last, &line_bytes, &taken)) {
        bool repeated =
            printer->fold && folded_line_count(printer, stream, origin, text + used, line_bytes);

        if (!repeated && !line_buffer_add(printer, stream, origin, text + used, line_bytes)) {
            break;
        }
        if (printer->fold && !repeated) {
            folded_line_add(printer, stream, text + used, line_bytes);
        }
        used += taken;
    }
    (void)line_buffer_write(printer, stream, 0);
    return used;
}

void tdm__log_printer_destroy(struct tdm__log_printer *printer)
{
    if (printer == NULL) {
        return;
    }
    for (int i = 0; i < FOLDED_MAX; i++) {
        if (printer->folded_lines[i].line != NULL) {
            (void)line_buffer_write(printer, printer->folded_lines[i].stream, FINAL_WRITE_MS);
            (void)folded_line_print_count(printer, &printer->folded_lines[i]);
        }
    }
    for (int i = 0; i < TDM__LOG_STREAMS; i++) {
        (void)line_buffer_write(printer, (enum tdm__log_stream)i, FINAL_WRITE_MS);
    }
    for (int i = 0; i < FOLDED_MAX; i++) {
        free(printer->folded_lines[i].line);
    }
    free(printer);
}
