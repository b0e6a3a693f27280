/* spin.h - whether a wait is worth polling for some microseconds before it sleeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_SPIN_H
#define TDM_RUNTIME_LOOP_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TDM__SPIN_NS = 50000, /* what is polled at most: about two wake-ups of a sleeper */
    TDM__SPIN_NEAR_NS =
        100000 /* a sleep so short, its own wake-up in it, could have been one */
};

/* Two processes that answer each other save both wake-ups if both poll, and none if one does.
 * So each learns from how long its waits took, the slept ones as well, and goes on polling for
 * a while after a wait that was too long.  All zero: nothing is known yet. */
struct tdm__spin {
    bool expected;  /* the next wait is for somebody on another processor */
    uint32_t trust; /* rises with short waits, falls with polling in vain */
};

/* How long the wait that begins now is to poll, 0: not at all.  Only if it is `expected`. */
int64_t tdm__spin_time(const struct tdm__spin *spin);
/* That wait is over, or was slept through. */
void tdm__spin_learn(struct tdm__spin *spin, int64_t polled_ns_max, int64_t waited_ns);

#endif
