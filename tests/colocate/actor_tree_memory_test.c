/* actor_tree_memory_test.c - the memory of a dead actor is granted to the next only after all
 * processes that the actor had started have been reaped. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/process/spawn.h"
#include "tests/support/one_node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB       ((size_t)1 << 20)
#define GPU_BYTES (64 * MIB)
#define TRY(x)    assert_int_equal((x), TDM_OK)

enum { CALL_MS = 20000, GRANT_MS = 2000, ROUNDS = 20, EARLY = 3 };
/* How many times as long a grant may take: under the thread sanitizer the next actor is executed,
 * not forked, and starts in a second or more beside other tests. */
#ifdef __SANITIZE_THREAD__
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif

/* ---- the actor -------------------------------------------------------------------------- */

struct tenant {
    tdm_region *region;
};

/* Takes all of the GPU. */
static tdm_status tenant_take(tdm_call *call, void *self)
{
    static const struct tdm_region_options options = {
        .tag = "weights", .size_bytes = GPU_BYTES, .policy = TDM_REGION_DROP};
    struct tenant *tenant = self;

    (void)call;
    TDM_TRY(tdm_region_create(tdm_runtime_current(), &options, &tenant->region));
    memset(tdm_region_address(tenant->region), 7, GPU_BYTES);
    return TDM_OK;
}

/* Maps every block whose descriptor this process has inherited.  Returns the number of blocks. */
static int map_inherited_blocks(unsigned char **block_out)
{
    DIR *fds = opendir("/proc/self/fd");
    const struct dirent *entry;
    int count = 0;

    while (fds != NULL && (entry = readdir(fds)) != NULL) {
        char target[64] = "";
        int fd = (int)strtol(entry->d_name, NULL, 10);

        if (readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1) > 0 &&
            strstr(target, "memfd:tandem-block") != NULL) {
            *block_out = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            count += *block_out != MAP_FAILED ? 1 : 0;
        }
    }
    return count;
}

/* The grandchild: writes to the actor's memory as long as it lives, in a session of its own. */
_Noreturn static void haunt(int report)
{
    unsigned char *block = NULL;
    pid_t pid = setsid() > 0 && map_inherited_blocks(&block) > 0 ? getpid() : -1;

    if (write(report, &pid, sizeof(pid)) != (ssize_t)sizeof(pid) || pid < 0) {
        _exit(1);
    }
    for (;;) {
        (*block)++;
        (void)poll(NULL, 0, 1);
    }
}

/* Starts a grandchild whose parent ends at once, and replies its pid. */
static tdm_status tenant_haunt(tdm_call *call, void *self)
{
    int report[2];
    pid_t pid;

    (void)self;
    if (pipe2(report, O_CLOEXEC) < 0) {
        return tdm_fail(TDM_E_IO, "pipe");
    }
    pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            haunt(report[1]);
        }
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, NULL, 0) != pid ||
        read(report[0], &pid, sizeof(pid)) != (ssize_t)sizeof(pid) || pid < 0) {
        return tdm_fail(TDM_E_IO, "no grandchild");
    }
    (void)close(report[0]);
    (void)close(report[1]);
    return tdm_call_reply(call, "i", (int64_t)pid);
}

/* (pid of a process) -> whether it exists once this actor has all of the GPU, and the refusals
 * before: a request waits only for memory whose release is announced. */
static tdm_status tenant_take_after(tdm_call *call, void *self)
{
    static const struct tdm_region_options options = {
        .tag = "weights", .size_bytes = GPU_BYTES, .policy = TDM_REGION_DROP, .paused = 1};
    int64_t deadline_ms = tdm__deadline_after(CALL_MS / 2);
    struct tenant *tenant = self;
    int64_t refusals = 0;
    int64_t pid;
    tdm_status status;
    int exists;

    TDM_TRY(tdm_call_unpack(call, "i", &pid));
    TDM_TRY(tdm_region_create(tdm_runtime_current(), &options, &tenant->region));
    while ((status = tdm_region_resume(tenant->region, CALL_MS / 2)) == TDM_E_DEVICE_FULL &&
           tdm__clock_ms() < deadline_ms) {
        refusals++;
        (void)poll(NULL, 0, 1);
    }
    exists = kill((pid_t)pid, 0) == 0 || errno != ESRCH;
    TDM_TRY(status);
    memset(tdm_region_address(tenant->region), 7, GPU_BYTES);
    return tdm_call_reply(call, "?i", exists, refusals);
}

