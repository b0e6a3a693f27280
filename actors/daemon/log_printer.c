/* log_printer.c - lines of other processes on this one's stdout and stderr, with their origin.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/log_printer.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A pipe that polls as writable takes PIPE_BUF bytes without waiting. */
enum {
    PIECE_BYTES = 4096,
    LINE_BYTES_MAX = 3900,
    FOLDED_MAX = 64,
    FOLD_MS = 5000,
    LAST_WORDS_MS = 1000
};

/* A line that was printed, and how often it came again since. */
struct repeated_line {
    char *line; /* owned; NULL: free place */
    size_t line_bytes;
    char origin[80]; /* of its last coming */
    enum tdm__log_stream stream;
    int64_t until_ms;
    uint32_t repeats;
};

struct tdm__log_printer {
    int fds[TDM__LOG_STREAMS];
    bool coloured[TDM__LOG_STREAMS];
    bool fold;
    struct repeated_line repeated_line[FOLDED_MAX];
    struct write_piece { /* whole lines that have been taken, and not written yet */
        char bytes[PIECE_BYTES];
        size_t count;
    } pieces[TDM__LOG_STREAMS];
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
        printer->coloured[i] =
            isatty(options->fds[i]) != 0 && (no_color == NULL || no_color[0] == '\0');
    }
    *printer_out = printer;
    return TDM_OK;
}

/* ---- pieces ----------------------------------------------------------------------------- */

/* False when the reader is slow.  What a broken descriptor does not take is dropped. */
static bool piece_write(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                        int patience_ms)
{
    struct write_piece *write_piece = &printer->pieces[stream];
    struct pollfd reader = {.fd = printer->fds[stream], .events = POLLOUT};
    size_t written = 0;

    if (write_piece->count == 0) {
        return true;
    }
    if (poll(&reader, 1, patience_ms) == 0) {
        return false;
    }
    while (written < write_piece->count) {
        ssize_t got = write(reader.fd, write_piece->bytes + written, write_piece->count - written);

        if (got < 0 && errno != EINTR) {
            break;
        }
        written += got > 0 ? (size_t)got : 0;
    }
    write_piece->count = 0;
    return true;
}

static size_t format_origin(const struct tdm__log_printer *printer, enum tdm__log_stream stream,
                            const char *origin, char text[128])
{
    bool coloured = printer->coloured[stream];

    return (size_t)snprintf(text, 128, "%s(%.80s)%s ", coloured ? "\033[36m" : "", origin,
                            coloured ? "\033[0m" : "");
}

/* False, and nothing added, when there is no room and the reader is slow. */
static bool piece_add(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                      const char *origin, const char *line, size_t line_bytes)
{
    struct write_piece *write_piece = &printer->pieces[stream];
    char prefix[128];
    size_t prefix_bytes = format_origin(printer, stream, origin, prefix);
    char *end;

    if (write_piece->count + prefix_bytes + line_bytes + 1 > PIECE_BYTES &&
        !piece_write(printer, stream, 0)) {
        return false;
    }
    end = write_piece->bytes + write_piece->count;
    memcpy(end, prefix, prefix_bytes);
    memcpy(end + prefix_bytes, line, line_bytes);
    end[prefix_bytes + line_bytes] = '\n';
    write_piece->count += prefix_bytes + line_bytes + 1;
    return true;
}

/* ---- repeated lines --------------------------------------------------------------------- */

/* False when it must be tried again. */
static bool tell_count(struct tdm__log_printer *printer, struct repeated_line *repeated_line)
{
    char line[LINE_BYTES_MAX];
    int shown_bytes =
        (int)(repeated_line->line_bytes > LINE_BYTES_MAX - 64 ? LINE_BYTES_MAX - 64
                                                              : repeated_line->line_bytes);
    int line_bytes = snprintf(line, sizeof(line), "%.*s [repeated %ux across actors]", shown_bytes,
                              repeated_line->line, repeated_line->repeats);

    if (repeated_line->repeats > 0 && line_bytes > 0 &&
        !piece_add(printer, repeated_line->stream, repeated_line->origin, line,
                   (size_t)line_bytes)) {
        return false;
    }
    free(repeated_line->line);
    *repeated_line = (struct repeated_line){.line = NULL};
    return true;
}

bool tdm__log_printer_flush(struct tdm__log_printer *printer)
{
    int64_t now_ms = tdm__clock_ms();
    bool done = true;

    for (int i = 0; i < FOLDED_MAX; i++) {
        if (printer->repeated_line[i].line != NULL &&
            printer->repeated_line[i].until_ms <= now_ms) {
            (void)tell_count(printer, &printer->repeated_line[i]);
        }
        done = done && printer->repeated_line[i].line == NULL;
    }
    for (int i = 0; i < TDM__LOG_STREAMS; i++) {
        done = piece_write(printer, (enum tdm__log_stream)i, 0) && done;
    }
    return done;
}

/* True, and counted, if the line was printed a short while ago. */
static bool is_repeated(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                        const char *origin, const char *line, size_t line_bytes)
{
    for (int i = 0; i < FOLDED_MAX; i++) {
        struct repeated_line *repeated_line = &printer->repeated_line[i];

        if (repeated_line->line != NULL && repeated_line->line_bytes == line_bytes &&
            repeated_line->stream == stream && memcmp(repeated_line->line, line, line_bytes) == 0) {
            (void)snprintf(repeated_line->origin, sizeof(repeated_line->origin), "%s", origin);
            repeated_line->repeats++;
            return true;
        }
    }
    return false;
}

static void printed_line_remember(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                                  const char *line, size_t line_bytes)
{
    struct repeated_line *place = printer->repeated_line;

    while (place < printer->repeated_line + FOLDED_MAX && place->line != NULL) {
        place++;
    }
    if (place == printer->repeated_line + FOLDED_MAX ||
        (place->line = malloc(line_bytes + 1)) == NULL) {
        return;
    }
    memcpy(place->line, line, line_bytes);
    place->line_bytes = line_bytes;
    place->stream = stream;
    place->until_ms = tdm__deadline_after(FOLD_MS);
}

/* ---- lines ------------------------------------------------------------------------------ */

/* The length of the first line, its end included in `*taken_out`; false if it is not whole. */
static bool first_line(const char *text, size_t text_bytes, bool is_last, size_t *line_out,
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

    while (first_line(text + used, text_bytes - used, is_last, &line_bytes, &taken)) {
        bool repeated =
            printer->fold && is_repeated(printer, stream, origin, text + used, line_bytes);

        if (!repeated && !piece_add(printer, stream, origin, text + used, line_bytes)) {
            break;
        }
        if (printer->fold && !repeated) {
            printed_line_remember(printer, stream, text + used, line_bytes);
        }
        used += taken;
    }
    (void)piece_write(printer, stream, 0);
    return used;
}

void tdm__log_printer_destroy(struct tdm__log_printer *printer)
{
    if (printer == NULL) {
        return;
    }
    for (int i = 0; i < FOLDED_MAX; i++) {
        if (printer->repeated_line[i].line != NULL) {
            (void)piece_write(printer, printer->repeated_line[i].stream, LAST_WORDS_MS);
            (void)tell_count(printer, &printer->repeated_line[i]);
        }
    }
    for (int i = 0; i < TDM__LOG_STREAMS; i++) {
        (void)piece_write(printer, (enum tdm__log_stream)i, LAST_WORDS_MS);
    }
    for (int i = 0; i < FOLDED_MAX; i++) {
        free(printer->repeated_line[i].line);
    }
    free(printer);
}
