/* log.h - writes one line per event to stderr, filtered by level. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOG_H
#define TDM_RUNTIME_LOG_H

/* Severity of a log line.  Lines above the level of TANDEM_LOG are dropped. */
enum tdm__log_level {
    TDM__ERROR, /* An operation has failed for good. */
    TDM__WARN,  /* Something unexpected happened; the process continues. */
    TDM__INFO,  /* Start and end of nodes, actors and memory regions. */
    TDM__DEBUG, /* One line per object, such as a reference or a block. */
    TDM__TRACE  /* One line per message between processes. */
};

/* Reads the level from TANDEM_LOG (error, warn, info, debug or trace; default warn) and sets the
 * prefix of every line, such as "tandemd" or "worker trainer/2".  Call it once, before other
 * threads log.  Until then the level is warn and the prefix is "tandem". */
void tdm__log_init(const char *prefix);

/* Also writes every later line to `fd`, which must stay open until the process ends. */
void tdm__log_add_output(int fd);

/* Writes a line such as "2026-11-21T10:00:00.123 prefix[pid] warn module: text\n" by one write(2)
 * if its level is shown.  The text is in lower case, names the failed call and its error code,
 * and contains no "=".  Any thread may call it. */
__attribute__((format(printf, 3, 4))) void tdm__log(enum tdm__log_level level, const char *module,
                                                    const char *format, ...);

#endif