TDM_ACTOR_CLASS(tenant, .state_bytes = sizeof(struct tenant),
                .methods = {{"take", tenant_take},
                            {"haunt", tenant_haunt},
                            {"take_after", tenant_take_after}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;
static char log_path[] = "/tmp/tandem-tree-test-XXXXXX";

static void call_plain(tdm_actor *actor, const char *method)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, ""));
    TRY(tdm_get(ref, CALL_MS, "n"));
    tdm_ref_release(ref);
}

static int64_t haunt_memory_of(tdm_actor *actor)
{
    int64_t pid;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "haunt", &ref, ""));
    TRY(tdm_get(ref, CALL_MS, "i", &pid));
    tdm_ref_release(ref);
    return pid;
}

/* How one round went. */
struct round {
    int64_t grandchild;
    double grant_ms; /* From the kill until the next actor has filled all of the GPU. */
    int grandchild_was_there;
};

/* An actor takes all of the GPU, has a grandchild that maps it, and is killed; the next one, which
 * waits for the GPU or shares it, takes all of it. */
static struct round run_round(int number, double num_gpus)
{
    struct round round;
    char first_name[32];
    char next_name[32];
    int64_t begin_ns;
    int64_t refusals;
    tdm_actor *first;
    tdm_actor *next = NULL;
    tdm_ref *ref;

    (void)snprintf(first_name, sizeof(first_name), "first-%d", number);
    (void)snprintf(next_name, sizeof(next_name), "next-%d", number);
    first = one_node_actor(runtime, "tenant", first_name, num_gpus);
    call_plain(first, "take");
    round.grandchild = haunt_memory_of(first);
    TRY(tdm_actor_create(runtime, "tenant",
                         &(struct tdm_actor_options){.num_gpus = num_gpus, .name = next_name},
                         &next, ""));
    if (num_gpus < 1) {
        TRY(tdm_actor_wait_ready(next, CALL_MS));
    }
    begin_ns = tdm__clock_ns();
    one_node_kill_actor(first);
    TRY(tdm_actor_call(next, "take_after", &ref, "i", round.grandchild));
    TRY(tdm_get(ref, CALL_MS, "?i", &round.grandchild_was_there, &refusals));
    round.grant_ms = (double)(tdm__clock_ns() - begin_ns) / 1e6;
    tdm_ref_release(ref);
    TRY(tdm_actor_kill(next, CALL_MS));
    one_node_wait_used(runtime, 0);
    tdm_actor_destroy(first);
    tdm_actor_destroy(next);
    return round;
}

/* Returns the offset in the daemon's log of the text; -1 if the log does not contain it. */
static long find_in_log(const char *text)
{
    static char log[4 << 20];
    FILE *file = fopen(log_path, "re");
    const char *found;
    size_t got;

    assert_non_null(file);
    got = fread(log, 1, sizeof(log) - 1, file);
    (void)fclose(file);
    log[got] = '\0';
    found = strstr(log, text);
    return found == NULL ? -1 : (long)(found - log);
}

static void expect_reaped_before_the_grant(const struct round *round, int number)
{
    char reaped[64];
    char granted[64];

    (void)snprintf(reaped, sizeof(reaped), "were killed and reaped: pid %lld\n",
                   (long long)round->grandchild);
    (void)snprintf(granted, sizeof(granted), "memory is granted to next-%d\n", number);
    assert_true(find_in_log(reaped) >= 0);
    assert_true(find_in_log(granted) > find_in_log(reaped));
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;

    return (difference > 0) - (difference < 0);
}

static void run_rounds(double num_gpus, int first_number)
{
    double times_ms[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        struct round round = run_round(first_number + i, num_gpus);

        assert_false(round.grandchild_was_there);
        assert_true(round.grant_ms < (double)SLOWER * GRANT_MS);
        expect_reaped_before_the_grant(&round, first_number + i);
        times_ms[i] = round.grant_ms;
    }
    qsort(times_ms, ROUNDS, sizeof(times_ms[0]), compare);
    print_message(
        "kill to all of the GPU, %d rounds: %.1f ms at least, median %.1f, %.1f at most\n",
        (int)ROUNDS, times_ms[0], times_ms[ROUNDS / 2], times_ms[ROUNDS - 1]);
}

/* The next actor waits for the GPU as a resource, and starts when it is free. */
static void next_actor_gets_the_gpu_after_the_last_process(void **state)
{
    (void)state;
    run_rounds(1, 0);
}

