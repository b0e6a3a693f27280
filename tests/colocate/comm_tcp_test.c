/* comm_tcp_test.c - the communicator between nodes: what all promise, losses, strangers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/tcp/mesh.h"
#include "runtime/clock.h"
#include "tests/conformance/comm_suite.h"

#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MAX = 4, SOON_MS = 20000 };

/* What the daemons do elsewhere: ranks leave their addresses, and wait for the others'. */
struct meeting {
    uint32_t ranks_count;
    size_t piece_bytes;
    char addresses[RANKS_MAX][64];
    sem_t told[RANKS_MAX]; /* once for each rank */
};

static const struct tdm__id group_key = {{7}};
static const uint8_t cluster_token[TDM__TOKEN_BYTES] = {1, 2, 3};

static struct meeting *map_meeting(int fd)
{
    void *at = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

static int make_meeting(uint32_t ranks_count, size_t slot_bytes)
{
    int fd = memfd_create("meeting", MFD_CLOEXEC);
    struct meeting *meeting;

    assert_int_equal(ftruncate(fd, sizeof(*meeting)), 0);
    meeting = map_meeting(fd);
    assert_non_null(meeting);
    meeting->ranks_count = ranks_count;
    meeting->piece_bytes = slot_bytes;
    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(sem_init(&meeting->told[i], 1, 0), 0);
    }
    (void)munmap(meeting, sizeof(*meeting));
    return fd;
}

static tdm_status listen_as(uint32_t rank, uint32_t ranks_count, int64_t timeout_ms,
                            const uint8_t *token, struct tdm__mesh **mesh_out)
{
    const struct tdm__identity self = {
        .kind = TDM__PEER_WORKER, .pid = getpid(), .name = "member"};
    struct tdm__mesh_options options = {.host = "127.0.0.1",
                                        .rank = rank,
                                        .ranks_count = ranks_count,
                                        .timeout_ms = timeout_ms};
    struct tdm__loop *loop;
    struct tdm__rpc *like;
    tdm_status status;

    if (tdm__loop_create(&loop) != TDM_OK ||
        tdm__rpc_create(loop, &self, token, &like) != TDM_OK) {
        return TDM_E_NOMEM;
    }
    options.like = like;
    status = tdm__mesh_listen(&options, mesh_out);
    tdm__rpc_destroy(like);
    tdm__loop_destroy(loop);
    return status;
}

static void exchange_addresses(struct meeting *meeting, uint32_t rank, const char *own,
                               const char *addresses[RANKS_MAX])
{
    (void)snprintf(meeting->addresses[rank], sizeof(meeting->addresses[rank]), "%s", own);
    for (uint32_t i = 0; i < meeting->ranks_count; i++) {
        (void)sem_post(&meeting->told[rank]);
    }
    for (uint32_t i = 0; i < meeting->ranks_count; i++) {
        while (sem_wait(&meeting->told[i]) != 0) {
        }
        addresses[i] = meeting->addresses[i];
    }
}

static tdm_status open_rank(int fd, uint32_t rank, int64_t timeout_ms,
                            struct tdm__comm **comm_out)
{
    struct meeting *meeting = map_meeting(fd);
    const char *addresses[RANKS_MAX];
    struct tdm__mesh *mesh;
    tdm_status status = meeting == NULL ? TDM_E_NOMEM
                                        : listen_as(rank, meeting->ranks_count, timeout_ms,
                                                    cluster_token, &mesh);

    if (status != TDM_OK) {
        return status;
    }
    exchange_addresses(meeting, rank, tdm__mesh_address(mesh), addresses);
    status = tdm__mesh_connect(mesh, &group_key, addresses);
    if (status == TDM_OK) {
        status = tdm__comm_tcp_open(mesh, rank, meeting->ranks_count, meeting->piece_bytes,
                                    comm_out);
    }
    if (status != TDM_OK) {
        tdm__mesh_destroy(mesh);
    }
    (void)munmap(meeting, sizeof(*meeting));
    return status;
}

/* ---- members that are lost -------------------------------------------------------------- */

static void strike_self(void *arg)
{
    (void)kill(getpid(), *(int *)arg);
}

/* A rank in a child: meets until something fails; its exit code tells what and when. */
enum { SAW_DEATH = 11, SAW_TIMEOUT, SAW_OTHER, SAW_NO_NAME, LATE };

static int meet_until_failure(int fd, uint32_t rank, int64_t timeout_ms, int strike_signal)
{
    struct tdm__comm *comm;
    tdm_status status;
    float value = 1;
    int64_t start_ms;

    if (open_rank(fd, rank, timeout_ms, &comm) != TDM_OK ||
        (strike_signal != 0 &&
         tdm__comm_faulty_open(comm, 50, strike_self, &strike_signal, &comm) != TDM_OK)) {
        return SAW_OTHER;
    }
    do {
        start_ms = tdm__clock_ms();
        status = comm->ops->all_reduce(comm, &value, 1, TDM__FLOAT, TDM_MAX);
    } while (status == TDM_OK);
    if (strstr(tdm_error_detail(), "rank 1 of 3") == NULL) {
        return SAW_NO_NAME;
    }
    if (tdm__clock_ms() - start_ms > 10000) {
        return LATE;
    }
    if (comm->ops->barrier(comm) != status) {
        return SAW_OTHER; /* it must stay broken, for the same reason */
    }
    comm->ops->destroy(comm);
    return status == TDM_E_ABORTED   ? SAW_DEATH
           : status == TDM_E_TIMEOUT ? SAW_TIMEOUT
                                     : SAW_OTHER;
}

