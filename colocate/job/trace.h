/* trace.h - writes a Chrome trace of all ranks of a job, which Perfetto opens. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRACE_H
#define TDM_COLOCATE_JOB_TRACE_H

#include <stdint.h>
#include <tandem/error.h>

/* An open trace file. Events are written as they are added, so that memory stays bounded and a
 * file that a crash cut short still opens. A write error does not disturb the job;
 * tdm__trace_close() reports it. Times are those of tdm__clock_ns(), which is the same in all
 * processes of a node. One thread uses it. */
struct tdm__trace;

/* Creates or truncates the file at `path`. */
tdm_status tdm__trace_open(const char *path, struct tdm__trace **trace_out);
/* Writes the end of the file and frees the trace. Returns the first error of any call on this
 * trace. NULL is allowed. */
tdm_status tdm__trace_close(struct tdm__trace *trace);
/* Writes all events that are still buffered to the file. */
void tdm__trace_flush(struct tdm__trace *trace);

/* Names a process of the trace. Perfetto groups threads below processes, sorts by number and
 * shows the names. */
void tdm__trace_name_process(struct tdm__trace *trace, uint32_t process, const char *name);
/* Names a thread of a process of the trace; each thread is one row in Perfetto. */
void tdm__trace_name_thread(struct tdm__trace *trace, uint32_t process, uint32_t thread,
                            const char *name);

/* One named value of an event: `text` if it is not NULL, else `number`. */
struct tdm__trace_argument {
    /* Borrowed name of the value. */
    const char *name;
    /* Borrowed text; NULL if the value is a number. */
    const char *text;
    /* The value if `text` is NULL. */
    double number;
};

/* Most arguments of one event. */
enum { TDM__TRACE_ARGUMENTS_MAX = 16 };

/* One event: a span of time on one row of the trace. All pointers are borrowed during the call. */
struct tdm__trace_event {
    /* Name that the viewer shows. */
    const char *name;
    /* Category by which the viewer filters, for example "phase". */
    const char *category;
    /* Number of the process (group of rows) in the trace. */
    uint32_t process;
    /* Number of the thread (row) in that process. */
    uint32_t thread;
    /* Begin in nanoseconds of tdm__clock_ns(). */
    int64_t begin_ns;
    /* End in nanoseconds of tdm__clock_ns(). */
    int64_t end_ns;
    /* Values that the viewer shows with the event. */
    const struct tdm__trace_argument *arguments;
    /* Number of arguments. */
    uint32_t arguments_count;
};

/* Adds a span of time to the trace. */
void tdm__trace_event(struct tdm__trace *trace, const struct tdm__trace_event *event);
/* Adds a sample of a counter, for example the bytes that each rank has on a GPU. Each argument
 * is one curve. Only `name`, `process`, `begin_ns` and the arguments of the event are used. */
void tdm__trace_counter(struct tdm__trace *trace, const struct tdm__trace_event *event);

#endif
