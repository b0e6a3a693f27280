/* oom_test.c - counts of out-of-memory kills are read from a simulated /proc and /sys. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/oom.h"
#include "tests/support/redis_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[32];

static void put(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int make_root(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/tdt-XXXXXX");
    return mkdtemp(root) == NULL ? 1 : 0;
}

static int remove_root(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

static void kill_in_the_cgroup_is_a_verdict(void **state)
{
    static const char events[] = "sys/fs/cgroup/job/a/memory.events";
    struct tdm__oom oom;

    (void)state;
    put("proc/self/cgroup", "0::/job/a\n");
    put("proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
    put(events, "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n");
    tdm__oom_init(&oom, root);
    assert_int_equal(tdm__oom_check(&oom), TDM__OOM_NO);
    put(events, "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\n");
    put("proc/vmstat", "nr_free_pages 5\noom_kill 8\n");
    assert_int_equal(tdm__oom_check(&oom), TDM__OOM_YES);
    assert_int_equal(tdm__oom_check(&oom), TDM__OOM_NO);
}

static void version_one_counts_elsewhere(void **state)
{
    static const char control[] = "sys/fs/cgroup/memory/box/memory.oom_control";
    struct tdm__oom oom;

    (void)state;
    put("proc/self/cgroup", "5:cpu,cpuacct:/box\n4:memory:/box\n0::/\n");
    put(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    tdm__oom_init(&oom, root);
    put(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
    assert_int_equal(tdm__oom_check(&oom), TDM__OOM_YES);
}

static void container_shows_its_cgroup_at_the_root(void **state)
{
    static const char control[] = "sys/fs/cgroup/memory/memory.oom_control";
    struct tdm__oom oom;

    (void)state;
    put("proc/self/cgroup", "4:memory:/outside/of/it\n0::/\n");
    put(control, "oom_kill 4\n");
    tdm__oom_init(&oom, root);
    put(control, "oom_kill 5\n");
    assert_int_equal(tdm__oom_check(&oom), TDM__OOM_YES);
}

static void kill_elsewhere_is_a_suspicion(void **state)
{
    struct tdm__oom oom;

    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("proc/vmstat", "oom_kill 7\n");
    tdm__oom_init(&oom, root);
    assert_string_equal(oom.cgroup_file, "");
    put("proc/vmstat", "oom_kill 8\n");
    assert_int_equal(tdm__oom_check(&oom), TDM__OOM_PERHAPS);
}

static void without_counts_nothing_is_known(void **state)
{
    struct tdm__oom oom;

    (void)state;
    tdm__oom_init(&oom, root);
    assert_int_equal(tdm__oom_check(&oom), TDM__OOM_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kill_in_the_cgroup_is_a_verdict, make_root, remove_root),
        cmocka_unit_test_setup_teardown(version_one_counts_elsewhere, make_root, remove_root),
        cmocka_unit_test_setup_teardown(container_shows_its_cgroup_at_the_root, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(kill_elsewhere_is_a_suspicion, make_root, remove_root),
        cmocka_unit_test_setup_teardown(without_counts_nothing_is_known, make_root, remove_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
