/* measure.h - a measure is a ratio of two values taken in turns; it holds or it does not. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_MEASURE_H
#define TDM_BENCH_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

enum { BENCH_ROUNDS = 11, BENCH_ROUNDS_MAX = 101 };

enum bench_better { BENCH_LESS_IS_BETTER, BENCH_MORE_IS_BETTER };

/* Filled by the program, but for what bench_measure_round() adds. */
struct bench_measure {
    const char *name;
    const char *unit;
    const char *against; /* the peer or the limit */
    enum bench_better better;
    double at_least; /* of the ratio, which is over 1 where ours is the better one */
    uint32_t rounds_count;
    double values[BENCH_ROUNDS_MAX];
    double against_values[BENCH_ROUNDS_MAX];
};

/* Reads --json, --rounds N and --only PART; ends the program with 2 and the usage on anything
 * else. */
void bench_parse_arguments(int argc, char **argv);
/* Whether to measure a part of the program: all of them without --only. */
bool bench_is_wanted(const char *part);
uint32_t bench_rounds(void);
bool bench_is_json(void);

/* One round's two values.  Who goes first alternates: bench_ours_first(). */
void bench_measure_round(struct bench_measure *measure, double value, double against_value);
bool bench_ours_first(uint32_t round);

/* Prints the medians, the median of the rounds' ratios and their spread (the middle half's
 * width over the median): a line of the table, or with --json an object. */
void bench_measure_report(struct bench_measure *measure);
/* The program's exit status: 1 if a measure that was reported does not hold. */
int bench_status(void);

/* Of a clock that only goes forward. */
double bench_clock_seconds(void);
/* Sorts the values. */
double bench_median(double *values, uint32_t count);
/* Ends the program with 1, the text and errno. */
_Noreturn void bench_die(const char *what);

#endif
