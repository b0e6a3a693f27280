/* progress.c - formats and prints the progress of a job, one line for each step. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A line is a list of fields in the order of their importance. Formatting with a column limit
 * tries a long bar, then a short one, and then omits fields from the end. Widths are counted in
 * characters, not bytes, because bars have characters of three bytes. The width of the terminal
 * is read for every line, since the user may resize it. Used by the thread of the job only. */
#include "colocate/job/progress.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* ---- text ------------------------------------------------------------------------------- */

/* Most fields of a line, size of a field in bytes, and width of a terminal that does not report
 * one. */
enum { FIELDS_MAX = 8 + TDM_METRICS_MAX, FIELD_BYTES = 128, COLUMNS_DEFAULT = 80 };
/* Widths of the progress bar, and the narrowest line that has one, in columns. */
enum { BAR_LONG = 24, BAR_SHORT = 10, BAR_WANTS = 50 }; /* columns */

/* The fields of one line. */
struct progress_fields {
    /* Number of fields. */
    uint32_t count;
    /* The fields, most important first. */
    char text[FIELDS_MAX][FIELD_BYTES];
};

/* Appends a formatted field; it is cut off at FIELD_BYTES - 1 bytes. */
__attribute__((format(printf, 2, 3))) static void add_field(struct progress_fields *fields,
                                                            const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(fields->text[fields->count++], FIELD_BYTES, format, args);
    va_end(args);
}

/* Appends a time in milliseconds unless it is NAN, with one decimal below 10 ms. */
static void add_ms(struct progress_fields *fields, const char *name, double ms, const char *suffix)
{
    if (!isnan(ms)) {
        add_field(fields, "%s %.*f ms%s", name, ms < 10 ? 1 : 0, ms, suffix);
    }
}

/* Appends a bar of `width` columns and the percentage to the last field. */
static void append_bar(struct progress_fields *fields, const struct tdm__progress_step *step,
                       uint32_t width)
{
    double part = step->steps_count == 0 ? 1 : (double)step->step / step->steps_count;
    uint32_t halves = (uint32_t)(fmin(part, 1) * 2 * width);
    char *text = fields->text[fields->count - 1];
    size_t used = strlen(text);
    char bar[FIELD_BYTES] = "";

    for (uint32_t column = 0; column < width; column++) {
        const char *piece = 2 * column + 1 < halves ? "━" : 2 * column + 1 == halves ? "╸" : " ";

        strncat(bar, piece, sizeof(bar) - strlen(bar) - 1);
    }
    (void)snprintf(text + used, FIELD_BYTES - used, " %s %3.0f%%", bar, floor(fmin(part, 1) * 100));
}

/* Appends the divergence with one digit, as "2e-7" instead of printf's "2e-07". */
static void add_kl(struct progress_fields *fields, double kl)
{
    char text[32];
    char *zero;

    (void)snprintf(text, sizeof(text), "%.0e", kl);
    zero = strstr(text, "e-0");
    if (zero != NULL) {
        memmove(zero + 2, zero + 3, strlen(zero + 3) + 1);
    }
    add_field(fields, "kl(engine‖trainer) %s", text);
}

/* Appends all numbers that were measured. */
static void add_numbers(struct progress_fields *fields, const struct tdm__progress_step *step)
{
    char version[32] = "";

    if (step->version != 0) {
        (void)snprintf(version, sizeof(version), " v%llu", (unsigned long long)step->version);
    }
    if (!isnan(step->reward)) {
        add_field(fields, "reward %.2f", step->reward);
    }
    if (!isnan(step->kl)) {
        add_kl(fields, step->kl);
    }
    add_ms(fields, "rollout", step->rollout_ms, "");
    add_ms(fields, "train", step->train_ms, "");
    add_ms(fields, "update", step->update_ms, version);
    add_ms(fields, "off/on", step->off_on_ms, "");
}

/* Appends the metrics that the job library reports, except "kl" and "reward", which have fields
 * of their own. */
static void add_metrics(struct progress_fields *fields, const struct tdm_metrics *metrics)
{
    for (uint32_t i = 0; metrics != NULL && i < metrics->count; i++) {
        const struct tdm_metric *metric = &metrics->entries[i];

        if (strcmp(metric->name, "kl") != 0 && strcmp(metric->name, "reward") != 0) {
            add_field(fields, "%.*s %.4g", (int)sizeof(metric->name), metric->name, metric->value);
        }
    }
}

/* Returns the number of characters of a UTF-8 text. */
static uint32_t columns_of(const char *text)
{
    uint32_t columns = 0;

    for (; *text != '\0'; text++) {
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return columns;
}

/* Joins the first fields up to the column limit; 0 means no limit. Returns false if a field was
 * omitted. */
static bool join_fields(const struct progress_fields *fields, uint32_t columns,
                        char text[TDM__PROGRESS_BYTES])
{
    size_t used = 0;
    uint32_t used_columns = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < fields->count; i++) {
        uint32_t gap = i == 0 ? 0 : 2;
        uint32_t wanted = gap + columns_of(fields->text[i]);

        if ((columns > 0 && used_columns + wanted > columns) ||
            used + gap + strlen(fields->text[i]) >= TDM__PROGRESS_BYTES) {
            return false;
        }
        used += (size_t)snprintf(text + used, TDM__PROGRESS_BYTES - used, "%*s%s", (int)gap, "",
                                 fields->text[i]);
        used_columns += wanted;
    }
    return true;
}

