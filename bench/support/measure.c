/* measure.c - collects the values of rounds and prints medians and ratios. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A benchmark program calls bench_parse_arguments() once, adds two values for each round of a
 * measure, and reports the measure. The state of the run is in one static struct, since a
 * program makes one run and uses one thread for measuring. The output is a table, or one JSON
 * object on each line with --json. The exit status says whether all measures held. */
#include "measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* State of the one run that a program makes. */
static struct {
    /* True with --json. */
    bool json;
    /* True if a reported measure does not hold. */
    bool failed;
    /* True once the heading of the table is printed. */
    bool headed;
    /* Number of rounds of each measure. */
    uint32_t rounds;
    /* The part to run; NULL for all parts. */
    const char *only;
} run = {.rounds = BENCH_ROUNDS};

void bench_die(const char *what)
{
    perror(what);
    exit(1);
}

/* Prints the usage and exits with 2. */
_Noreturn static void usage(const char *program)
{
    (void)fprintf(stderr, "usage: %s [--json] [--rounds 9..%d] [--only PART]\n", program,
                  BENCH_ROUNDS_MAX);
    exit(2);
}

void bench_parse_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            run.json = true;
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            char *end;
            long rounds = strtol(argv[++i], &end, 10);

            if (*end != '\0' || rounds < 9 || rounds > BENCH_ROUNDS_MAX) {
                usage(argv[0]);
            }
            run.rounds = (uint32_t)rounds;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            run.only = argv[++i];
        } else {
            usage(argv[0]);
        }
    }
}

uint32_t bench_rounds(void)
{
    return run.rounds;
}

bool bench_is_wanted(const char *part)
{
    return run.only == NULL || strcmp(run.only, part) == 0;
}

bool bench_is_json(void)
{
    return run.json;
}

bool bench_ours_first(uint32_t round)
{
    return round % 2 == 0;
}

void bench_measure_round(struct bench_measure *measure, double value, double against_value)
{
    if (measure->rounds_count == BENCH_ROUNDS_MAX) {
        errno = ERANGE;
        bench_die(measure->name);
    }
    measure->values[measure->rounds_count] = value;
    measure->against_values[measure->rounds_count] = against_value;
    measure->rounds_count++;
}

/* Orders doubles; for qsort(). */
static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

double bench_median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(values[0]), compare_doubles);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Returns the ratio of one round; greater than 1 if Tandem was better. */
static double ratio_of(const struct bench_measure *measure, uint32_t round)
{
    double value = measure->values[round];
    double against = measure->against_values[round];

    return measure->better == BENCH_LESS_IS_BETTER ? against / value : value / against;
}

/* Prints an array of numbers, which are sorted at this point. */
static void print_list(const char *name, const double *values, uint32_t count)
{
    (void)printf(",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++) {
        (void)printf(i == 0 ? "%.6g" : ",%.6g", values[i]);
    }
    (void)printf("]");
}

/* Prints a measure as a JSON object. */
static void print_json(const struct bench_measure *measure, double value, double against,
                       double ratio, double spread, bool holds)
{
    (void)printf("{\"measure\":\"%s\",\"value\":%.6g,\"unit\":\"%s\",\"against\":\"%s\","
                 "\"against_value\":%.6g,\"ratio\":%.4g,\"at_least\":%g,\"holds\":%s,"
                 "\"runs\":%u,\"spread\":%.3f",
                 measure->name, value, measure->unit, measure->against, against, ratio,
                 measure->at_least, holds ? "true" : "false", measure->rounds_count, spread);
    print_list("values", measure->values, measure->rounds_count);
    print_list("against_values", measure->against_values, measure->rounds_count);
    (void)printf("}\n");
}

/* Prints a measure as a line of the table, with the heading before the first one. */
static void print_row(const struct bench_measure *measure, double value, double against,
                      double ratio, double spread, bool holds)
{
    if (!run.headed) {
        (void)printf("%-24s %10s %10s %-6s %7s %9s %7s  %-5s %s\n", "measure", "value", "against",
                     "unit", "ratio", "at least", "spread", "holds", "the peer");
        run.headed = true;
    }
    (void)printf("%-24s %10.4g %10.4g %-6s %7.3f %9.3g %7.3f  %-5s %s\n", measure->name, value,
                 against, measure->unit, ratio, measure->at_least, spread, holds ? "yes" : "NO",
                 measure->against);
}

void bench_measure_report(struct bench_measure *measure)
{
    double ratios[BENCH_ROUNDS_MAX];
    uint32_t count = measure->rounds_count;
    double value;
    double against;
    double ratio;
    double spread;
    bool holds;

    for (uint32_t i = 0; i < count; i++) {
        ratios[i] = ratio_of(measure, i);
    }
    value = bench_median(measure->values, count);
    against = bench_median(measure->against_values, count);
    ratio = bench_median(ratios, count);
    spread = (ratios[count - 1 - count / 4] - ratios[count / 4]) / ratio;
    holds = ratio >= measure->at_least;
    run.failed |= !holds;
    if (run.json) {
        print_json(measure, value, against, ratio, spread, holds);
    } else {
        print_row(measure, value, against, ratio, spread, holds);
    }
    (void)fflush(stdout);
}

int bench_status(void)
{
    return run.failed ? 1 : 0;
}

double bench_clock_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
