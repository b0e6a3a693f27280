/* adaptive_polling.c - whether a wait is worth polling for some microseconds before it sleeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/adaptive_polling.h"

enum { TRUST_ENOUGH = 4, TRUST_MAX = 16, TRUST_LOST = 4 };

int64_t tdm__adaptive_polling_duration(const struct tdm__adaptive_polling *adaptive_polling)
{
    return adaptive_polling->trust >= TRUST_ENOUGH ? TDM__ADAPTIVE_POLLING_NS_MAX : 0;
}

void tdm__adaptive_polling_learn(struct tdm__adaptive_polling *adaptive_polling,
                                 int64_t polled_ns_max, int64_t waited_ns)
{
    bool was_short =
        waited_ns < (polled_ns_max > 0 ? polled_ns_max : TDM__ADAPTIVE_POLLING_NEAR_NS);

    if (was_short) {
        adaptive_polling->trust += adaptive_polling->trust < TRUST_MAX ? 1 : 0;
    } else if (polled_ns_max > 0) {
        adaptive_polling->trust -=
            adaptive_polling->trust < TRUST_LOST ? adaptive_polling->trust : TRUST_LOST;
    } else {
        adaptive_polling->trust = 0; /* short waits in a row are asked for */
    }
}
