/* block_allocation.c - allocates the memory of new blocks on a thread, so that the loop does not
 * block. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/broker/block_allocation.h"

#include "colocate/broker/block_memory.h"
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

/* An allocation of blocks that is in progress. Its thread writes the fields until the thread ends.
 * Afterwards the loop's thread reads and frees it. */
struct tdm__block_allocation {
    /* Callback that runs on the loop's thread when the allocation ends. */
    tdm__block_allocation_done_fn *done_fn;
    void *done_arg; /* First argument of done_fn. */
    int ended_fd;   /* Eventfd that becomes readable when the thread is about to end; owned. */
    struct tdm__fd_watch *watch; /* The loop's watch on ended_fd. */
    pthread_t thread;            /* Thread that allocates the memory; joined exactly once. */
    uint32_t gpu;   /* Index of the GPU for which memory is allocated, for error messages. */
    uint32_t count; /* Number of memfds that the thread is to create. */
    size_t sizes_bytes[TDM__BLOCKS_MAX]; /* Size in bytes of each memfd. */
    /* Descriptors of the memfds; the first allocated_count entries are valid and owned. */
    int fds[TDM__BLOCKS_MAX];
    uint32_t allocated_count; /* Number of memfds that the thread has created so far. */
    tdm_status status;        /* Result of the allocation, set when the thread has ended. */
    char detail[TDM__ERROR_DETAIL_BYTES]; /* Error text if `status` is not TDM_OK. */
    /* True once the loop has told the thread to stop after the current memfd. */
    atomic_bool is_canceled;
};

/* Closes the memfds that the thread has created so far. */
static void allocation_close_fds(struct tdm__block_allocation *allocation)
{
    while (allocation->allocated_count > 0) {
        allocation->allocated_count--;
        (void)close(allocation->fds[allocation->allocated_count]);
    }
}

/* Frees an allocation. Its thread must have ended, and its descriptors must be closed or given
 * away. */
static void allocation_free(struct tdm__block_allocation *allocation)
{
    tdm__fd_watch_destroy(allocation->watch);
    if (allocation->ended_fd >= 0) {
        (void)close(allocation->ended_fd);
    }
    free(allocation);
}

/* Body of the allocating thread: creates the memfds one after the other and signals ended_fd. */
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
    /* The write cannot block, because only this thread writes to the eventfd. */
    TDM_ASSERT(written == (ssize_t)sizeof(one));
    return NULL;
}

/* Callback of the loop when ended_fd is readable: joins the thread, calls done_fn with the result
 * and frees the allocation. */
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

/* Creates an allocation's eventfd, the loop's watch on it, and the thread. */
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
