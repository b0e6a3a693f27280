/* tree_memory_test.c - the memory of a whole process tree is added up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/tree_memory.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB    ((uint64_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

/* Uses that many bytes, of shared memory if `shared` is set, and tells so by a byte. */
static void use(uint64_t bytes, int shared, int ready_fd)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    memset(memory, 1, bytes);
    assert_int_equal(write(ready_fd, "", 1), 1);
}

/* Goal: a grandchild's private memory counts, shared memory and other processes do not.
 * Method: child uses 4 MiB, its child 32 MiB and 64 MiB of shared memory. */
static void descendants_are_added_up(void **state)
{
    uint64_t before;
    uint64_t bytes;
    char ready;
    int ends[2];
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    TRY(tdm__tree_private_bytes(getpid(), &before));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        use(4 * MIB, 0, ends[1]);
        if (fork() == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            use(32 * MIB, 0, ends[1]);
            use(64 * MIB, 1, ends[1]);
            (void)pause();
        }
        (void)wait(NULL);
        _exit(0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(read(ends[0], &ready, 1), 1);
    }
    TRY(tdm__tree_private_bytes(getpid(), &bytes));
    /* The forks share further pages, 4 MiB among them. */
    assert_in_range(bytes - before, 40 * MIB, 60 * MIB);
    TRY(tdm__tree_private_bytes(child, &bytes));
    assert_in_range(bytes, 32 * MIB, 50 * MIB);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
}

static void a_process_without_children_has_none(void **state)
{
    uint64_t bytes;

    (void)state;
    TRY(tdm__tree_private_bytes(getpid(), &bytes));
    assert_true(bytes == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_without_children_has_none),
        cmocka_unit_test(descendants_are_added_up),
    };

    return cmocka_run_group_tests_name("tree_memory", tests, NULL, NULL);
}
