/* adaptive_polling.h - decides whether a wait polls for some microseconds before it sleeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_ADAPTIVE_POLLING_H
#define TDM_RUNTIME_LOOP_ADAPTIVE_POLLING_H

#include <stdbool.h>
#include <stdint.h>

/* Times in nanoseconds that decide whether a wait is short. */
enum {
    /* Longest time in nanoseconds that a wait polls: about the cost of two wake-ups. */
    TDM__ADAPTIVE_POLLING_NS_MAX = 50000,
    /* Length in nanoseconds below which a sleep, wake-up latency included, would have been cheaper
     * as polling. */
    TDM__ADAPTIVE_POLLING_SHORT_SLEEP_NS = 100000
};

/* Statistics by which the waits of one loop learn whether polling pays.  Two processes that reply
 * to each other save both wake-ups if both poll, and nothing if only one of them does.  So each
 * process learns from the length of all its waits, also of those that slept, and it keeps polling
 * for a while after a wait that was too long.  A zeroed structure is the initial state.  The loop
 * lock guards it. */
struct tdm__adaptive_polling {
    /* True if the next wait is for a peer on another processor (tdm__loop_expect_event_soon()).
     * Only such a wait may poll. */
    bool expected;
    /* Number that rises with each short wait and falls with each long one; waits poll while it is
     * high. */
    uint32_t score;
};

/* Returns for how many nanoseconds the wait that starts now should poll before it sleeps; 0 means
 * that it sleeps at once.  Call it only if `expected` is set. */
int64_t tdm__adaptive_polling_duration(const struct tdm__adaptive_polling *adaptive_polling);
/* Records the length of a finished wait.  `polled_ns_max` is the duration for which it was
 * allowed to poll, 0 if it slept at once; `waited_ns` is its total length. */
void tdm__adaptive_polling_learn(struct tdm__adaptive_polling *adaptive_polling,
                                 int64_t polled_ns_max, int64_t waited_ns);

#endif
