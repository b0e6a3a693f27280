/* reward_guard.h - reports which job library's reward function crashed the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_REWARD_GUARD_H
#define TDM_COLOCATE_JOB_REWARD_GUARD_H

#include <signal.h>
#include <tandem/job.h>

/* Number of signals that the guard handles. */
enum { TDM__GUARDED_SIGNALS_COUNT = 5 };

/* A guard that is in force between begin and end. The caller owns it. */
struct tdm__reward_guard {
    /* The signal actions that were in force before the guard; restored when it ends. */
    struct sigaction before[TDM__GUARDED_SIGNALS_COUNT];
};

/* Installs signal handlers until tdm__reward_guard_end(). A crash inside
 * tdm__reward_guard_call() then prints one line to stderr that names `library` (cut at 255
 * bytes) and the signal. The process ends by the same signal, as it does without a guard. There
 * can be only one guard at a time; one thread begins it, makes the calls and ends it. */
void tdm__reward_guard_begin(struct tdm__reward_guard *guard, const char *library);
/* Calls the reward function under the guard and returns its result. */
float tdm__reward_guard_call(tdm_reward *reward, const char *prompt, const char *answer,
                             const struct tdm_completion *completion, float *token_rewards);
/* Restores the former signal handlers. */
void tdm__reward_guard_end(struct tdm__reward_guard *guard);

#endif
