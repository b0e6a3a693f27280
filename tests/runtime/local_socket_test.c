/* local_socket_test.c - the Unix socket at which connections to Redis are forwarded. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/local_socket.h"

#include "runtime/clock.h"
#include "tests/support/redis_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 10000 };

static struct tdm__loop *loop;
static char directory[64];
static int clients[2]; /* Clients that have connected. */
static int clients_count;

static void on_client(void *arg, int fd)
{
    assert_ptr_equal(arg, clients);
    assert_true(clients_count < 2);
    clients[clients_count++] = fd;
}

static int open_world(void **state)
{
    (void)state;
    clients_count = 0;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-test-XXXXXX");
    return mkdtemp(directory) == NULL || tdm__loop_create(&loop) != TDM_OK;
}

static int close_world(void **state)
{
    (void)state;
    for (int i = 0; i < clients_count; i++) {
        (void)close(clients[i]);
    }
    tdm__loop_destroy(loop);
    remove_tree(directory);
    return 0;
}

static bool has_two_clients(void *arg)
{
    (void)arg;
    return clients_count == 2;
}

static int connect_to(const struct tdm__local_socket *local)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&local->address, sizeof(local->address)),
                     0);
    return fd;
}

static void each_client_is_handed_over(void **state)
{
    struct tdm__local_socket local;
    struct stat about;
    char byte = 0;
    int fds[2];

    (void)state;
    assert_int_equal(tdm__local_socket_open(loop, directory, on_client, clients, &local), TDM_OK);
    assert_int_equal(stat(local.address.sun_path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    fds[0] = connect_to(&local);
    fds[1] = connect_to(&local);
    assert_int_equal(tdm__loop_run(loop, has_two_clients, NULL, tdm__deadline_after(WAIT_MS)),
                     TDM_OK);
    assert_int_equal(write(fds[0], "x", 1), 1);
    assert_int_equal(read(clients[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(read(clients[1], &byte, 1), -1); /* It does not block. */
    (void)close(fds[0]);
    (void)close(fds[1]);
    tdm__local_socket_close(&local);
    assert_int_equal(stat(directory, &about), 0);
    assert_int_equal(local.fd, -1);
    tdm__local_socket_close(&local); /* Twice is allowed. */
}

static void file_of_a_dead_process_is_replaced_and_a_living_one_stays(void **state)
{
    struct tdm__local_socket first;
    struct tdm__local_socket second;
    struct stat about;
    char path[sizeof(first.address.sun_path)];

    (void)state;
    assert_int_equal(tdm__local_socket_open(loop, directory, on_client, clients, &first), TDM_OK);
    (void)snprintf(path, sizeof(path), "%s", first.address.sun_path);
    assert_int_equal(tdm__local_socket_open(loop, directory, on_client, clients, &second),
                     TDM_E_EXISTS);
    tdm__local_socket_close(&second);
    assert_int_equal(stat(path, &about), 0);
    (void)close(first.fd); /* As if the process had died. */
    tdm__fd_watch_destroy(first.watch);
    assert_int_equal(tdm__local_socket_open(loop, directory, on_client, clients, &second), TDM_OK);
    tdm__local_socket_close(&second);
    assert_int_equal(stat(path, &about), -1);
}

static void long_path_is_refused(void **state)
{
    struct tdm__local_socket local;
    char path[160];

    (void)state;
    memset(path, 'x', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(tdm__local_socket_open(loop, path, on_client, clients, &local), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "store.sock is too long"));
    tdm__local_socket_close(&local);
}

#define LOCAL_SOCKET_TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOCAL_SOCKET_TEST(each_client_is_handed_over),
        LOCAL_SOCKET_TEST(file_of_a_dead_process_is_replaced_and_a_living_one_stays),
        LOCAL_SOCKET_TEST(long_path_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
