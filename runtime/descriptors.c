/* descriptors.c - how many file descriptors this process may have, and how many are left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/descriptors.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

void tdm__descriptors_raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

uint64_t tdm__descriptors_limit(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

bool tdm__descriptors_are_few(uint64_t count)
{
    int next = eventfd(0, EFD_CLOEXEC);
    uint64_t limit = tdm__descriptors_limit();

    if (next < 0) {
        return true;
    }
    (void)close(next);
    return (uint64_t)next + count >= limit;
}
