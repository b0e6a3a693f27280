/* raw.c - rounds of bare processes: what sockets and copies can do at best. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A frame has as many bytes as a call or its reply has on the wire, and begins with its number.
 * Peer processes are started at the first use and end with the program. */
#include "side.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- ping-pong ------------------------------------------------------------------------------
 */

/* Role "pong": replies to each frame with a frame. */
static void pong(int fd)
{
    char buffer[BENCH_CALL_BYTES] = {0};

    for (;;) {
        bench_read(fd, buffer, BENCH_CALL_BYTES);
        bench_write(fd, buffer, BENCH_REPLY_BYTES);
    }
}

/* Measures ping-pongs with a peer that is pinned to `core`; this process is on core 0. */
static void ping_pong(int core, double seconds, struct side_numbers *numbers)
{
    static struct side_latencies latencies;
    static pid_t peer;
    static int fd;
    double begun;
    double now;

    if (peer == 0) {
        fd = bench_peer_pair("pong", &peer);
    }
    bench_pin_to_core(0, 0);
    bench_pin_to_core(peer, core);
    latencies.count = 0;
    begun = now = bench_clock_seconds();
    while (now - begun < seconds && latencies.count < SIDE_LATENCIES_MAX) {
        uint64_t frame[BENCH_CALL_BYTES / sizeof(uint64_t) + 1] = {latencies.count};
        double sent = now;

        bench_write(fd, frame, BENCH_CALL_BYTES);
        bench_read(fd, frame, BENCH_REPLY_BYTES);
        side_expect_equal(latencies.count, frame[0], "a ping");
        now = bench_clock_seconds();
        latencies.values[latencies.count++] = now - sent;
    }
    side_numbers_add_rate(numbers, &latencies, now - begun);
    bench_unpin(peer);
    bench_unpin(0);
}

void side_raw_same_core(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    (void)runtime;
    ping_pong(0, seconds, numbers);
}

void side_raw_own_cores(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    (void)runtime;
    ping_pong(1, seconds, numbers);
}

/* ---- framed echo ----------------------------------------------------------------------------
 */

/* Reads at least one byte; the end of the stream ends the process. */
static size_t read_some(int fd, char *buffer, size_t capacity)
{
    ssize_t got;

    do {
        got = read(fd, buffer, capacity);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) {
        _exit(1); /* The benchmark has ended; there is no process left to report to. */
    }
    return (size_t)got;
}

/* Role "echo_frames": replies to all frames that one read brings with one write. */
static void echo_frames(int fd)
{
    static char input[64 * 1024];
    static char output[sizeof(input)];
    size_t filled = 0;

    for (;;) {
        size_t begin = 0;
        size_t used = 0;

        filled += read_some(fd, input + filled, sizeof(input) - filled);
        for (; filled - begin >= BENCH_CALL_BYTES; begin += BENCH_CALL_BYTES) {
            memcpy(output + used, input + begin, BENCH_REPLY_BYTES);
            used += BENCH_REPLY_BYTES;
        }
        memmove(input, input + begin, filled - begin);
        filled -= begin;
        bench_write(fd, output, used);
    }
}

/* Checks the numbers of all replies. */
static void check_replies(const char *replies)
{
    for (uint64_t i = 0; i < SIDE_CALLS_IN_FLIGHT; i++) {
        uint64_t number;

        memcpy(&number, replies + i * BENCH_REPLY_BYTES, sizeof(number));
        side_expect_equal(i, number, "a framed echo");
    }
}

/* Sends SIDE_CALLS_IN_FLIGHT frames, `at_once` with each write, and checks every reply. It reads
 * when the socket is full, because the other side may have to send its replies first. */
