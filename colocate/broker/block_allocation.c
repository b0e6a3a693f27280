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

/* An allocation in progress. The thread writes it until the thread has ended; the loop reads it
 * afterwards. The loop frees it. */
struct tdm__block_allocation {
    /* Function to call on the loop when the allocation ends. */
    tdm__block_allocation_done_fn *done_fn;
    void *done_arg; /* First argument of done_fn. */
    /* Owned eventfd that becomes readable when the thread is about to end. */
    int ended_fd;
    struct tdm__fd_watch *watch;         /* Watch of the loop on ended_fd. */
    pthread_t thread;                    /* Thread that allocates; joined exactly once. */
    uint32_t gpu;                        /* Index of the GPU, for messages. */
    uint32_t count;                      /* Number of memfds to create. */
    size_t sizes_bytes[TDM__BLOCKS_MAX]; /* Sizes of the memfds. */
    /* Descriptors created so far; the first allocated_count are valid and owned. */
    int fds[TDM__BLOCKS_MAX];
    uint32_t allocated_count;             /* Number of memfds created so far. */
    tdm_status status;                    /* Result of the allocation. */
    char detail[TDM__ERROR_DETAIL_BYTES]; /* Error detail if status is not TDM_OK. */
    /* Set by the loop to stop the thread after the current memfd. */
    atomic_bool is_canceled;
};

/* Closes the memfds created so far. */
static void allocation_close_fds(struct tdm__block_allocation *allocation)
{
    while (allocation->allocated_count > 0) {
        allocation->allocated_count--;
        (void)close(allocation->fds[allocation->allocated_count]);
    }
}

/* Frees the struct. The thread must have ended and the descriptors must be closed or given away. */
static void allocation_free(struct tdm__block_allocation *allocation)
{
    tdm__fd_watch_destroy(allocation->watch);
    if (allocation->ended_fd >= 0) {
        (void)close(allocation->ended_fd);
    }
    free(allocation);
}

/* Creates the memfds one after the other and signals ended_fd. */
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
    TDM_ASSERT(written == (ssize_t)sizeof(one)); /* Only this thread writes to the eventfd. */
    return NULL;
}

/* Joins the thread, reports the result and frees the allocation. Runs on the loop. */
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

/* Creates the eventfd, its watch and the thread. */
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
