/* relay_test.c - relays copy bytes between sockets and end with them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/relay.h"

#include "runtime/clock.h"
#include "tests/support/tcp_sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    STALL_MS = 200,        /* Time without progress of tests in which a peer does not read. */
    SLOW_STALL_MS = 2000,  /* The same in tests in which the peer reads, on a busy machine, too. */
    READER_PAUSE_MS = 500, /* Pause of the slow reader. */
    READER_PAUSES = 6,     /* Number of these pauses: together longer than the time above. */
    WAIT_MS = 20000
};

/* A relay between the sockets inner[0] and inner[1]; the test has the other ends. */
struct scene {
    struct tdm__loop *loop;
    struct tdm__relays *relays;
    int outer[2]; /* Sockets of the test, non-blocking. */
};

static int open_scene_with(void **state, int64_t stall_ms)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    int inner[2];

    assert_non_null(scene);
    assert_int_equal(tdm__loop_create(&scene->loop), TDM_OK);
    assert_int_equal(tdm__relays_create(scene->loop, stall_ms, &scene->relays), TDM_OK);
    for (int i = 0; i < 2; i++) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        inner[i] = pair[0];
        scene->outer[i] = pair[1];
        assert_int_equal(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
    }
    assert_int_equal(tdm__relays_add(scene->relays, inner[0], NULL, inner[1]), TDM_OK);
    *state = scene;
    return 0;
}

static int open_scene(void **state)
{
    return open_scene_with(state, STALL_MS);
}

static int open_slow_scene(void **state)
{
    return open_scene_with(state, SLOW_STALL_MS);
}

static int close_scene(void **state)
{
    struct scene *scene = *state;

    tdm__relays_destroy(scene->relays);
    tdm__loop_destroy(scene->loop);
    (void)close(scene->outer[0]);
    (void)close(scene->outer[1]);
    free(scene);
    return 0;
}

/* Runs the loop for a moment. */
static void turn(struct scene *scene)
{
    (void)tdm__loop_run(scene->loop, NULL, NULL, tdm__deadline_after(1));
}

/* Runs the loop until something can be read from a socket of the test, and reads it. Returns 0 at
 * the end of file. */
static ssize_t receive(struct scene *scene, int side, char *bytes, size_t size_bytes)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    ssize_t got;

    while ((got = recv(scene->outer[side], bytes, size_bytes, 0)) < 0 && errno == EAGAIN) {
        assert_true(tdm__clock_ms() < deadline_ms);
        turn(scene);
    }
    return got;
}

/* Returns byte `position` of the stream in one direction. */
static char byte_of_stream(size_t position, int direction)
{
    return (char)((position * 2654435761U >> 16) + (size_t)direction);
}

/* The part of a stream that was sent and received so far. */
struct progress {
    size_t sent;
    size_t received;
};

/* Sends and receives as much of the stream from outer[side] as is possible now. */
static void move(struct scene *scene, int side, struct progress *progress, size_t total)
{
    char bytes[9999];
    ssize_t moved;
    size_t count = total - progress->sent < sizeof(bytes) ? total - progress->sent : sizeof(bytes);

    for (size_t i = 0; i < count; i++) {
        bytes[i] = byte_of_stream(progress->sent + i, side);
    }
    moved = send(scene->outer[side], bytes, count, MSG_NOSIGNAL);
    progress->sent += moved > 0 ? (size_t)moved : 0;
    moved = recv(scene->outer[1 - side], bytes, sizeof(bytes), 0);
    for (ssize_t i = 0; i < moved; i++) {
        if (bytes[i] != byte_of_stream(progress->received + (size_t)i, side)) {
            fail_msg("byte %zu of direction %d is wrong", progress->received + (size_t)i, side);
        }
    }
    progress->received += moved > 0 ? (size_t)moved : 0;
}

static void bytes_travel_in_both_directions_at_once(void **state)
{
    struct progress progress[2] = {{0, 0}, {0, 0}};
    const size_t total = 20 << 20;
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    while (progress[0].received < total || progress[1].received < total) {
        assert_true(tdm__clock_ms() < deadline_ms);
        for (int side = 0; side < 2; side++) {
            move(*state, side, &progress[side], total);
        }
        (void)tdm__loop_run(((struct scene *)*state)->loop, NULL, NULL, 0);
    }
}

