/* worker_bootstrap_test.c - bootstrap records are read as they were written; other files are
 * refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/worker_bootstrap.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void record_survives_its_file(void **state)
{
    struct tdm__bootstrap bootstrap = {.token = {1, 2, 3},
                                       .node = {{9, 8}},
                                       .node_name = "gpu-03",
                                       .daemon_address = "unix:/x/tandemd.sock",
                                       .directory = "/x",
                                       .listen_host = "127.0.0.1",
                                       .tcp = {.tls_mode = TDM__TLS_OFF,
                                               .first_port = 7000,
                                               .last_port = 7010,
                                               .advertised_host = "node"},
                                       .unreachable_ms = 700,
                                       .gpus_count = 2,
                                       .gpu_indices = {1, 3}};
    struct tdm__bootstrap back;
    int fd;

    (void)state;
    assert_int_equal(
        tdm__actor_spec_create("engine", NULL, (struct tdm_bytes){"\x90", 1}, &bootstrap.spec),
        TDM_OK);
    assert_int_equal(tdm__bootstrap_write(&bootstrap, &fd), TDM_OK);
    assert_int_equal(write(fd, "x", 1), -1); /* The file is sealed. */
    assert_int_equal(tdm__bootstrap_read(fd, &back), TDM_OK);
    assert_memory_equal(back.token, bootstrap.token, sizeof(back.token));
    assert_true(tdm__id_equal(&back.node, &bootstrap.node));
    assert_string_equal(back.node_name, "gpu-03");
    assert_string_equal(back.daemon_address, "unix:/x/tandemd.sock");
    assert_string_equal(back.directory, "/x");
    assert_string_equal(back.listen_host, "127.0.0.1");
    assert_int_equal(back.tcp.tls_mode, TDM__TLS_OFF);
    assert_int_equal(back.tcp.last_port, 7010);
    assert_string_equal(back.tcp.advertised_host, "node");
    assert_int_equal(back.unreachable_ms, 700);
    assert_int_equal(back.gpus_count, 2);
    assert_int_equal(back.gpu_indices[1], 3);
    assert_string_equal(back.spec->class_name, "engine");
    (void)close(fd);
    tdm__actor_spec_destroy(bootstrap.spec);
    tdm__actor_spec_destroy(back.spec);
}

static void other_files_are_refused(void **state)
{
    struct tdm__bootstrap back;
    int fd = memfd_create("test", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(tdm__bootstrap_read(-1, &back), TDM_E_PROTOCOL);
    assert_true(fd >= 0);
    assert_int_equal(tdm__bootstrap_read(fd, &back), TDM_E_PROTOCOL);
    assert_int_equal(write(fd, "\x98nonsense", 9), 9);
    assert_int_equal(tdm__bootstrap_read(fd, &back), TDM_E_PROTOCOL);
    assert_int_equal(ftruncate(fd, 1), 0);
    assert_int_equal(pwrite(fd, "\x90", 1, 0), 1);
    assert_int_equal(tdm__bootstrap_read(fd, &back), TDM_E_PROTOCOL);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_survives_its_file),
        cmocka_unit_test(other_files_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