/* The next actor lives already and asks the arbiter for the memory. */
static void neighbour_gets_the_memory_after_the_last_process(void **state)
{
    (void)state;
    run_rounds(0.5, 1000);
}

/* A traced process that was killed is not reaped before its tracer, this process, waits for it. */
static void memory_waits_for_a_process_that_does_not_end(void **state)
{
    tdm_actor *first = one_node_actor(runtime, "tenant", "stuck", 0.5);
    tdm_actor *next = one_node_actor(runtime, "tenant", "patient", 0.5);
    int64_t grandchild;
    int64_t begin_ms;
    int64_t refusals;
    int exists;
    tdm_ref *ref;

    (void)state;
    call_plain(first, "take");
    grandchild = haunt_memory_of(first);
    assert_int_equal(ptrace(PTRACE_SEIZE, (pid_t)grandchild, NULL, NULL), 0);
    begin_ms = tdm__clock_ms();
    one_node_kill_actor(first);
    TRY(tdm_actor_call(first, "haunt", &ref, ""));
    assert_int_equal(tdm_get(ref, CALL_MS, "n"), TDM_E_ACTOR_DIED);
    tdm_ref_release(ref);
    assert_in_range(tdm__clock_ms() - begin_ms, GRANT_MS - 100, CALL_MS);
    assert_true(one_node_used_bytes(runtime) == GPU_BYTES);
    TRY(tdm_actor_call(next, "take_after", &ref, "i", grandchild));
    assert_int_equal(tdm_get(ref, 300, "n"), TDM_E_TIMEOUT);
    assert_true(one_node_used_bytes(runtime) == GPU_BYTES);
    assert_int_equal(waitpid((pid_t)grandchild, NULL, __WALL), grandchild);
    TRY(tdm_get(ref, CALL_MS, "?i", &exists, &refusals));
    tdm_ref_release(ref);
    assert_false(exists);
    assert_int_equal(refusals, 0); /* The request waited instead. */
    assert_true(find_in_log("have not ended 2000 ms after SIGKILL") >= 0);
    TRY(tdm_actor_kill(next, CALL_MS));
    one_node_wait_used(runtime, 0);
    tdm_actor_destroy(first);
    tdm_actor_destroy(next);
}

/* Runs this program once more, without the kill of the tree.  Returns its exit code. */
static void test_fails_without_the_kill_of_the_tree(void **state)
{
    char self[256] = "";
    char *argv[] = {self, (char *)(uintptr_t) "one-round", NULL};
    struct tdm__spawn_options options = {.program = self, .argv = argv, .output_fd = -1};
    struct tdm__process process;
    int wait_status = 0;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRY(tdm__spawn(&options, &process));
    assert_int_equal(waitpid(process.pid, &wait_status, 0), process.pid);
    tdm__process_forget(&process);
    assert_int_equal(wait_status, 0);
    (void)setenv("TANDEM_FAILPOINT", "reaper reaper.kill_tree 1 skip /none", 1);
    TRY(tdm__spawn(&options, &process));
    (void)unsetenv("TANDEM_FAILPOINT");
    assert_int_equal(waitpid(process.pid, &wait_status, 0), process.pid);
    tdm__process_forget(&process);
    assert_int_equal(wait_status, EARLY << 8);
}

/* Runs one round.  Returns EARLY if the memory was granted while the grandchild was there. */
static int run_one_round(void)
{
    struct round round = run_round(0, 1);

    return round.grandchild_was_there ? EARLY : 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_actor_gets_the_gpu_after_the_last_process),
        cmocka_unit_test(neighbour_gets_the_memory_after_the_last_process),
        cmocka_unit_test(memory_waits_for_a_process_that_does_not_end),
        cmocka_unit_test(test_fails_without_the_kill_of_the_tree),
    };
    int own_stderr = -1;
    int failed;

    (void)argv;
    if (getenv("TANDEM_WORKER") == NULL) { /* The daemon's log goes to a file. */
        int log_fd = mkstemp(log_path);

        own_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        (void)dup2(log_fd, STDERR_FILENO);
        (void)close(log_fd);
        (void)setenv("TANDEM_LOG", "info", 1);
    }
    runtime = one_node_start(GPU_BYTES); /* A worker never returns from here. */
    (void)unsetenv("TANDEM_LOG");
    (void)dup2(own_stderr, STDERR_FILENO);
    failed = argc > 1 ? run_one_round() : cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    (void)unlink(log_path);
    return failed;
}
