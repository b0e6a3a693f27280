/* metrics.c - counters and histograms of a process, and their text format for Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/metrics/metrics.h"

#include "runtime/file.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void tdm__histogram_read(const struct tdm__histogram *histogram,
                         struct tdm__histogram_snapshot *snapshot_out)
{
    for (int i = 0; i < TDM__HISTOGRAM_BINS; i++) {
        snapshot_out->bins[i] = atomic_load_explicit(&histogram->bins[i], memory_order_relaxed);
    }
    snapshot_out->sum_ns = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
}

/* ---- text ------------------------------------------------------------------------------- */

void tdm__metrics_family(FILE *out, const char *name, const char *type, const char *help)
{
    (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes the value of a label with the escapes that Prometheus requires. */
static void write_label_value(FILE *out, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '\n') {
            (void)fputs("\\n", out);
        } else {
            if (*value == '\\' || *value == '"') {
                (void)fputc('\\', out);
            }
            (void)fputc(*value, out);
        }
    }
}

/* Writes labels such as {class="counter",le="0.5"}, or nothing without labels.  `bound` is the
 * value of the label "le"; NULL if it is not wanted. */
static void write_labels(FILE *out, const char *const *labels, const char *bound)
{
    char separator = '{';

    for (; labels != NULL && labels[0] != NULL; labels += 2) {
        (void)fprintf(out, "%c%s=\"", separator, labels[0]);
        write_label_value(out, labels[1]);
        (void)fputc('"', out);
        separator = ',';
    }
    if (bound != NULL) {
        (void)fprintf(out, "%cle=\"%s\"", separator, bound);
        separator = ',';
    }
    if (separator == ',') {
        (void)fputc('}', out);
    }
}

/* Writes a space, the value and a newline.  Whole numbers get no decimal point. */
static void write_number(FILE *out, double value)
{
    if (value == floor(value) && fabs(value) < 9e15) {
        (void)fprintf(out, " %.0f\n", value);
    } else {
        (void)fprintf(out, " %.9g\n", value);
    }
}

void tdm__metrics_sample(FILE *out, const char *name, const char *const *labels, double value)
{
    (void)fputs(name, out);
    write_labels(out, labels, NULL);
    write_number(out, value);
}

void tdm__metrics_histogram(FILE *out, const char *name, const char *const *labels,
                            const struct tdm__histogram_snapshot *snapshot)
{
    uint64_t count = 0;

    for (int i = 0; i < TDM__HISTOGRAM_BINS; i++) {
        char bound[32] = "+Inf";

        count += snapshot->bins[i];
        if (i + 1 < TDM__HISTOGRAM_BINS) {
            (void)snprintf(bound, sizeof(bound), "%.9g", ldexp(1e-6, i));
        }
        (void)fprintf(out, "%s_bucket", name);
        write_labels(out, labels, bound);
        write_number(out, (double)count);
    }
    (void)fprintf(out, "%s_sum", name);
    write_labels(out, labels, NULL);
    write_number(out, (double)snapshot->sum_ns / 1e9);
    (void)fprintf(out, "%s_count", name);
    write_labels(out, labels, NULL);
    write_number(out, (double)count);
}

/* ---- this process ----------------------------------------------------------------------- */

/* Returns the resident memory of this process in bytes; 0 if it cannot be read. */
static double resident_bytes(void)
{
    char text[256];
    char *end;

    if (!tdm__file_read_text("/proc/self/statm", text, sizeof(text))) {
        return 0;
    }
    /* Skips the first number in the file, the size of the address space. */
    (void)strtoull(text, &end, 10);
    return (double)strtoull(end, NULL, 10) * (double)sysconf(_SC_PAGESIZE);
}

/* Returns the number of open descriptors of this process; 0 if it cannot be read. */
static double open_fds(void)
{
    DIR *entries = opendir("/proc/self/fd");
    /* The count excludes the entries ".", ".." and the descriptor of the directory itself. */
    double count = -3;

    if (entries == NULL) {
        return 0;
    }
    while (readdir(entries) != NULL) {
        count++;
    }
    (void)closedir(entries);
    return count;
}

void tdm__metrics_process(FILE *out)
{
    struct timespec used = {0};

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    tdm__metrics_family(out, "process_resident_memory_bytes", "gauge",
                        "Memory of the daemon that is in RAM.");
    tdm__metrics_sample(out, "process_resident_memory_bytes", NULL, resident_bytes());
    tdm__metrics_family(out, "process_open_fds", "gauge", "Descriptors that the daemon has open.");
    tdm__metrics_sample(out, "process_open_fds", NULL, open_fds());
    tdm__metrics_family(out, "process_cpu_seconds_total", "counter",
                        "Processor time of the daemon.");
    tdm__metrics_sample(out, "process_cpu_seconds_total", NULL,
                        (double)used.tv_sec + (double)used.tv_nsec / 1e9);
}
