/* log_printer.h - prints lines of other processes on this process's stdout and stderr. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_LOG_PRINTER_H
#define TDM_ACTORS_DAEMON_LOG_PRINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* Prints lines such as "(trainer/2 pid=4182) text": each write(2) contains whole lines. The origin
 * in parentheses is coloured on a terminal, unless NO_COLOR is set. The printer never blocks on a
 * slow reader: it takes fewer lines instead. Only the daemon's loop thread uses it. */
struct tdm__log_printer;

/* The two output streams of a process. */
enum tdm__log_stream {
    TDM__LOG_OUT,    /* Standard output of a process. */
    TDM__LOG_ERR,    /* Standard error of a process. */
    TDM__LOG_STREAMS /* Number of output streams. */
};

/* Options for tdm__log_printer_create(). */
struct tdm__log_printer_options {
    /* Descriptors on which stdout's and stderr's lines are printed, borrowed. */
    int fds[TDM__LOG_STREAMS];
    /* True to count a line that was printed within the last 5 s by any process, instead of printing
     * it; the count is printed after 5 s. */
    bool fold;
};

/* Creates a log printer, which the caller owns. */
tdm_status tdm__log_printer_create(const struct tdm__log_printer_options *options,
                                   struct tdm__log_printer **printer_out);
/* Prints the lines that are left and the counts of repeated lines, and frees the printer. Blocks at
 * most a second for each stream and count. NULL is allowed. */
void tdm__log_printer_destroy(struct tdm__log_printer *printer);

/* Prints the whole lines of `text`, which the process `origin` wrote to `stream`, and an unfinished
 * last line only if `is_last`. Returns how many bytes were taken: fewer than all complete lines
 * when the reader is slow. A line longer than 3,900 bytes is broken. */
size_t tdm__log_printer_write(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                              const char *origin, const char *text, size_t text_bytes,
                              bool is_last);
/* Writes the buffered lines, and the counts of repeated lines that are due. Returns false if some
 * are left because the reader is slow, so that the caller must call again later. */
bool tdm__log_printer_flush(struct tdm__log_printer *printer);

#endif
