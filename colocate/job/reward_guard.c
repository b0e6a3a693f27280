/* reward_guard.c - reports which job library's reward function crashed the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/reward_guard.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const int guarded_signals[TDM__GUARDED_SIGNALS_COUNT] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL,
                                                                SIGABRT};

/* A signal handler has no argument for them. */
static struct {
    struct tdm__reward_guard *guard;
    volatile sig_atomic_t in_reward;
    char library[256];
} guarded;

static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        return; /* There is no other place to report it. */
    }
}

/* Only functions that are safe in a signal handler are called here.  The handler restores the
 * former action and returns.  The signal then takes its former effect: the instruction that
 * crashed runs again, or the signal that a process sent is sent once more. */
static void on_crash(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    if (guarded.in_reward != 0) {
        write_text("tandem: the reward function of job library \"");
        write_text(guarded.library);
        write_text("\" crashed: signal ");
        write_text(sigabbrev_np(signal_number));
        write_text("\n");
    }
    for (int i = 0; i < TDM__GUARDED_SIGNALS_COUNT; i++) {
        if (guarded_signals[i] == signal_number) {
            (void)sigaction(signal_number, &guarded.guard->before[i], NULL);
        }
    }
    if (info->si_code <= 0) { /* From kill() or raise(). */
        (void)raise(signal_number);
    }
}

void tdm__reward_guard_begin(struct tdm__reward_guard *guard, const char *library)
{
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO};

    (void)sigemptyset(&action.sa_mask);
    (void)snprintf(guarded.library, sizeof(guarded.library), "%s", library);
    guarded.guard = guard;
    for (int i = 0; i < TDM__GUARDED_SIGNALS_COUNT; i++) {
        (void)sigaction(guarded_signals[i], &action, &guard->before[i]);
    }
}

float tdm__reward_guard_call(tdm_reward *reward, const char *prompt, const char *answer,
                             const struct tdm_completion *completion, float *token_rewards)
{
    float value;

    guarded.in_reward = 1;
    value = reward(prompt, answer, completion, token_rewards);
    guarded.in_reward = 0;
    return value;
}

void tdm__reward_guard_end(struct tdm__reward_guard *guard)
{
    for (int i = 0; i < TDM__GUARDED_SIGNALS_COUNT; i++) {
        (void)sigaction(guarded_signals[i], &guard->before[i], NULL);
    }
    guarded.guard = NULL;
}
