/* spin.c - whether a wait is worth polling for some microseconds before it sleeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/spin.h"

enum { TRUST_ENOUGH = 4, TRUST_MAX = 16, TRUST_LOST = 4 };

int64_t tdm__spin_time(const struct tdm__spin *spin)
{
    return spin->trust >= TRUST_ENOUGH ? TDM__SPIN_NS : 0;
}

void tdm__spin_learn(struct tdm__spin *spin, int64_t polled_ns_max, int64_t waited_ns)
{
    bool was_short = waited_ns < (polled_ns_max > 0 ? polled_ns_max : TDM__SPIN_NEAR_NS);

    if (was_short) {
        spin->trust += spin->trust < TRUST_MAX ? 1 : 0;
    } else if (polled_ns_max > 0) {
        spin->trust -= spin->trust < TRUST_LOST ? spin->trust : TRUST_LOST;
    } else {
        spin->trust = 0; /* short waits in a row are asked for */
    }
}