static void exchange_batch(int fd, uint32_t at_once)
{
    const size_t bytes_at_once = (size_t)at_once * BENCH_CALL_BYTES;
    static char frames[SIDE_CALLS_IN_FLIGHT * BENCH_CALL_BYTES];
    static char replies[SIDE_CALLS_IN_FLIGHT * BENCH_REPLY_BYTES];
    size_t sent = 0;
    size_t received = 0;

    for (uint64_t i = 0; i < SIDE_CALLS_IN_FLIGHT; i++) {
        memcpy(frames + i * BENCH_CALL_BYTES, &i, sizeof(i));
    }
    while (sent < sizeof(frames)) {
        size_t step = bytes_at_once - sent % bytes_at_once;
        ssize_t put = send(fd, frames + sent, step, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (put >= 0) {
            sent += (size_t)put;
        } else if (errno == EAGAIN) {
            received += read_some(fd, replies + received, sizeof(replies) - received);
        } else if (errno != EINTR) {
            bench_die("send");
        }
    }
    bench_read(fd, replies + received, sizeof(replies) - received);
    check_replies(replies);
}

/* Measures the rate of framed echoes with one peer. */
static void measure_echoes(uint32_t at_once, double seconds, struct side_numbers *numbers)
{
    static pid_t peer;
    static int fd;
    uint32_t frames_count = 0;
    double begun;

    if (peer == 0) {
        fd = bench_peer_pair("echo_frames", &peer);
    }
    begun = bench_clock_seconds();
    do {
        exchange_batch(fd, at_once);
        frames_count += SIDE_CALLS_IN_FLIGHT;
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, frames_count / (bench_clock_seconds() - begun));
}

void side_raw_pipelined(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    (void)runtime;
    measure_echoes(SIDE_CALLS_IN_FLIGHT, seconds, numbers);
}

void side_raw_one_by_one(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    (void)runtime;
    measure_echoes(1, seconds, numbers);
}

/* Request to a process of the role "exchange". */
struct order {
    /* Number of batches to exchange. */
    uint32_t windows_count;
    /* Number of frames with each write. */
    uint32_t at_once;
};

/* Role "exchange": exchanges as many batches as it is told with an echo process of its own, then
 * reports back. */
static void exchange(int fd)
{
    pid_t peer;
    int echo_fd = bench_peer_pair("echo_frames", &peer);

    for (;;) {
        struct order order;

        bench_read(fd, &order, sizeof(order));
        for (uint32_t i = 0; i < order.windows_count; i++) {
            exchange_batch(echo_fd, order.at_once);
        }
        bench_write(fd, &order, sizeof(order));
    }
}

/* Measures two pairs of processes at the same time: as many processes and bytes as two callers
 * of two actors. */
static void run_two_pairs(uint32_t at_once, double seconds, struct side_numbers *numbers)
{
    const struct order order = {.windows_count = 100, .at_once = at_once};
    static int fds[2];
    uint32_t frames_count = 0;
    double begun;

    for (int i = 0; i < 2 && fds[i] == 0; i++) {
        pid_t peer; /* The peer ends with this program. */

        fds[i] = bench_peer_pair("exchange", &peer);
    }
    begun = bench_clock_seconds();
    do {
        for (int i = 0; i < 2; i++) {
            bench_write(fds[i], &order, sizeof(order));
        }
        for (int i = 0; i < 2; i++) {
            struct order done;

            bench_read(fds[i], &done, sizeof(done));
            frames_count += done.windows_count * SIDE_CALLS_IN_FLIGHT;
        }
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, frames_count / (bench_clock_seconds() - begun));
}

void side_raw_two_by_two(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    (void)runtime;
    run_two_pairs(SIDE_CALLS_IN_FLIGHT, seconds, numbers);
}

void side_raw_two_by_two_singly(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    (void)runtime;
    run_two_pairs(1, seconds, numbers);
}

/* ---- copies ---------------------------------------------------------------------------------
 */

/* Returns memory whose pages have been touched. */
static char *warm_memory(size_t size_bytes)
{
    char *memory = malloc(size_bytes);

    if (memory == NULL) {
        bench_die("malloc");
    }
    memset(memory, 1, size_bytes);
    return memory;
}

/* Copies with memcpy(); the compiler cannot remove the copy. */
static void copy_now(char *to, const char *from, size_t size_bytes)
{
    memcpy(to, from, size_bytes);
    /* The copy is never read, but must not be removed. */
    __asm__ volatile("" : : "r"(to) : "memory");
}

void side_raw_copy_twice(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    static char *buffers[3];
    double begun;
    uint32_t copies_count = 0;

    (void)runtime;
    for (int i = 0; i < 3 && buffers[i] == NULL; i++) {
        buffers[i] = warm_memory(SIDE_MIB);
    }
    begun = bench_clock_seconds();
    do {
        copy_now(buffers[1], buffers[0], SIDE_MIB);
        copy_now(buffers[2], buffers[1], SIDE_MIB);
        copies_count++;
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, copies_count / 1024.0 / (bench_clock_seconds() - begun));
}

void side_raw_copy(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    static const size_t size_bytes = (size_t)100 * SIDE_MIB;
    static char *buffers[2];
    double begun;
    uint32_t copies_count = 0;

    (void)runtime;
    for (int i = 0; i < 2 && buffers[i] == NULL; i++) {
        buffers[i] = warm_memory(size_bytes);
    }
    begun = bench_clock_seconds();
    do {
        copy_now(buffers[1], buffers[0], size_bytes);
        copies_count++;
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, copies_count * (100.0 / 1024) / (bench_clock_seconds() - begun));
}

const struct bench_role side_raw_roles[] = {
    {"pong", pong}, {"echo_frames", echo_frames}, {"exchange", exchange}};
const size_t side_raw_roles_count = sizeof(side_raw_roles) / sizeof(side_raw_roles[0]);
