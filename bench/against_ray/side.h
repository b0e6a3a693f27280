/* side.h - Tandem's side of the comparison with Ray, and the bare peers' side. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_AGAINST_RAY_SIDE_H
#define TDM_BENCH_AGAINST_RAY_SIDE_H

#include "measure.h"
#include "peer.h"

#include <stdint.h>
#include <tandem/tandem.h>

/* What a round brings: what the numbers are is said where the round is defined. */
enum { SIDE_NUMBERS_MAX = 32 };
struct side_numbers {
    uint32_t count;
    double values[SIDE_NUMBERS_MAX];
};

void side_numbers_add(struct side_numbers *numbers, double value);

/* One round that measures for about so many seconds. */
typedef void side_round_fn(tdm_runtime *runtime, double seconds, struct side_numbers *numbers);

enum {
    SIDE_TIMEOUT_MS = 30000,
    SIDE_CALLS_IN_FLIGHT = 1000, /* calls under way */
    SIDE_LATENCIES_MAX = 200000,
    /* on the wire: header 56, method "echo" 4, array of one 64-bit integer 10 */
    SIDE_CALL_BYTES = 70,
    SIDE_REPLY_BYTES = 66,
    SIDE_MIB = 1 << 20
};

/* An actor of this class that lives as long as the program; made on the first use. */
tdm_actor *side_actor(tdm_runtime *runtime, const char *class_name);
pid_t side_actor_pid(tdm_actor *actor);
/* Ends the program unless both are the same. */
void side_expect_equal(uint64_t wanted, uint64_t got, const char *what);
/* A sum of all words that depends on their order. */
uint64_t side_hash(const void *data, size_t size_bytes);
/* "count, median in microseconds" of what was timed one by one. */
struct side_latencies {
    uint32_t count;
    double values[SIDE_LATENCIES_MAX];
};
void side_numbers_add_rate(struct side_numbers *numbers, struct side_latencies *latencies,
                           double elapsed);

/* calls.c: rate, median µs */
side_round_fn side_call_same_core, side_call_own_cores;
/* rate */
side_round_fn side_pipelined, side_two_by_two;
/* GiB/s of the argument */
side_round_fn side_call_mib;

/* objects.c: GiB/s */
side_round_fn side_put_large_objects;
/* rate */
side_round_fn side_put_small, side_get_small;

/* lifecycles.c: rate */
side_round_fn side_placement_group, side_actor_lifecycle;
/* the pids of idle actors, which stay */
side_round_fn side_idle_actors;
/* nothing: one call has been answered */
side_round_fn side_first_call;

/* raw.c: rate, median µs of a blocking ping-pong */
side_round_fn side_raw_same_core, side_raw_own_cores;
/* rate of framed echoes; of those that are sent one by one */
side_round_fn side_raw_pipelined, side_raw_one_by_one;
/* the same, two pairs at once */
side_round_fn side_raw_two_by_two, side_raw_two_by_two_singly;
/* GiB/s: 1 MiB copied twice; 100 MiB copied once, warm */
side_round_fn side_raw_copy_twice, side_raw_copy;
/* The processes of raw.c, for bench_peer_run(). */
extern const struct bench_role side_raw_roles[];
extern const size_t side_raw_roles_count;

#endif
