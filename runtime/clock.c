/* clock.c - the monotonic clock and deadlines on it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"

#include <time.h>

/* Milliseconds of the longest finite timeout, a hundred years: longer than any process lives, and
 * short enough that sums of times do not overflow. */
#define TIMEOUT_MS_MAX ((int64_t)100 * 365 * 86400 * 1000)

int64_t tdm__clock_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t tdm__clock_ms(void)
{
    return tdm__clock_ns() / 1000000;
}

int64_t tdm__clock_boot_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t tdm__clock_coarse_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t tdm__deadline_after(int64_t timeout_ms)
{
    return timeout_ms < 0 || timeout_ms > TIMEOUT_MS_MAX ? TDM__NEVER
                                                         : tdm__clock_ms() + timeout_ms;
}

int64_t tdm__timeout_add(int64_t timeout_ms, int64_t more_ms)
{
    return timeout_ms < 0 || timeout_ms > TIMEOUT_MS_MAX ? -1 : timeout_ms + more_ms;
}

int64_t tdm__deadline_remaining_ms(int64_t deadline_ms)
{
    int64_t left;

    if (deadline_ms == TDM__NEVER) {
        return -1;
    }
    left = deadline_ms - tdm__clock_ms();
    return left > 0 ? left : 0;
}
