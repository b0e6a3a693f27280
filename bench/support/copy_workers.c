/* copy_workers.c - processes that copy or send their memory on request. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_workers.h"

#include "measure.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns memory whose pages have been touched, with large pages if possible, so that the limit
 * is as fast as the machine allows. */
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

/* Copies with memcpy(). */
static uint64_t copy_plainly(void *to, const void *from, size_t size_bytes)
{
    memcpy(to, from, size_bytes);
    return ((const unsigned char *)to)[size_bytes - 1];
}

void bench_copier(int fd)
{
    bench_copier_with(fd, copy_plainly);
}

_Noreturn void bench_copier_with(int fd, bench_copy_fn *copy)
{
    uint64_t size_bytes;
    uint64_t done;
    char *from;
    char *to;
    char word;

    bench_read(fd, &size_bytes, sizeof(size_bytes));
    from = touched_memory(size_bytes);
    to = touched_memory(size_bytes);
    for (;;) {
        bench_read(fd, &word, sizeof(word));
        done = copy(to, from, size_bytes);
        bench_write(fd, &done, 1);
    }
}

/* Creates a TCP connection over the loopback interface and returns both ends. */
static void connect_loopback(int ends_out[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ends_out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || ends_out[0] < 0 ||
        bind(listener, (const struct sockaddr *)&address, length) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(ends_out[0], (const struct sockaddr *)&address, length) != 0) {
        bench_die("a connection over the loopback");
    }
    ends_out[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (ends_out[1] < 0) {
        bench_die("accept4");
    }
    (void)close(listener);
}

/* Receives `size_bytes` repeatedly and confirms each time on the sender's socket `fd`. */
_Noreturn static void receive_for(int fd, int data, char *to, size_t size_bytes)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        bench_read(data, to, size_bytes);
        bench_write(fd, &to[size_bytes - 1], 1);
    }
}

void bench_sender(int fd)
{
    uint64_t size_bytes;
    int ends[2];
    char *memory;
    pid_t receiver;
    char word;

    bench_read(fd, &size_bytes, sizeof(size_bytes));
    connect_loopback(ends);
    receiver = fork();
    if (receiver < 0) {
        bench_die("fork");
    }
    memory = touched_memory(size_bytes);
    if (receiver == 0) {
        receive_for(fd, ends[1], memory, size_bytes);
    }
    for (;;) {
        bench_read(fd, &word, sizeof(word));
        bench_write(ends[0], memory, size_bytes);
    }
}

void bench_copy_workers_start(struct bench_copy_workers *copiers, const char *role, uint32_t count,
                              uint64_t size_bytes)
{
    copiers->count = count;
    for (uint32_t i = 0; i < count; i++) {
        copiers->fds[i] = bench_peer_pair(role, &copiers->pids[i]);
        bench_write(copiers->fds[i], &size_bytes, sizeof(size_bytes));
    }
    /* The first run makes sure that all are ready and their memory is warm. */
    (void)bench_copy_workers_run(copiers);
}

double bench_copy_workers_run(const struct bench_copy_workers *copiers)
{
    double begun = bench_clock_seconds();
    char word = 0;

    for (uint32_t i = 0; i < copiers->count; i++) {
        bench_write(copiers->fds[i], &word, sizeof(word));
    }
    for (uint32_t i = 0; i < copiers->count; i++) {
        bench_read(copiers->fds[i], &word, sizeof(word));
    }
    return bench_clock_seconds() - begun;
}

void bench_copy_workers_stop(struct bench_copy_workers *copiers)
{
    for (uint32_t i = 0; i < copiers->count; i++) {
        bench_peer_kill(copiers->pids[i]);
        (void)close(copiers->fds[i]);
    }
    copiers->count = 0;
}