/* Formats a line with a bar of `bar` columns, or without one if it is 0. Returns false if a
 * field was omitted. */
static bool compose_line(const struct tdm__progress_step *step, uint32_t bar, uint32_t columns,
                         char text[TDM__PROGRESS_BYTES])
{
    struct progress_fields fields = {.count = 0};

    add_field(&fields, "%s %3u/%u", step->supervised ? "warm-up" : "step", step->step,
              step->steps_count);
    if (bar > 0) {
        append_bar(&fields, step, bar);
    }
    add_numbers(&fields, step);
    if (columns == 0) {
        add_metrics(&fields, step->metrics);
    }
    return join_fields(&fields, columns, text);
}

void tdm__progress_text(const struct tdm__progress_step *step, uint32_t columns,
                        char text[TDM__PROGRESS_BYTES])
{
    if (columns < BAR_WANTS) {
        (void)compose_line(step, 0, columns, text);
    } else if (!compose_line(step, BAR_LONG, columns, text)) {
        (void)compose_line(step, BAR_SHORT, columns, text);
    }
}

/* Returns a JSON number; null if the value is not finite. */
static json_t *format_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Returns a JSON object with the metrics by name. The caller owns it. */
static json_t *metrics_json(const struct tdm_metrics *metrics)
{
    json_t *object = json_object();

    for (uint32_t i = 0; metrics != NULL && i < metrics->count; i++) {
        (void)json_object_set_new(object, metrics->entries[i].name,
                                  format_number(metrics->entries[i].value));
    }
    return object;
}

void tdm__progress_json(const struct tdm__progress_step *step, char text[TDM__PROGRESS_BYTES])
{
    json_t *root =
        json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "kind",
                  step->supervised ? "warmup" : "step", "step", (int)step->step, "steps",
                  (int)step->steps_count, "reward", format_number(step->reward), "kl",
                  format_number(step->kl), "rollout_ms", format_number(step->rollout_ms),
                  "train_ms", format_number(step->train_ms), "update_ms",
                  format_number(step->update_ms), "off_on_ms", format_number(step->off_on_ms),
                  "version", (json_int_t)step->version, "metrics", metrics_json(step->metrics));
    size_t size_bytes =
        json_dumpb(root, text, TDM__PROGRESS_BYTES - 1, JSON_COMPACT | JSON_REAL_PRECISION(9));

    text[size_bytes < TDM__PROGRESS_BYTES ? size_bytes : 0] = '\0';
    json_decref(root);
}

/* ---- printing --------------------------------------------------------------------------- */

/* Terminal sequence that moves to the start of the line and clears it. */
static const char erase_line[] = "\r\x1b[K";

/* Returns the current width of the terminal. It is read each time, because the user may have
 * resized the terminal. */
static uint32_t terminal_columns(FILE *stream)
{
    struct winsize size;

    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return COLUMNS_DEFAULT;
    }
    return size.ws_col;
}

void tdm__progress_show(struct tdm__progress *progress, const struct tdm__progress_step *step)
{
    char text[TDM__PROGRESS_BYTES];

    switch (progress->mode) {
    case TDM__PROGRESS_LIVE:
        /* One column less: a full line would make the terminal wrap. */
        tdm__progress_text(step, terminal_columns(progress->stream) - 1, text);
        (void)fprintf(progress->stream, "%s%s", erase_line, text);
        progress->drawn = true;
        break;
    case TDM__PROGRESS_PLAIN:
        tdm__progress_text(step, 0, text);
        (void)fprintf(progress->stream, "%s\n", text);
        break;
    case TDM__PROGRESS_JSON:
        tdm__progress_json(step, text);
        (void)fprintf(progress->stream, "%s\n", text);
        break;
    }
    (void)fflush(progress->stream);
}

/* Prints a message as a JSON object on its own line. */
static void print_note_json(FILE *stream, const char *text)
{
    json_t *root = json_pack("{s:s}", "note", text);

    if (root != NULL) {
        (void)json_dumpf(root, stream, JSON_COMPACT);
        (void)fputc('\n', stream);
    }
    json_decref(root);
}

void tdm__progress_note(struct tdm__progress *progress, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (progress->mode == TDM__PROGRESS_JSON) {
        print_note_json(progress->stream, text);
    } else {
        (void)fprintf(progress->stream, "%s%s\n", progress->drawn ? erase_line : "", text);
    }
    progress->drawn = false; /* The next step draws the line again. */
    (void)fflush(progress->stream);
}

void tdm__progress_end(struct tdm__progress *progress)
{
    if (progress->drawn) {
        (void)fputc('\n', progress->stream);
        (void)fflush(progress->stream);
        progress->drawn = false;
    }
}
