/* restart_policy.c - decides whether a job whose run has failed starts its ranks again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/restart_policy.h"

/* The shortest and the longest pause before a restart, in milliseconds. */
enum { PAUSE_MS_MIN = 1000, PAUSE_MS_MAX = 30000 };

bool tdm__restart_policy_covers(tdm_status status)
{
    return status == TDM_E_ACTOR_DIED || status == TDM_E_ACTOR_UNAVAILABLE ||
           status == TDM_E_NODE_LOST || status == TDM_E_OWNER_DIED || status == TDM_E_VALUE_LOST ||
           status == TDM_E_STORE || status == TDM_E_CLOSED || status == TDM_E_TIMEOUT ||
           status == TDM_E_ABORTED;
}

bool tdm__restart_policy_allows(const struct tdm__restart_policy *policy, tdm_status status,
                                bool has_started)
{
    return has_started && policy->restarts_count < policy->restarts_max &&
           tdm__restart_policy_covers(status);
}

int64_t tdm__restart_policy_count(struct tdm__restart_policy *policy)
{
    int64_t pause_ms = policy->fruitless_count == 0 ? 0 : PAUSE_MS_MIN;

    for (uint32_t i = 1; i < policy->fruitless_count && pause_ms < PAUSE_MS_MAX; i++) {
        pause_ms *= 2;
    }
    policy->restarts_count++;
    policy->fruitless_count++;
    return pause_ms < PAUSE_MS_MAX ? pause_ms : PAUSE_MS_MAX;
}

void tdm__restart_policy_on_step(struct tdm__restart_policy *policy)
{
    policy->fruitless_count = 0;
}
