/* side.h - the rounds that Tandem and the bare processes run in the comparison with Ray. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_AGAINST_RAY_SIDE_H
#define TDM_BENCH_AGAINST_RAY_SIDE_H

#include "measure.h"
#include "peer.h"

#include <stdint.h>
#include <tandem/tandem.h>

/* Most numbers that a round returns. */
enum { SIDE_NUMBERS_MAX = 32 };
/* The numbers that one round returns. The declaration of each round says what they are. */
struct side_numbers {
    /* Number of values. */
    uint32_t count;
    /* The values in their order. */
    double values[SIDE_NUMBERS_MAX];
};

/* Appends a number; ignored if there are SIDE_NUMBERS_MAX already. */
void side_numbers_add(struct side_numbers *numbers, double value);

/* Runs one round for about `seconds` and appends its results to `numbers`. */
typedef void side_round_fn(tdm_runtime *runtime, double seconds, struct side_numbers *numbers);

enum {
    SIDE_TIMEOUT_MS = 30000,
    SIDE_CALLS_IN_FLIGHT = 1000, /* Number of calls in flight. */
    SIDE_LATENCIES_MAX = 200000,
    SIDE_MIB = 1 << 20
};

/* Returns an actor of this class, which is created at the first use and lives as long as the
 * program. */
tdm_actor *side_actor(tdm_runtime *runtime, const char *class_name);
/* Returns the process ID of an actor. */
pid_t side_actor_pid(tdm_actor *actor);
/* Exits with an error unless both numbers are equal. */
void side_expect_equal(uint64_t wanted, uint64_t got, const char *what);
/* Returns a hash of all 64-bit words that depends on their order. */
uint64_t side_hash(const void *data, size_t size_bytes);
/* Times of single operations in seconds. */
struct side_latencies {
    /* Number of times. */
    uint32_t count;
    /* The times in seconds. */
    double values[SIDE_LATENCIES_MAX];
};
/* Appends the rate per second over `elapsed` seconds, and the median time in microseconds. */
void side_numbers_add_rate(struct side_numbers *numbers, struct side_latencies *latencies,
                           double elapsed);

/* Synchronous calls: rate per second, median in µs. With caller and actor on one core or on
 * separate cores. Defined in calls.c, like those down to side_call_mib(). */
side_round_fn side_call_same_core, side_call_own_cores;
/* Calls with many in flight, and the same from two callers to two actors each: rate per second. */
side_round_fn side_pipelined, side_two_by_two;
/* Calls with an argument of 1 MiB: GiB/s. */
side_round_fn side_call_mib;

/* Puts of 100 MiB: GiB/s. Defined in objects.c, like the next two. */
side_round_fn side_put_large_objects;
/* Puts and gets of one integer: rate per second. */
side_round_fn side_put_small, side_get_small;

/* Placement groups that are created and removed, actors that are created, called and killed:
 * rate per second. Defined in lifecycles.c, like the next two. */
side_round_fn side_placement_group, side_actor_lifecycle;
/* Creates idle actors, which live as long as the program: their process IDs. */
side_round_fn side_idle_actors;
/* Creates an actor and calls it once: no numbers. */
side_round_fn side_first_call;

/* Ping-pong of two blocking processes: rate per second, median in µs. Defined in raw.c, like all
 * that follow. */
side_round_fn side_raw_same_core, side_raw_own_cores;
/* Framed echoes, sent in batches or one by one: rate per second. */
side_round_fn side_raw_pipelined, side_raw_one_by_one;
/* The same with two pairs of processes at once. */
side_round_fn side_raw_two_by_two, side_raw_two_by_two_singly;
/* Copies in one process: 1 MiB copied twice, and 100 MiB copied once between warm buffers:
 * GiB/s. */
side_round_fn side_raw_copy_twice, side_raw_copy;
/* Roles of the processes in raw.c, for bench_peer_run(). */
extern const struct bench_role side_raw_roles[];
extern const size_t side_raw_roles_count;

#endif
