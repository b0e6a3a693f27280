/* block_allocation.c - memory for new blocks, allocated_count by a thread of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/block_allocation.h"

#include "colocate/memory/block_memory.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Written by the thread until it has ended, read on the loop after that. */
struct tdm__block_allocation {
    tdm__block_allocation_done_fn *done_fn;
    void *done_arg;
    int ended_fd; /* an eventfd: readable when the thread is about to end */
    struct tdm__fd_watch *watch;
    pthread_t thread;
    uint32_t gpu;
    uint32_t count;
    size_t sizes_bytes[TDM__BLOCKS_MAX];
    int fds[TDM__BLOCKS_MAX]; /* owned, those below `allocated_count` */
    uint32_t allocated_count;
    tdm_status status;
    char detail[TDM__ERROR_DETAIL_BYTES];
    atomic_bool is_canceled; /* by the loop, while the thread is at work */
};

static void allocation_close_fds(struct tdm__block_allocation *allocation)
{
    while (allocation->allocated_count > 0) {
        allocation->allocated_count--;
        (void)close(allocation->fds[allocation->allocated_count]);
    }
}

/* Memory and thread are somebody else's, or gone. */
static void allocation_free(struct tdm__block_allocation *allocation)
{
    tdm__fd_watch_destroy(allocation->watch);
    if (allocation->ended_fd >= 0) {
        (void)close(allocation->ended_fd);
    }
    free(allocation);
}

static void *allocation_thread(void *done_arg)
{
    struct tdm__block_allocation *allocation = done_arg;
    const uint64_t one = 1;
    tdm_status status = TDM_OK;
    ssize_t written;

    while (allocation->allocated_count < allocation->count && status == TDM_OK &&
           !atomic_load(&allocation->is_canceled)) {
        status = tdm__block_memory_create(allocation->gpu,
                                          allocation->sizes_bytes[allocation->allocated_count],
                                          &allocation->fds[allocation->allocated_count]);
        allocation->allocated_count += status == TDM_OK ? 1 : 0;
    }
    if (status != TDM_OK) {
        (void)snprintf(allocation->detail, sizeof(allocation->detail), "%s", tdm_error_detail());
        allocation_close_fds(allocation);
    }
    allocation->status = status;
    written = write(allocation->ended_fd, &one, sizeof(one));
    TDM_ASSERT(written == (ssize_t)sizeof(one)); /* nobody else counts there */
    return NULL;
}

static void on_thread_ended(void *done_arg, int fd, unsigned ready)
{
    struct tdm__block_allocation *allocation = done_arg;

    (void)fd;
    (void)ready;
    (void)pthread_join(allocation->thread, NULL);
    allocation->done_fn(allocation->done_arg, allocation->status, allocation->detail,
                        allocation->fds);
    allocation_free(allocation);
}

static tdm_status allocation_start_thread(struct tdm__block_allocation *allocation,
                                          struct tdm__loop *loop)
{
    allocation->ended_fd = eventfd(0, EFD_CLOEXEC);
    if (allocation->ended_fd < 0) {
        return tdm__fail_errno(errno, "eventfd for %u blocks of GPU %u", allocation->count,
                               allocation->gpu);
    }
    TDM_TRY(tdm__fd_watch_create(loop, allocation->ended_fd, TDM__READABLE, on_thread_ended,
                                 allocation, &allocation->watch));
    if (pthread_create(&allocation->thread, NULL, allocation_thread, allocation) != 0) {
        return tdm__fail(TDM_E_NOMEM, "a thread to make %u blocks of GPU %u", allocation->count,
                         allocation->gpu);
    }
    return TDM_OK;
}

tdm_status tdm__block_allocation_start(struct tdm__loop *loop, uint32_t gpu,
                                       const size_t *sizes_bytes, uint32_t count,
                                       tdm__block_allocation_done_fn *done_fn, void *done_arg,
                                       struct tdm__block_allocation **allocation_out)
{
    struct tdm__block_allocation *allocation = calloc(1, sizeof(*allocation));
    tdm_status status;

    TDM_ASSERT(count > 0 && count <= TDM__BLOCKS_MAX);
    if (allocation == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u blocks of GPU %u", count, gpu);
    }
    allocation->done_fn = done_fn;
    allocation->done_arg = done_arg;
    allocation->gpu = gpu;
    allocation->count = count;
    memcpy(allocation->sizes_bytes, sizes_bytes, count * sizeof(sizes_bytes[0]));
    status = allocation_start_thread(allocation, loop);
    if (status != TDM_OK) {
        allocation_free(allocation);
        return status;
    }
    *allocation_out = allocation;
    return TDM_OK;
}

void tdm__block_allocation_cancel(struct tdm__block_allocation *allocation)
{
    atomic_store(&allocation->is_canceled, true);
    (void)pthread_join(allocation->thread, NULL);
    allocation_close_fds(allocation);
    allocation_free(allocation);
}
