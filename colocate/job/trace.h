/* trace.h - what happened when on which rank, as a Chrome trace (opens in Perfetto). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRACE_H
#define TDM_COLOCATE_JOB_TRACE_H

#include <stdint.h>
#include <tandem/error.h>

/* Events go to the file as they come; memory stays bounded, and a file cut short by a crash
 * still opens.  A failing write never disturbs the job: it is remembered and told by close.
 * Times are tdm__clock_ns(), the same in all processes of the node.  One thread. */
struct tdm__trace;

tdm_status tdm__trace_open(const char *path, struct tdm__trace **trace_out);
/* Writes the end; the first error of any call on this trace.  NULL is TDM_OK. */
tdm_status tdm__trace_close(struct tdm__trace *trace);
/* What has been said so far is in the file. */
void tdm__trace_flush(struct tdm__trace *trace);

/* Rows are threads, grouped under processes; Perfetto sorts by number and shows the names. */
void tdm__trace_name_process(struct tdm__trace *trace, uint32_t process, const char *name);
void tdm__trace_name_thread(struct tdm__trace *trace, uint32_t process, uint32_t thread,
                            const char *name);

/* Text where `text` is set, else the number. */
struct tdm__trace_argument {
    const char *name;
    const char *text;
    double number;
};

enum { TDM__TRACE_ARGUMENTS_MAX = 16 };

/* A stretch of time on one row. */
struct tdm__trace_event {
    const char *name;
    const char *category;
    uint32_t process;
    uint32_t thread;
    int64_t begin_ns;
    int64_t end_ns;
    const struct tdm__trace_argument *arguments;
    uint32_t arguments_count;
};

void tdm__trace_event(struct tdm__trace *trace, const struct tdm__trace_event *event);
/* Numbers over time, one curve an argument: the bytes on a GPU by tenant.  Of the event, name,
 * process, begin_ns and the arguments count. */
void tdm__trace_counter(struct tdm__trace *trace, const struct tdm__trace_event *event);

#endif
