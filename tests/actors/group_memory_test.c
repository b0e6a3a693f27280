/* group_memory_test.c - a daemon gives the memory of thousands of placement groups back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "tests/support/actor_fixture.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <tandem/state.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    GROUPS = 3000,
    BUNDLES = 8,
    RESIDENT_KB_MAX = 10000, /* What the daemon may have once the groups are removed. */
    WAIT_MS = 30000          /* Milliseconds within which the memory must be given back. */
};

static tdm_runtime *runtime;

/* Returns the resident memory of a process in units of 1,024 bytes. */
static long resident_kb(int64_t pid)
{
    char path[64];
    char line[256];
    long kb = -1;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%" PRId64 "/status", pid);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "VmRSS: %ld kB", &kb);
    }
    (void)fclose(file);
    assert_true(kb > 0);
    return kb;
}

/* Returns the process ID of the node's daemon. */
static int64_t daemon_pid(void)
{
    const struct tdm_node_state *nodes;
    uint32_t count;
    int64_t pid;

    assert_int_equal(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &count), TDM_OK);
    assert_int_equal(count, 1);
    pid = nodes[0].pid;
    tdm_list_free(nodes);
    return pid;
}

static void memory_of_removed_groups_is_given_back(void **state)
{
    static tdm_placement_group *groups[GROUPS];
    struct tdm_bundle bundles[BUNDLES];
    int64_t pid = daemon_pid();
    int64_t begun_ms = tdm__clock_ms();
    int64_t created_ms;
    int64_t removed_ms;
    long kb[3] = {resident_kb(pid)};

    (void)state;
    for (int i = 0; i < BUNDLES; i++) {
        bundles[i] = (struct tdm_bundle){.num_cpus = 0.0002};
    }
    for (int i = 0; i < GROUPS; i++) {
        assert_int_equal(tdm_placement_group_create(runtime, bundles, BUNDLES, TDM_PACK,
                                                    TEST_TIMEOUT_MS, &groups[i]),
                         TDM_OK);
    }
    created_ms = tdm__clock_ms();
    kb[1] = resident_kb(pid);
    for (int i = 0; i < GROUPS; i++) {
        assert_int_equal(tdm_placement_group_remove(groups[i], TEST_TIMEOUT_MS), TDM_OK);
    }
    removed_ms = tdm__clock_ms();
    kb[2] = resident_kb(pid);
    while (kb[2] >= RESIDENT_KB_MAX && tdm__clock_ms() < removed_ms + WAIT_MS) {
        (void)usleep(100000);
        kb[2] = resident_kb(pid);
    }
    print_message("%d groups of %d: created in %" PRId64 " ms, removed in %" PRId64
                  " ms; daemon %ld kB before, %ld kB with them, %ld kB %" PRId64 " ms later\n",
                  GROUPS, BUNDLES, created_ms - begun_ms, removed_ms - created_ms, kb[0], kb[1],
                  kb[2], tdm__clock_ms() - removed_ms);
    assert_in_range(kb[2], 1, RESIDENT_KB_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_of_removed_groups_is_given_back)};
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    int failed;

    options.cpus = 8;
    runtime = actor_fixture_open(&options);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
