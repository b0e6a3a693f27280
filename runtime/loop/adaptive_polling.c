/* adaptive_polling.c - decides whether a wait polls for some microseconds before it sleeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/adaptive_polling.h"

enum {
    SCORE_TO_POLL = 4, /* Score from which on waits poll before they sleep. */
    SCORE_MAX = 16,    /* Largest score.  Each short wait adds 1 to the score. */
    /* What a wait that polled in vain subtracts from the score.  At the largest score, four such
     * waits in a row end the polling. */
    SCORE_LOST_BY_MISS = 4
};

int64_t tdm__adaptive_polling_duration(const struct tdm__adaptive_polling *adaptive_polling)
{
    return adaptive_polling->score >= SCORE_TO_POLL ? TDM__ADAPTIVE_POLLING_NS_MAX : 0;
}

void tdm__adaptive_polling_learn(struct tdm__adaptive_polling *adaptive_polling,
                                 int64_t polled_ns_max, int64_t waited_ns)
{
    bool was_short =
        waited_ns < (polled_ns_max > 0 ? polled_ns_max : TDM__ADAPTIVE_POLLING_SHORT_SLEEP_NS);

    if (was_short) {
        adaptive_polling->score += adaptive_polling->score < SCORE_MAX ? 1 : 0;
    } else if (polled_ns_max > 0) {
        adaptive_polling->score -= adaptive_polling->score < SCORE_LOST_BY_MISS
                                       ? adaptive_polling->score
                                       : SCORE_LOST_BY_MISS;
    } else {
        /* Polling starts only after SCORE_TO_POLL short waits in a row. */
        adaptive_polling->score = 0;
    }
}
