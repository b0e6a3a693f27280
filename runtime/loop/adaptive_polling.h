/* adaptive_polling.h - whether a wait is worth polling for some microseconds before it sleeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_ADAPTIVE_POLLING_H
#define TDM_RUNTIME_LOOP_ADAPTIVE_POLLING_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TDM__ADAPTIVE_POLLING_NS_MAX =
        50000, /* what is polled at most: about two wake-ups of a loop_condition */
    TDM__ADAPTIVE_POLLING_NEAR_NS =
        100000 /* a sleep so short, its own wake-up in it, could have been one */
};

/* Two processes that answer each other save both wake-ups if both poll, and none if one does.
 * So each learns from how long its waits took, the slept ones as well, and goes on polling for
 * a while after a wait that was too long.  All zero: nothing is known yet. */
struct tdm__adaptive_polling {
    bool expected;  /* the next wait is for somebody on another processor */
    uint32_t trust; /* rises with short waits, falls with polling in vain */
};

/* How long the wait that begins now is to poll, 0: not at all.  Only if it is `expected`. */
int64_t tdm__adaptive_polling_duration(const struct tdm__adaptive_polling *adaptive_polling);
/* That wait is over, or was slept through. */
void tdm__adaptive_polling_learn(struct tdm__adaptive_polling *adaptive_polling,
                                 int64_t polled_ns_max, int64_t waited_ns);

#endif
