/* filling.c - memory for new blocks, made by a thread of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/filling.h"

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
struct tdm__filling {
    tdm__filled_fn *fn;
    void *arg;
    int ended_fd; /* an eventfd: readable when the thread is about to end */
    struct tdm__watch *watch;
    pthread_t thread;
    uint32_t gpu;
    uint32_t count;
    size_t sizes_bytes[TDM__BLOCKS_MAX];
    int fds[TDM__BLOCKS_MAX]; /* owned, those below `made` */
    uint32_t made;
    tdm_status status;
    char detail[TDM__ERROR_DETAIL_BYTES];
    atomic_bool is_canceled; /* by the loop, while the thread is at work */
};

static void drop_memory(struct tdm__filling *filling)
{
    while (filling->made > 0) {
        filling->made--;
        (void)close(filling->fds[filling->made]);
    }
}

/* Memory and thread are somebody else's, or gone. */
static void filling_free(struct tdm__filling *filling)
{
    tdm__watch_destroy(filling->watch);
    if (filling->ended_fd >= 0) {
        (void)close(filling->ended_fd);
    }
    free(filling);
}

static void *fill(void *arg)
{
    struct tdm__filling *filling = arg;
    const uint64_t one = 1;
    tdm_status status = TDM_OK;
    ssize_t written;

    while (filling->made < filling->count && status == TDM_OK &&
           !atomic_load(&filling->is_canceled)) {
        status = tdm__block_memory_make(filling->gpu, filling->sizes_bytes[filling->made],
                                        &filling->fds[filling->made]);
        filling->made += status == TDM_OK ? 1 : 0;
    }
    if (status != TDM_OK) {
        (void)snprintf(filling->detail, sizeof(filling->detail), "%s", tdm_error_detail());
        drop_memory(filling);
    }
    filling->status = status;
    written = write(filling->ended_fd, &one, sizeof(one));
    TDM_ASSERT(written == (ssize_t)sizeof(one)); /* nobody else counts there */
    return NULL;
}

static void on_ended(void *arg, int fd, unsigned ready)
{
    struct tdm__filling *filling = arg;

    (void)fd;
    (void)ready;
    (void)pthread_join(filling->thread, NULL);
    filling->fn(filling->arg, filling->status, filling->detail, filling->fds);
    filling_free(filling);
}

static tdm_status start(struct tdm__filling *filling, struct tdm__loop *loop)
{
    filling->ended_fd = eventfd(0, EFD_CLOEXEC);
    if (filling->ended_fd < 0) {
        return tdm__fail_errno(errno, "eventfd for %u blocks of GPU %u", filling->count,
                               filling->gpu);
    }
    TDM_TRY(tdm__watch_create(loop, filling->ended_fd, TDM__READABLE, on_ended, filling,
                              &filling->watch));
    if (pthread_create(&filling->thread, NULL, fill, filling) != 0) {
        return tdm__fail(TDM_E_NOMEM, "a thread to make %u blocks of GPU %u", filling->count,
                         filling->gpu);
    }
    return TDM_OK;
}

tdm_status tdm__filling_begin(struct tdm__loop *loop, uint32_t gpu, const size_t *sizes_bytes,
                              uint32_t count, tdm__filled_fn *fn, void *arg,
                              struct tdm__filling **filling_out)
{
    struct tdm__filling *filling = calloc(1, sizeof(*filling));
    tdm_status status;

    TDM_ASSERT(count > 0 && count <= TDM__BLOCKS_MAX);
    if (filling == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u blocks of GPU %u", count, gpu);
    }
    filling->fn = fn;
    filling->arg = arg;
    filling->gpu = gpu;
    filling->count = count;
    memcpy(filling->sizes_bytes, sizes_bytes, count * sizeof(sizes_bytes[0]));
    status = start(filling, loop);
    if (status != TDM_OK) {
        filling_free(filling);
        return status;
    }
    *filling_out = filling;
    return TDM_OK;
}

void tdm__filling_cancel(struct tdm__filling *filling)
{
    atomic_store(&filling->is_canceled, true);
    (void)pthread_join(filling->thread, NULL);
    drop_memory(filling);
    filling_free(filling);
}
