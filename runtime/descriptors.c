/* descriptors.c - how many file descriptors this process may have, and how many are left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/descriptors.h"

#include "runtime/assert.h"

#include <limits.h>
#include <poll.h>
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

/* Returns true if the `count` highest numbers that a descriptor may have are all free. Descriptors
 * get the lowest free numbers, so that is usual. */
static bool highest_are_free(uint64_t limit, uint32_t count)
{
    struct pollfd highest[TDM__DESCRIPTORS_ASKED_MAX];

    if (limit < count || limit > INT_MAX) {
        return limit > INT_MAX;
    }
    for (uint32_t i = 0; i < count; i++) {
        highest[i] = (struct pollfd){.fd = (int)(limit - 1 - i)};
    }
    if (poll(highest, count, 0) < 0) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (highest[i].revents != POLLNVAL) {
            return false;
        }
    }
    return true;
}

bool tdm__descriptors_are_few(uint32_t count)
{
    int taken[TDM__DESCRIPTORS_ASKED_MAX];
    uint32_t taken_count = 0;

    TDM_ASSERT(count <= TDM__DESCRIPTORS_ASKED_MAX);
    if (highest_are_free(tdm__descriptors_limit(), count)) {
        return false;
    }
    while (taken_count < count && (taken[taken_count] = eventfd(0, EFD_CLOEXEC)) >= 0) {
        taken_count++;
    }
    for (uint32_t i = 0; i < taken_count; i++) {
        (void)close(taken[i]);
    }
    return taken_count < count;
}
