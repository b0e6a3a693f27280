/* log.h - one line per event on stderr, by level. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOG_H
#define TDM_RUNTIME_LOG_H

enum tdm__log_level {
    TDM__ERROR, /* cannot go on with this */
    TDM__WARN,  /* goes on, but odd */
    TDM__INFO,  /* life of nodes, actors, regions */
    TDM__DEBUG, /* per object */
    TDM__TRACE  /* per message */
};

/* Reads TANDEM_LOG (error warn info debug trace; default warn) and keeps `prefix` ("tandemd",
 * "worker trainer/2") for every line.  Call once, early; before it, level warn and no prefix.
 */
void tdm__log_init(const char *prefix);

/* Every line goes to `fd` too, from now on; the caller never closes it. */
void tdm__log_add_output(int fd);

/* "2026-11-21T10:00:00.123 prefix[pid] warn module: text\n" in one write(2).  Lower case, the
 * exact call and code, no "=". */
__attribute__((format(printf, 3, 4))) void tdm__log(enum tdm__log_level level, const char *module,
                                                    const char *format, ...);

#endif
