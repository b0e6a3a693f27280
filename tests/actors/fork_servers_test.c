/* fork_servers_test.c - a fork server that does not reply is replaced, and its workers live on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/fork_servers.h"

#include "actors/common/worker_bootstrap.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/process/process_tree.h"
#include "runtime/process/reaper.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { REPLY_MS = 400, LONG_MS = 20000 };

static struct tdm__loop *loop;
static struct tdm__fork_servers *servers;
static struct tdm__fork_server *silent; /* Fork server that was reported as silent. */
static int pending_report = -1;         /* Socket for the report on the last request. */

/* This program, as a worker. */
static char *program_argv[] = {"/proc/self/exe", NULL};
static char *program_environment[8];
static const struct tdm__worker_program program = {program_argv, "/", program_environment};

static void on_silent(void *arg, struct tdm__fork_server *fork_server)
{
    (void)arg;
    silent = fork_server;
    (void)close(pending_report);
    pending_report = -1;
    tdm__fork_server_release(fork_server);
}

static bool is_silent(void *arg)
{
    (void)arg;
    return silent != NULL;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void run_loop(int64_t time_ms)
{
    assert_int_equal(tdm__loop_run(loop, never, NULL, tdm__deadline_after(time_ms)), TDM_E_TIMEOUT);
}

/* Asks for a worker. The report arrives at `pending_report`. */
static void request_worker(struct tdm__fork_server *fork_server)
{
    const struct tdm__fork_server_request request = {.has_output = 0};
    int report[2];
    int line[2];
    int fds[3];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line), 0);
    fds[0] = report[1];
    fds[1] = line[1];
    fds[2] = memfd_create("bootstrap", MFD_CLOEXEC);
    TRY(tdm__fork_server_send(fork_server, &program, &request, fds, 3));
    for (int i = 0; i < 3; i++) {
        (void)close(fds[i]);
    }
    (void)close(line[0]);
    pending_report = report[0];
}

/* Waits for the report and returns the process ID of the worker. */
static pid_t await_worker(struct tdm__fork_server *fork_server)
{
    struct tdm__reaper_report report;
    struct tdm__reaper_pidfds pidfds;

    TRY(tdm__reaper_receive(pending_report, &report, &pidfds));
    tdm__fork_server_replied(fork_server);
    assert_int_equal(report.kind, TDM__REAPER_STARTED);
    (void)close(pidfds.worker);
    (void)close(pidfds.reaper);
    return report.pid;
}

static pid_t parent_of(pid_t pid)
{
    char line[256] = "";
    FILE *file;

    (void)snprintf(line, sizeof(line), "/proc/%d/stat", (int)pid);
    file = fopen(line, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    (void)fclose(file);
    assert_non_null(strrchr(line, ')'));
    return (pid_t)strtol(strrchr(line, ')') + 4, NULL, 10);
}

/* Returns the fork server with this key, which is used for the second time. */
static struct tdm__fork_server *find(const char *key)
{
    struct tdm__fork_server *fork_server;

    assert_null(tdm__fork_servers_find(servers, strdup(key)));
    fork_server = tdm__fork_servers_find(servers, strdup(key));
    assert_non_null(fork_server);
    return fork_server;
}

static int set_up(void **state)
{
    (void)state;
    silent = NULL;
    return tdm__loop_create(&loop) != TDM_OK ||
           tdm__fork_servers_create(loop, REPLY_MS, on_silent, NULL, &servers) != TDM_OK;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__fork_servers_destroy(servers);
    tdm__loop_destroy(loop);
    return 0;
}

static void stopped_fork_server_is_replaced_and_its_workers_live(void **state)
{
    struct tdm__fork_server *first = find("key");
    struct tdm__fork_server *second;
    char said[1024] = "";
    char wanted[64];
    int log = memfd_create("log", MFD_CLOEXEC);
    pid_t fork_server;
    pid_t worker;

    (void)state;
    tdm__log_add_output(log);
    request_worker(first);
    worker = await_worker(first);
    (void)close(pending_report);
    fork_server = parent_of(parent_of(worker));
    assert_true(tdm__fork_servers_own(servers, fork_server));
    assert_int_equal(kill(fork_server, SIGSTOP), 0);
    request_worker(first);
    TRY(tdm__loop_run(loop, is_silent, NULL, tdm__deadline_after(LONG_MS)));
    assert_ptr_equal(silent, first);
    assert_int_equal(kill(worker, 0), 0);
    assert_true(pread(log, said, sizeof(said) - 1, 0) > 0);
    (void)snprintf(wanted, sizeof(wanted), "key (pid %d) has not forked a worker for",
                   (int)fork_server);
    assert_non_null(strstr(said, wanted));

    second = find("key");
    assert_ptr_not_equal(second, first);
    request_worker(second);
    assert_int_not_equal(parent_of(parent_of(await_worker(second))), fork_server);
    (void)close(pending_report);
    tdm__fork_server_release(second);

    /* It forks nothing for the request that nobody waits for. */
    assert_int_equal(kill(fork_server, SIGCONT), 0);
    run_loop(REPLY_MS / 2);
    assert_true(tdm__fork_servers_own(servers, fork_server));
    assert_int_equal(kill(worker, 0), 0);
    tdm__fork_server_release(first); /* Its last worker has ended. */
    assert_false(tdm__fork_servers_own(servers, fork_server));
    assert_int_equal(kill(fork_server, 0), -1);
}

static void fork_server_that_replies_is_kept(void **state)
{
    struct tdm__fork_server *fork_server = find("key");

    (void)state;
    for (int i = 0; i < 2; i++) {
        request_worker(fork_server);
        (void)await_worker(fork_server);
        (void)close(pending_report);
        run_loop(REPLY_MS + REPLY_MS / 2);
        tdm__fork_server_release(fork_server);
    }
    assert_null(silent);
    assert_ptr_equal(tdm__fork_servers_find(servers, strdup("key")), fork_server);
}

/* The reports could not be read meanwhile, so nothing is known of the fork server. */
static void time_in_which_the_loop_stands_still_does_not_count(void **state)
{
    struct tdm__fork_server *fork_server = find("key");
    const struct timespec long_time = {.tv_sec = 1, .tv_nsec = 500000000};

    (void)state;
    request_worker(fork_server);
    (void)await_worker(fork_server);
    (void)close(pending_report);
    request_worker(fork_server);
    (void)nanosleep(&long_time, NULL);
    run_loop(REPLY_MS / 4);
    assert_null(silent);
    (void)await_worker(fork_server);
    (void)close(pending_report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stopped_fork_server_is_replaced_and_its_workers_live,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(fork_server_that_replies_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(time_in_which_the_loop_stands_still_does_not_count, set_up,
                                        tear_down),
    };

    if (getenv(TDM__WORKER_VARIABLE) != NULL) { /* This process is a fork server, or a worker. */
        tdm__fork_server_run_if_one();
        for (;;) {
            (void)poll(NULL, 0, -1);
        }
    }
#ifdef __SANITIZE_THREAD__
    return 0; /* The thread sanitizer runs a thread of its own, so that nothing can be forked. */
#endif
    tdm__process_tree_adopt_orphans();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
