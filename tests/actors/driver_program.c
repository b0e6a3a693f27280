/* driver_program.c - a driver with calls under way, to be killed: prints who its processes are.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ACTORS = 3, WINDOW = 8 };

/* Keeps calls under way to every actor until one fails; prints the failure and stops the runtime.
 */
static int work(tdm_actor *const *actors)
{
    for (;;) {
        tdm_ref *refs[ACTORS * WINDOW];
        tdm_status status = TDM_OK;

        for (int i = 0; i < ACTORS * WINDOW; i++) {
            refs[i] = NULL;
            if (status == TDM_OK) {
                status = tdm_actor_call(actors[i % ACTORS], i % 5 == 0 ? "linger" : "add", &refs[i],
                                        "i", (int64_t)1);
            }
        }
        for (int i = 0; i < ACTORS * WINDOW; i++) {
            const tdm_value *value;

            if (status == TDM_OK) {
                status = tdm_get_value(refs[i], TEST_TIMEOUT_MS, &value);
            }
        }
        if (status != TDM_OK) {
            (void)printf("failed %d %s\n", (int)status, tdm_error_detail());
            (void)fflush(stdout);
        }
        for (int i = 0; i < ACTORS * WINDOW; i++) {
            tdm_ref_release(refs[i]);
        }
        if (status != TDM_OK) {
            return 0;
        }
    }
}

/* A child that keeps every descriptor open, as programs do that fork and do not clean up. */
static void fork_holder(void)
{
    if (fork() == 0) {
        for (;;) {
            (void)poll(NULL, 0, -1);
        }
    }
}

static void print_processes(tdm_runtime *runtime, tdm_actor *const *actors)
{
    struct tdm_runtime_info node;

    tdm_runtime_describe(runtime, &node);
    (void)printf("directory %s\n", node.directory);
    for (int i = 0; i < ACTORS; i++) {
        struct tdm_actor_info info;

        tdm_actor_describe(actors[i], &info);
        (void)printf("actor %lld\n", (long long)info.pid);
    }
}

int main(int argc, char **argv)
{
    tdm_runtime *runtime;
    tdm_actor *actors[ACTORS];
    tdm_ref *ref;

    actor_fixture_link_tester();
    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    for (int i = 0; i < ACTORS; i++) {
        TDM_CHECK(tdm_actor_create(runtime, "tester", NULL, &actors[i], ""));
        TDM_CHECK(tdm_actor_wait_ready(actors[i], TEST_TIMEOUT_MS));
    }
    for (int with_exec = 0; with_exec < 2; with_exec++) {
        int64_t pid;

        TDM_CHECK(tdm_actor_call(actors[with_exec], "stray", &ref, "?", with_exec));
        TDM_CHECK(tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid));
        tdm_ref_release(ref);
    }
    if (argc > 1 && strcmp(argv[1], "--fork") == 0) {
        fork_holder();
    }
    print_processes(runtime, actors);
    (void)printf("ready\n");
    (void)fflush(stdout);
    (void)work(actors);
    for (int i = 0; i < ACTORS; i++) {
        tdm_actor_destroy(actors[i]);
    }
    tdm_runtime_stop(runtime);
    return 0;
}
