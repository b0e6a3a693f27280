/* copiers.c - processes that copy their memory when they are told to. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copiers.h"

#include "measure.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Large pages where they can be had: the limit shall be a good one. */
static char *touched_memory(size_t size_bytes)
{
    char *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        bench_die("mmap");
    }
    (void)madvise(memory, size_bytes, MADV_HUGEPAGE);
    memset(memory, 1, size_bytes);
    return memory;
}

void bench_copier(int fd)
{
    uint64_t size_bytes;
    char *from;
    char *to;
    char word;

    bench_read(fd, &size_bytes, sizeof(size_bytes));
    from = touched_memory(size_bytes);
    to = touched_memory(size_bytes);
    for (;;) {
        bench_read(fd, &word, sizeof(word));
        memcpy(to, from, size_bytes);
        bench_write(fd, &to[size_bytes - 1], 1);
    }
}

void bench_copiers_start(struct bench_copiers *copiers, uint32_t count, uint64_t size_bytes)
{
    copiers->count = count;
    for (uint32_t i = 0; i < count; i++) {
        copiers->fds[i] = bench_peer_pair("copier", &copiers->pids[i]);
        bench_write(copiers->fds[i], &size_bytes, sizeof(size_bytes));
    }
    (void)bench_copiers_run(copiers); /* they are ready, their memory warm */
}

double bench_copiers_run(const struct bench_copiers *copiers)
{
    double begun = bench_seconds();
    char word = 0;

    for (uint32_t i = 0; i < copiers->count; i++) {
        bench_write(copiers->fds[i], &word, sizeof(word));
    }
    for (uint32_t i = 0; i < copiers->count; i++) {
        bench_read(copiers->fds[i], &word, sizeof(word));
    }
    return bench_seconds() - begun;
}

void bench_copiers_stop(struct bench_copiers *copiers)
{
    for (uint32_t i = 0; i < copiers->count; i++) {
        bench_peer_kill(copiers->pids[i]);
        (void)close(copiers->fds[i]);
    }
    copiers->count = 0;
}
