/* kept_clock.c - the rules by which a store judges leases, in C. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kept_clock.h"

void kept_clock_advance(struct kept_clock *clock, int64_t time, int64_t step)
{
    int64_t passed = clock->has_time ? time - clock->time : 0;

    clock->now += passed < 0 ? 0 : passed > step ? step : passed;
    clock->time = time;
    clock->has_time = true;
}

bool kept_clock_check_generation(struct kept_clock *clock, uint32_t server, int64_t hold,
                                 bool has_lost_changes)
{
    bool is_new = clock->server != server || has_lost_changes;

    if (is_new) {
        clock->server = server;
        clock->began = clock->now;
        clock->held_until = clock->now + hold;
    } else if (clock->began + hold > clock->held_until) {
        clock->held_until = clock->began + hold;
    }
    return is_new;
}

bool kept_clock_is_held(const struct kept_clock *clock)
{
    return clock->server == 0 || clock->now < clock->held_until;
}

bool kept_clock_takes_over(const struct kept_clock *clock, int64_t lease_end, int64_t grace)
{
    return !kept_clock_is_held(clock) && lease_end + grace < clock->now;
}
