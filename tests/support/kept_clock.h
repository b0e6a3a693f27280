/* kept_clock.h - the rules by which a store judges leases, in C. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_KEPT_CLOCK_H
#define TDM_TESTS_SUPPORT_KEPT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* The product's rules are the Lua code of runtime/redis/functions.c. The memory store and the
 * exploration of leases use these; tests/conformance/store_suite.c tests both. */

/* The kept clock of a store. All zeros is the clock of an empty store. Every unit of time will do.
 */
struct kept_clock {
    int64_t now;        /* The kept clock. */
    int64_t time;       /* Time of the server when the clock last advanced. */
    int64_t began;      /* The kept clock when the generation began. */
    int64_t held_until; /* The kept clock from which members may be taken over. */
    uint32_t server;    /* Number of the server that keeps the clock; 0 before the first. */
    bool has_time;      /* Whether the clock has advanced, so that `time` is valid. */
};

/* Advances the clock by the time since its last advance, at least 0 and at most `step`. */
void kept_clock_advance(struct kept_clock *clock, int64_t time, int64_t step);
/* Begins a generation if `server`, a number from 1 on, is another one or has lost changes; no
 * member is taken over before the clock has advanced by `hold`, a lease and the grace and one.
 * Returns whether a generation has begun. */
bool kept_clock_check_generation(struct kept_clock *clock, uint32_t server, int64_t hold,
                                 bool has_lost_changes);
/* Returns whether no member may be taken over, and no absent record counts as a loss. */
bool kept_clock_is_held(const struct kept_clock *clock);
/* Returns whether a member whose lease ends at `lease_end` is taken over now. */
bool kept_clock_takes_over(const struct kept_clock *clock, int64_t lease_end, int64_t grace);

#endif
