/* trace.c - writes a Chrome trace of all ranks of a job. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The file is a JSON array with one event on each line. Viewers accept an array without its end,
 * but not half an event. The stream is therefore flushed between events, before its buffer is
 * full, so that a crash never leaves half an event in the file. The first write error is kept
 * and returned by tdm__trace_close(). One thread uses a trace. The format is the "Trace Event
 * Format" of Chrome. */
#include "colocate/job/trace.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Size of the stream's buffer, number of bytes after which it is flushed, and longest text of an
 * event, in bytes. */
enum { BUFFER_BYTES = 256 * 1024, FLUSH_BYTES = 64 * 1024, TEXT_BYTES_MAX = 1024 };

/* Definition of the trace. */
struct tdm__trace {
    /* Owned file. */
    FILE *stream;
    /* Owned path of the file, for messages. */
    char *path;
    /* Time of the first event's zero, in nanoseconds of tdm__clock_ns(). */
    int64_t begin_ns;
    /* Bytes written since the last flush. */
    size_t unflushed_bytes;
    /* Number of events written. */
    uint64_t events_count;
    /* Value of errno of the first write that failed; 0 if every write succeeded. */
    int error_number;
    /* Buffer of the stream. */
    char buffer[BUFFER_BYTES];
};

tdm_status tdm__trace_open(const char *path, struct tdm__trace **trace_out)
{
    struct tdm__trace *trace = calloc(1, sizeof(*trace));

    if (trace == NULL || (trace->path = strdup(path)) == NULL) {
        free(trace);
        return tdm__fail(TDM_E_NOMEM, "%s", path);
    }
    trace->stream = fopen(path, "we");
    if (trace->stream == NULL) {
        tdm_status status = tdm__fail_errno(errno, "%s", path);

        free(trace->path);
        free(trace);
        return status;
    }
    (void)setvbuf(trace->stream, trace->buffer, _IOFBF, sizeof(trace->buffer));
    trace->begin_ns = tdm__clock_ns();
    (void)fputs("[\n", trace->stream);
    *trace_out = trace;
    return TDM_OK;
}

tdm_status tdm__trace_close(struct tdm__trace *trace)
{
    tdm_status status = TDM_OK;

    if (trace == NULL) {
        return TDM_OK;
    }
    (void)fputs("\n]\n", trace->stream);
    tdm__trace_flush(trace);
    if (fclose(trace->stream) != 0 && trace->error_number == 0) {
        trace->error_number = errno;
    }
    if (trace->error_number != 0) {
        status = tdm__fail_errno(trace->error_number, "%s: write", trace->path);
    }
    free(trace->path);
    free(trace);
    return status;
}

void tdm__trace_flush(struct tdm__trace *trace)
{
    if (fflush(trace->stream) != 0 && trace->error_number == 0) {
        trace->error_number = errno;
    }
    trace->unflushed_bytes = 0;
}

/* Returns a JSON text. Texts come from job libraries: invalid UTF-8 becomes "?", and long texts
 * are cut. */
static json_t *text_value(const char *text)
{
    json_t *value = json_stringn(text, strnlen(text, TEXT_BYTES_MAX));

    return value != NULL ? value : json_string("?");
}

/* Returns a JSON number: an integer if the value is one, null if it is not finite. */
static json_t *number_value(double number)
{
    if (!isfinite(number)) {
        return json_null();
    }
    if (number == floor(number) && fabs(number) < 9e15) {
        return json_integer((json_int_t)number);
    }
    return json_real(number);
}

/* Writes an event and releases the reference to it. */
static void write_event(struct tdm__trace *trace, json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15));

    json_decref(event);
    if (text == NULL) {
        return; /* Memory is exhausted: the event is dropped. */
    }
    if (fprintf(trace->stream, "%s%s", trace->events_count == 0 ? "" : ",\n", text) < 0 &&
        trace->error_number == 0) {
        trace->error_number = errno;
    }
    trace->events_count++;
    trace->unflushed_bytes += strlen(text);
    free(text);
    if (trace->unflushed_bytes > FLUSH_BYTES) {
        tdm__trace_flush(trace);
    }
}

/* Returns a new event with the fields that all events have. `phase` is its type: "X", "C" or
 * "M". */
static json_t *create_event(const char *phase, const char *name, uint32_t process, uint32_t thread)
{
    json_t *event = json_object();

    (void)json_object_set_new(event, "ph", json_string(phase));
    (void)json_object_set_new(event, "name", text_value(name));
    (void)json_object_set_new(event, "pid", json_integer(process));
    (void)json_object_set_new(event, "tid", json_integer(thread));
    return event;
}

/* Writes an event that names a process or thread. Releases the reference to `event`. */
static void write_name_event(struct tdm__trace *trace, json_t *event, const char *name)
{
    json_t *arguments = json_object();

    (void)json_object_set_new(arguments, "name", text_value(name));
    (void)json_object_set_new(event, "args", arguments);
    write_event(trace, event);
}

void tdm__trace_name_process(struct tdm__trace *trace, uint32_t process, const char *name)
{
    write_name_event(trace, create_event("M", "process_name", process, 0), name);
}

void tdm__trace_name_thread(struct tdm__trace *trace, uint32_t process, uint32_t thread,
                            const char *name)
{
    write_name_event(trace, create_event("M", "thread_name", process, thread), name);
}

/* Converts nanoseconds to the microseconds of the format. */
static json_t *microseconds(int64_t nanoseconds)
{
    return json_real((double)nanoseconds / 1000.0);
}

/* Sets the arguments of an event. */
static void set_arguments(json_t *event, const struct tdm__trace_event *from)
{
    json_t *arguments = json_object();

    TDM_ASSERT(from->arguments_count <= TDM__TRACE_ARGUMENTS_MAX);
    for (uint32_t i = 0; i < from->arguments_count; i++) {
        const struct tdm__trace_argument *argument = &from->arguments[i];

        (void)json_object_set_new(arguments, argument->name,
                                  argument->text != NULL ? text_value(argument->text)
                                                         : number_value(argument->number));
    }
    (void)json_object_set_new(event, "args", arguments);
}

void tdm__trace_event(struct tdm__trace *trace, const struct tdm__trace_event *event)
{
    json_t *out = create_event("X", event->name, event->process, event->thread);

    (void)json_object_set_new(out, "cat", text_value(event->category));
    (void)json_object_set_new(out, "ts", microseconds(event->begin_ns - trace->begin_ns));
    (void)json_object_set_new(out, "dur", microseconds(event->end_ns - event->begin_ns));
    set_arguments(out, event);
    write_event(trace, out);
}

void tdm__trace_counter(struct tdm__trace *trace, const struct tdm__trace_event *event)
{
    json_t *out = create_event("C", event->name, event->process, 0);

    (void)json_object_set_new(out, "ts", microseconds(event->begin_ns - trace->begin_ns));
    set_arguments(out, event);
    write_event(trace, out);
}
