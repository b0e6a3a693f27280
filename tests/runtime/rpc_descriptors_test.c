/* rpc_descriptors_test.c - descriptors travel with their own frame, or are closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/rpc.h"

#include "runtime/clock.h"
#include "tests/support/rpc_pair.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct rpc_pair pair;
/* They outlive the test, because the last ones end in tear_down(). */
static struct pair_reply answers[8];

static int set_up(void **state)
{
    (void)state;
    memset(answers, 0, sizeof(answers));
    pair_create(&pair);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pair_destroy(&pair);
    return 0;
}

static ino_t inode_of(int fd)
{
    struct stat file;

    assert_int_equal(fstat(fd, &file), 0);
    return file.st_ino;
}

static void descriptors_travel_with_their_own_call(void **state)
{
    struct tdm__rpc_request request = pair_request("fd", "x");
    struct pair_reply *noise = &answers[0];
    int pipes[4][2];

    (void)state;
    pair_join(&pair);
    for (int i = 0; i < 4; i++) {
        int back[TDM__RPC_FDS_MAX];
        uint32_t back_count = TDM__RPC_FDS_MAX;

        assert_int_equal(pipe2(pipes[i], O_CLOEXEC), 0);
        request.fds = pipes[i];
        request.fds_count = i % 2 == 0 ? 2 : 1;
        noise->count = 0;
        pair_call(pair.conns[0], "echo", noise);
        assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, back, &back_count),
                         TDM_OK);
        assert_int_equal(back_count, request.fds_count);
        for (uint32_t k = 0; k < back_count; k++) {
            assert_true(inode_of(back[k]) == inode_of(pipes[i][k]));
            assert_true((fcntl(back[k], F_GETFD) & FD_CLOEXEC) != 0);
            (void)close(back[k]);
        }
    }
    for (int i = 0; i < 4; i++) {
        (void)close(pipes[i][0]);
        (void)close(pipes[i][1]);
    }
}

static int lowest_free_fd(void)
{
    int fd = dup(STDERR_FILENO);

    (void)close(fd);
    return fd;
}

static void descriptors_that_are_not_taken_are_closed(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    int free_before;

    (void)state;
    pair_join(&pair);
    free_before = lowest_free_fd();
    request.fds = (const int[]){STDIN_FILENO, STDERR_FILENO};
    request.fds_count = 2;
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL), TDM_OK);
    request.method = "fd";
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL), TDM_OK);
    assert_int_equal(lowest_free_fd(), free_before);
}

static void call_whose_descriptors_are_lost_fails_alone(void **state)
{
    struct tdm__rpc_request request = pair_request("fd", "x");
    struct pair_reply *other = &answers[0];
    int back[TDM__RPC_FDS_MAX];
    uint32_t back_count = TDM__RPC_FDS_MAX;
    struct rlimit before;
    struct rlimit tight;

    (void)state;
    pair_join(&pair);
    request.fds = (const int[]){STDIN_FILENO, STDERR_FILENO};
    request.fds_count = 2;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    for (int spare = 0; spare < 2; spare++) { /* None arrives, and one of two. */
        tight.rlim_cur = (rlim_t)(lowest_free_fd() + spare);
        other->count = 0;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, &answers[1], NULL),
                         TDM_OK);
        pair_call(pair.conns[0], "echo", other);
        pair_run_until(&pair, &other->count, 1);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(answers[1].count, spare + 1);
        assert_int_equal(answers[1].status, TDM_E_AGAIN);
        assert_non_null(strstr(answers[1].detail, "no free descriptors"));
        assert_int_equal(other->status, TDM_OK);
    }
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, back, &back_count), TDM_OK);
    assert_int_equal(back_count, 2);
    assert_true(inode_of(back[1]) == inode_of(STDERR_FILENO));
    (void)close(back[0]);
    (void)close(back[1]);
}

/* The frames wait in the output behind a large one, with duplicates of their descriptors. */
static void queued_descriptors_keep_to_their_frames(void **state)
{
    enum { CALLS = 3 };
    static char big[4 << 20];
    struct tdm__rpc_request request = {.method = "fail", .deadline_ms = TDM__NEVER};
    int fds[2];

    (void)state;
    pair_join(&pair);
    request.packed = (struct tdm_bytes){big, sizeof(big)};
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, &answers[0], NULL),
                     TDM_OK);
    for (int i = 1; i <= CALLS; i++) {
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        request = pair_request("hold", "x");
        request.fds = fds;
        request.fds_count = 2;
        assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, &answers[i], NULL),
                         TDM_OK);
        (void)close(fds[0]);
        (void)close(fds[1]);
    }
    pair_run_until(&pair, &pair.held_count, CALLS);
    for (int i = 0; i < CALLS; i++) {
        int reader = tdm__incoming_take_fd(pair.held[i], 0);
        int writer = tdm__incoming_take_fd(pair.held[i], 1);
        char byte = 0;

        assert_true(reader >= 0 && writer >= 0);
        assert_int_equal(tdm__incoming_take_fd(pair.held[i], 1), -1);
        assert_int_equal(tdm__incoming_take_fd(pair.held[i], 2), -1);
        assert_int_equal(write(writer, "p", 1), 1);
        /* Both descriptors refer to the same pipe. */
        assert_int_equal(read(reader, &byte, 1), 1);
        (void)close(reader);
        (void)close(writer);
    }
}

/* The kernel delivers up to this many descriptors at once. Tandem never sends so many, but a
 * hostile peer that does must not end this process. */
static void more_descriptors_than_a_frame_can_have_end_the_connection(void **state)
{
    enum { MANY = 3 * TDM__RPC_FDS_MAX };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * MANY)];
    } control = {.bytes = {0}};
    struct iovec byte = {(char[]){'x'}, 1};
    struct msghdr message = {.msg_iov = &byte,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    int sockets[2];
    int free_before;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    pair_adopt(&pair, sockets[0], sockets[1]);
    pair_call(pair.conns[0], "echo", &answers[0]);
    pair_run_until(&pair, &answers[0].count, 1);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int) * MANY);
    /* Descriptor 0, many times. */
    memset(CMSG_DATA(&control.header), 0, sizeof(int) * MANY);
    free_before = lowest_free_fd();
    assert_int_equal(sendmsg(sockets[0], &message, 0), 1);
    pair_run_until(&pair, &pair.closed, 1);
    assert_int_equal(pair.reasons[1], TDM_E_PROTOCOL);
    assert_non_null(strstr(pair.details[1], "more descriptors"));
    assert_true(lowest_free_fd() <= free_before);
}

#define RPC_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        RPC_TEST(descriptors_travel_with_their_own_call),
        RPC_TEST(descriptors_that_are_not_taken_are_closed),
        RPC_TEST(call_whose_descriptors_are_lost_fails_alone),
        RPC_TEST(queued_descriptors_keep_to_their_frames),
        RPC_TEST(more_descriptors_than_a_frame_can_have_end_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
