/* clock.c - a library for LD_PRELOAD that moves the wall clock of a program. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The file TANDEM_FAKE_CLOCK contains 8 bytes: the seconds by which the wall clock is ahead, as an
 * int64_t. A test may change them while the program runs. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

__attribute__((constructor)) static void map_clock(void)
{
    const char *path = getenv("TANDEM_FAKE_CLOCK");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *page = MAP_FAILED;

    if (fd >= 0) {
        page = mmap(NULL, sizeof(*ahead_s), PROT_READ, MAP_SHARED, fd, 0);
        (void)close(fd);
    }
    ahead_s = page == MAP_FAILED ? NULL : page;
}

static time_t ahead(void)
{
    return ahead_s == NULL ? 0 : (time_t)*ahead_s;
}

int clock_gettime(clockid_t clock, struct timespec *time_out)
{
    int status = (int)syscall(SYS_clock_gettime, clock, time_out);

    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        time_out->tv_sec += ahead();
    }
    return status;
}

int gettimeofday(struct timeval *restrict time_out, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *time_out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}
