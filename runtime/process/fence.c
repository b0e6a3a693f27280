/* fence.c - the page by which a daemon tells its supervisor which processes end with a lease. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The list is an array of places. A place holds a process id and the time at which that process
 * started, by which the kernel tells two processes with the same id apart. The daemon writes the
 * time before the id, and clears the id to free the place. The supervisor opens a pidfd before it
 * compares the time, so the signal reaches the process that it has compared.
 *
 * The supervisor cannot be woken by a write to memory, so it looks again once a second. That is no
 * delay: an end that was set is only ever replaced by a later one, except at the moment when a node
 * begins to share its store, which is followed by a whole lease. */
#include "runtime/process/fence.h"

#include "runtime/error.h"
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LOOK_AGAIN_MS = 1000, /* Most milliseconds between two looks of the supervisor. */
    /* Milliseconds between two looks after the end of the lease, when processes may be added that
     * must not live. */
    ENDED_LOOK_MS = 50
};

/* A place in the list of processes. */
struct place {
    _Atomic int32_t pid;         /* Process id; 0 in a free place. */
    _Atomic uint64_t started_at; /* Start of the process, in clock ticks since the boot. */
};

/* The shared memory. */
struct tdm__fence {
    _Atomic int64_t end_ms; /* End of the lease in milliseconds on CLOCK_BOOTTIME; 0 for never. */
    _Atomic uint32_t places_count; /* Number of places that have been used so far. */
    uint32_t free_from;            /* Lowest place that may be free; only the daemon uses it. */
    struct place places[TDM__FENCED_PROCESSES_MAX]; /* The list of processes. */
};

/* Reads the start of the process `pid`, in clock ticks since the boot. Returns false if there is no
 * such process. It allocates nothing, so the supervisor may call it. */
static bool read_start(pid_t pid, uint64_t *started_at_out)
{
    enum { FIELDS_BEFORE = 19 }; /* Fields of /proc/PID/stat between the name and the start. */
    char path[64];
    char text[1024];
    const char *field;
    ssize_t length;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    length = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (length <= 0) {
        return false;
    }
    text[length] = '\0';
    field = strrchr(text, ')'); /* The name may contain spaces and brackets. */
    for (int i = 0; field != NULL && i <= FIELDS_BEFORE; i++) {
        field = strchr(field + 1, ' ');
    }
    if (field == NULL) {
        return false;
    }
    *started_at_out = strtoull(field, NULL, 10);
    return true;
}

tdm_status tdm__fence_create(struct tdm__fence **fence_out)
{
    void *memory = mmap(NULL, sizeof(struct tdm__fence), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return tdm__fail_errno(errno, "mmap of %zu bytes that the daemon and its supervisor share",
                               sizeof(struct tdm__fence));
    }
    *fence_out = memory;
    return TDM_OK;
}

void tdm__fence_set_end(struct tdm__fence *fence, int64_t end_ms)
{
    atomic_store(&fence->end_ms, end_ms);
}

bool tdm__fence_covers(struct tdm__fence *fence, pid_t pid)
{
    uint64_t started_at;
    uint32_t place;

    if (fence == NULL || !read_start(pid, &started_at)) {
        return true;
    }
    place = fence->free_from;
    while (place < TDM__FENCED_PROCESSES_MAX && atomic_load(&fence->places[place].pid) != 0) {
        place++;
    }
    if (place == TDM__FENCED_PROCESSES_MAX) {
        tdm__log(TDM__ERROR, "fence",
                 "pid %d must end: the node already runs %d actors with names, restarts or GPUs, "
                 "the most that its supervisor can stop when the lease ends",
                 (int)pid, (int)TDM__FENCED_PROCESSES_MAX);
        return false;
    }
    atomic_store(&fence->places[place].started_at, started_at);
    atomic_store(&fence->places[place].pid, (int32_t)pid);
    fence->free_from = place + 1;
    if (place >= atomic_load(&fence->places_count)) {
        atomic_store(&fence->places_count, place + 1);
    }
    return true;
}

void tdm__fence_remove(struct tdm__fence *fence, pid_t pid)
{
    uint32_t count = fence == NULL || pid == 0 ? 0 : atomic_load(&fence->places_count);

    for (uint32_t i = 0; i < count; i++) {
        if (atomic_load(&fence->places[i].pid) == (int32_t)pid) {
            atomic_store(&fence->places[i].pid, 0);
            fence->free_from = i < fence->free_from ? i : fence->free_from;
        }
    }
}

/* Kills the process in the place, if that process still exists. Returns whether a signal was sent.
 */
static bool place_kill(const struct place *place)
{
    pid_t pid = (pid_t)atomic_load(&place->pid);
    uint64_t started_at;
    bool was_sent = false;
    int pidfd;

    if (pid == 0) {
        return false;
    }
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        return false;
    }
    if (read_start(pid, &started_at) && started_at == atomic_load(&place->started_at)) {
        was_sent = syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0;
    }
    (void)close(pidfd);
    return was_sent;
}

int tdm__fence_enforce(struct tdm__fence *fence, int64_t now_ms)
{
    int64_t end_ms = atomic_load(&fence->end_ms);
    uint32_t killed_count = 0;

    if (end_ms == 0 || end_ms > now_ms) {
        return end_ms == 0 || end_ms - now_ms > LOOK_AGAIN_MS ? LOOK_AGAIN_MS
                                                              : (int)(end_ms - now_ms);
    }
    for (uint32_t i = 0; i < atomic_load(&fence->places_count); i++) {
        killed_count += place_kill(&fence->places[i]) ? 1 : 0;
    }
    if (killed_count > 0) {
        tdm__log(TDM__WARN, "supervisor",
                 "the lease of the node has ended: killed %u actors with names, restarts or GPUs",
                 killed_count);
    }
    return ENDED_LOOK_MS;
}
