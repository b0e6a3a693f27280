/* reachability.c - whether another node answers this daemon, as a pure function of time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/reachability.h"

bool tdm__reachability_check(struct tdm__reachability *reachability, int64_t now_ms,
                             int64_t interval_ms, int64_t timeout_ms)
{
    int64_t passed_ms = now_ms - reachability->checked_ms;

    if (reachability->checked_ms != 0) {
        reachability->silent_ms += passed_ms < 2 * interval_ms ? passed_ms : 2 * interval_ms;
    }
    reachability->checked_ms = now_ms;
    if (reachability->is_unreachable || reachability->silent_ms < timeout_ms) {
        return false;
    }
    reachability->is_unreachable = true;
    return true;
}

bool tdm__reachability_answered(struct tdm__reachability *reachability)
{
    bool was_unreachable = reachability->is_unreachable;

    reachability->silent_ms = 0;
    reachability->is_unreachable = false;
    return was_unreachable;
}
