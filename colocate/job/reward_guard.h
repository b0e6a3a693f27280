/* reward_guard.h - reports which job library's reward function crashed the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_REWARD_GUARD_H
#define TDM_COLOCATE_JOB_REWARD_GUARD_H

#include <signal.h>
#include <tandem/job.h>

enum { TDM__GUARDED_SIGNALS_COUNT = 5 };

/* The signal actions that were in force before the guard. */
struct tdm__reward_guard {
    struct sigaction before[TDM__GUARDED_SIGNALS_COUNT];
};

/* Catches crashes until tdm__reward_guard_end().  A crash inside tdm__reward_guard_call()
 * prints one line to stderr that names `library` (cut at 255 bytes) and the signal.  The
 * process then ends by the same signal, as it does without a guard.  One guard at a time; the
 * thread that begins it makes the calls and ends it. */
void tdm__reward_guard_begin(struct tdm__reward_guard *guard, const char *library);
float tdm__reward_guard_call(tdm_reward *reward, const char *prompt, const char *answer,
                             const struct tdm_completion *completion, float *token_rewards);
void tdm__reward_guard_end(struct tdm__reward_guard *guard);

#endif
