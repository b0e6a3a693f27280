/* reward_guard.c - reports which job library's reward function crashed the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/reward_guard.h"

#include "runtime/older_libc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Signals that mean a crash of the reward function. */
static const int guarded_signals[TDM__GUARDED_SIGNALS_COUNT] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL,
                                                                SIGABRT};

/* The guard that is in force. A signal handler has no argument, so it is a global. */
static struct {
    /* Borrowed guard; NULL if none is in force. */
    struct tdm__reward_guard *guard;
    /* 1 while the reward function runs. */
    volatile sig_atomic_t in_reward;
    /* Name of the job library, cut at 255 bytes. */
    char library[256];
} guarded;

/* Writes a text to stderr; safe in a signal handler. */
static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        return; /* There is no other place to report it. */
    }
}

/* Signal handler. It reports a crash in the reward function, restores the former action of the
 * signal and returns. The signal then takes its former effect: the instruction that crashed runs
 * again, or a signal that a process sent is raised again. It calls only functions that are safe
 * in a signal handler. */
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
    if (info->si_code <= 0) { /* The signal came from kill() or raise(). */
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