static void start_three(int fd, int64_t timeout_ms, int strike_signal, pid_t pids[3])
{
    for (uint32_t i = 0; i < 3; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(meet_until_failure(fd, i, timeout_ms, i == 1 ? strike_signal : 0));
        }
    }
}

static int exit_code_of(pid_t pid)
{
    int wait_status;

    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
}

static void a_killed_member_is_named_to_the_others(void **state)
{
    int fd = make_meeting(3, 4096);
    pid_t pids[3];

    (void)state;
    start_three(fd, 60000, SIGKILL, pids);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    assert_int_equal(exit_code_of(pids[0]), SAW_DEATH);
    assert_int_equal(exit_code_of(pids[2]), SAW_DEATH);
    (void)close(fd);
}

static void a_silent_member_is_named_at_the_deadline(void **state)
{
    int fd = make_meeting(3, 4096);
    pid_t pids[3];

    (void)state;
    start_three(fd, 2000, SIGSTOP, pids);
    assert_int_equal(exit_code_of(pids[0]), SAW_TIMEOUT);
    assert_int_equal(exit_code_of(pids[2]), SAW_TIMEOUT);
    (void)kill(pids[1], SIGKILL);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    (void)close(fd);
}

static void one_that_never_comes_is_named_at_the_deadline(void **state)
{
    const char *const addresses[2] = {NULL, NULL};
    struct tdm__mesh *mesh;

    (void)state;
    assert_int_equal(listen_as(0, 2, 1, cluster_token, &mesh), TDM_OK);
    assert_int_equal(tdm__mesh_connect(mesh, &group_key, addresses), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "rank 1 of 2 did not come in time"));
    tdm__mesh_destroy(mesh);
}

/* ---- strangers -------------------------------------------------------------------------- */

/* A second rank of two, in a child, with a token and a key of its own: what it sees. */
static pid_t start_second(const char *address, const uint8_t *token, const struct tdm__id *key)
{
    const char *const addresses[2] = {address, NULL};
    struct tdm__mesh *mesh;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid != 0) {
        return pid;
    }
    if (listen_as(1, 2, SOON_MS, token, &mesh) != TDM_OK) {
        _exit(SAW_OTHER);
    }
    if (tdm__mesh_connect(mesh, key, addresses) == TDM_OK) {
        tdm__mesh_destroy(mesh);
        _exit(0);
    }
    _exit(strstr(tdm_error_detail(), "rank 0 of 2") == NULL ? SAW_NO_NAME : SAW_DEATH);
}

/* Sees to it that two strangers are refused, then comes itself. */
static int keep_and_come(const char *address)
{
    static const uint8_t other_token[TDM__TOKEN_BYTES] = {9};
    static const struct tdm__id other_key = {{8}};
    pid_t outsider = start_second(address, other_token, &group_key);
    pid_t neighbour = start_second(address, cluster_token, &other_key);

    if (exit_code_of(outsider) != SAW_DEATH) {
        return 1;
    }
    if (exit_code_of(neighbour) != SAW_DEATH) {
        return 2;
    }
    return exit_code_of(start_second(address, cluster_token, &group_key)) == 0 ? 0 : 3;
}

static void strangers_do_not_come_in_and_members_do(void **state)
{
    const char *const addresses[2] = {NULL, NULL};
    struct tdm__mesh *mesh;
    pid_t keeper;

    (void)state;
    assert_int_equal(listen_as(0, 2, SOON_MS, cluster_token, &mesh), TDM_OK);
    keeper = fork();
    assert_true(keeper >= 0);
    if (keeper == 0) {
        _exit(keep_and_come(tdm__mesh_address(mesh)));
    }
    assert_int_equal(tdm__mesh_connect(mesh, &group_key, addresses), TDM_OK);
    assert_int_equal(exit_code_of(keeper), 0);
    tdm__mesh_destroy(mesh);
}

static void shapes_that_cannot_be_are_refused(void **state)
{
    struct tdm__mesh *mesh;
    struct tdm__comm *comm;

    (void)state;
    assert_int_equal(listen_as(2, 2, 1, cluster_token, &mesh), TDM_E_INVAL);
    assert_int_equal(listen_as(0, TDM__MESH_RANKS_MAX + 1, 1, cluster_token, &mesh),
                     TDM_E_INVAL);
    assert_int_equal(tdm__comm_tcp_open(NULL, 0, 1, 4, &comm), TDM_E_INVAL);
    assert_int_equal(tdm__comm_tcp_open(NULL, 0, 1, SIZE_MAX, &comm), TDM_E_INVAL);
}

int main(void)
{
    static const struct comm_suite_maker maker = {make_meeting, open_rank};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_member_is_named_to_the_others),
        cmocka_unit_test(a_silent_member_is_named_at_the_deadline),
        cmocka_unit_test(one_that_never_comes_is_named_at_the_deadline),
        cmocka_unit_test(strangers_do_not_come_in_and_members_do),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
    };

    return comm_suite_run("tcp, ranks are processes", &maker, 0) +
           cmocka_run_group_tests(tests, NULL, NULL) +
           comm_suite_run("tcp, ranks are threads", &maker, 1);
}
