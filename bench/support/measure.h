/* measure.h - a measure compares two values over several rounds and holds if their ratio is high
 * enough. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_MEASURE_H
#define TDM_BENCH_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

/* Default and greatest number of rounds. */
enum { BENCH_ROUNDS = 11, BENCH_ROUNDS_MAX = 101 };

/* Which of two values is the better one. */
enum bench_better { BENCH_LESS_IS_BETTER, BENCH_MORE_IS_BETTER };

/* One measure of a benchmark. The program fills it, except for the last three fields, which
 * bench_measure_round() fills. */
struct bench_measure {
    /* Name in tables and JSON. */
    const char *name;
    /* Unit of both values. */
    const char *unit;
    /* What Tandem is compared with, for the table. */
    const char *against;
    /* Whether low or high values are good. */
    enum bench_better better;
    /* The measure holds if the median ratio is at least this. The ratio is greater than 1 if
     * Tandem is better. */
    double at_least;
    /* Number of rounds so far. */
    uint32_t rounds_count;
    /* Tandem's value in each round. */
    double values[BENCH_ROUNDS_MAX];
    /* The value of the other side in each round. */
    double against_values[BENCH_ROUNDS_MAX];
};

/* Reads --json, --rounds N and --only PART. Prints the usage and exits with 2 if there is any
 * other argument. */
void bench_parse_arguments(int argc, char **argv);
/* Returns whether to run this part of the program; always true without --only. */
bool bench_is_wanted(const char *part);
/* Returns the number of rounds to run. */
uint32_t bench_rounds(void);
/* Returns whether the output is JSON. */
bool bench_is_json(void);

/* Adds the two values of one round. */
void bench_measure_round(struct bench_measure *measure, double value, double against_value);
/* Returns whether Tandem runs first in this round. The order alternates. */
bool bench_ours_first(uint32_t round);

/* Prints a line of the table, or a JSON object: the medians of the values, the median of the
 * ratios, and their spread. The spread is the interquartile range of the ratios divided by their
 * median. */
void bench_measure_report(struct bench_measure *measure);
/* Returns the exit status of the program: 1 if any reported measure does not hold. */
int bench_status(void);

/* Returns seconds of CLOCK_MONOTONIC. */
double bench_clock_seconds(void);
/* Returns the median. Sorts the values. */
double bench_median(double *values, uint32_t count);
/* Prints the text with the error of errno and exits with 1. */
_Noreturn void bench_die(const char *what);

#endif