static void end_of_one_side_follows_its_bytes_to_the_other(void **state)
{
    struct scene *scene = *state;
    char bytes[8] = "";

    assert_int_equal(send(scene->outer[0], "last", 4, 0), 4);
    assert_int_equal(close(scene->outer[0]), 0);
    scene->outer[0] = -1;
    assert_int_equal(receive(scene, 1, bytes, sizeof(bytes)), 4);
    assert_memory_equal(bytes, "last", 4);
    assert_int_equal(receive(scene, 1, bytes, sizeof(bytes)), 0);
}

/* Fills everything between the sender and a reader that does not read. */
static void fill(struct scene *scene)
{
    char bytes[4096] = "";
    int refused = 0;

    while (refused < 20) {
        if (send(scene->outer[0], bytes, sizeof(bytes), MSG_NOSIGNAL) < 0) {
            refused++;
            turn(scene);
        }
    }
}

static void peer_that_stops_reading_ends_the_relay(void **state)
{
    struct scene *scene = *state;
    struct pollfd sender = {.fd = scene->outer[0]};
    int64_t begin_ms = tdm__clock_ms(); /* The reader stops before the relay is full. */

    fill(scene);
    while (poll(&sender, 1, 0) == 0) { /* Until POLLHUP. */
        assert_true(tdm__clock_ms() - begin_ms < WAIT_MS);
        turn(scene);
    }
    assert_true(tdm__clock_ms() - begin_ms >= STALL_MS / 2);
}

static void slow_reader_does_not_end_the_relay(void **state)
{
    struct scene *scene = *state;
    char *bytes = malloc(64 << 10);

    assert_non_null(bytes);
    fill(scene);
    for (int i = 0; i < READER_PAUSES; i++) {
        assert_true(receive(scene, 1, bytes, 64 << 10) > 0);
        while (recv(scene->outer[1], bytes, 64 << 10, 0) > 0) { /* All that is there. */
        }
        (void)tdm__loop_run(scene->loop, NULL, NULL, tdm__deadline_after(READER_PAUSE_MS));
        (void)send(scene->outer[0], bytes, 64 << 10, MSG_NOSIGNAL);
    }
    free(bytes);
}

static void idle_relay_stays(void **state)
{
    struct scene *scene = *state;
    char bytes[8];

    (void)tdm__loop_run(scene->loop, NULL, NULL, tdm__deadline_after(2 * (int64_t)STALL_MS));
    assert_int_equal(send(scene->outer[1], "x", 1, 0), 1);
    assert_int_equal(receive(scene, 0, bytes, sizeof(bytes)), 1);
}

/* Connects two TCP sockets of this process. */
static void connect_tcp(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&address, sizeof(address)), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    (void)close(listener);
}

static void kernel_ends_relays_to_a_machine_that_is_gone(void **state)
{
    struct scene *scene = *state;
    int fds[2];

    connect_tcp(fds);
    assert_int_equal(tdm__relays_add(scene->relays, fds[0], NULL, fds[1]), TDM_OK);
    assert_int_equal(tcp_sockets_check(true), 2);
}

static void destroying_the_set_closes_the_sockets(void **state)
{
    struct scene *scene = *state;
    char bytes[8];

    tdm__relays_destroy(scene->relays);
    scene->relays = NULL;
    assert_int_equal(recv(scene->outer[0], bytes, sizeof(bytes), 0), 0);
    assert_int_equal(recv(scene->outer[1], bytes, sizeof(bytes), 0), 0);
}

static void socket_that_cannot_be_watched_is_refused(void **state)
{
    struct scene *scene = *state;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_not_equal(tdm__relays_add(scene->relays, pair[0], NULL, -1), TDM_OK);
    assert_int_equal(close(pair[0]), 0); /* The caller still owns it. */
    assert_int_equal(close(pair[1]), 0);
}

#define SCENE_TEST(test) cmocka_unit_test_setup_teardown(test, open_scene, close_scene)
#define SLOW_TEST(test)  cmocka_unit_test_setup_teardown(test, open_slow_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SLOW_TEST(bytes_travel_in_both_directions_at_once),
        SCENE_TEST(end_of_one_side_follows_its_bytes_to_the_other),
        SCENE_TEST(peer_that_stops_reading_ends_the_relay),
        SLOW_TEST(slow_reader_does_not_end_the_relay),
        SCENE_TEST(idle_relay_stays),
        SCENE_TEST(kernel_ends_relays_to_a_machine_that_is_gone),
        SCENE_TEST(destroying_the_set_closes_the_sockets),
        SCENE_TEST(socket_that_cannot_be_watched_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
