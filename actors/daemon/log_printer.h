/* log_printer.h - lines of other processes on this one's stdout and stderr, with their origin.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_LOG_PRINTER_H
#define TDM_ACTORS_DAEMON_LOG_PRINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* "(trainer/2 pid=4182) text", a whole number of lines in each write(2), the origin coloured on
 * a terminal (unless NO_COLOR is set).  Never waits for whoever reads: what cannot be written
 * now is not taken. */
struct tdm__log_printer;

enum tdm__log_stream { TDM__LOG_OUT, TDM__LOG_ERR, TDM__LOG_STREAMS };

struct tdm__log_printer_options {
    int fds[TDM__LOG_STREAMS]; /* borrowed */
    bool fold; /* a line printed within the last 5 s, by whomever, is counted and not printed;
                * the count is told when the 5 s are over */
};

tdm_status tdm__log_printer_create(const struct tdm__log_printer_options *options,
                                   struct tdm__log_printer **printer_out);
/* Tells the counts that have not been told, waiting at most a second for the reader.  NULL is
 * allowed. */
void tdm__log_printer_destroy(struct tdm__log_printer *printer);

/* Prints whole lines from the beginning of `text`; a last one without its end only if
 * `is_last`. Returns how many bytes were taken: fewer than there are complete lines of when the
 * reader is slow.  A line longer than 3,900 bytes is broken. */
size_t tdm__log_printer_write(struct tdm__log_printer *printer, enum tdm__log_stream stream,
                              const char *origin, const char *text, size_t text_bytes,
                              bool is_last);
/* Writes what was taken and not written, and tells the counts whose time is over; false when it
 * should be called again. */
bool tdm__log_printer_flush(struct tdm__log_printer *printer);

#endif
