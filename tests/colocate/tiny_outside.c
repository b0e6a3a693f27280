/* tiny_outside.c - outside memory of the smallest job, in the rank or in a process of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/colocate/tiny_outside.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDER TDM_TEST_BUILD_DIR "/tests/gpu_holder_program"

/* Reads a setting of this side; -1 if it is absent. */
static tdm_status read_setting(const struct tiny_outside *outside, const char *name,
                               int64_t *value_out)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "%s.%s", outside->side, name);
    return tdm_config_int(outside->context->config, path, -1, value_out);
}

tdm_status tiny_outside_declare(const struct tiny_outside *outside, struct tdm_region_spec *specs,
                                uint32_t *count)
{
    int64_t mib;

    TDM_TRY(read_setting(outside, "outside_mib", &mib));
    if (mib > 0) {
        specs[*count] =
            (struct tdm_region_spec){"torch", (size_t)mib << 20, TDM_REGION_OUTSIDE_DROP};
        (*count)++;
    }
    return TDM_OK;
}

/* ---- in a process of its own ------------------------------------------------------------ */

/* Executes the holder with the pipes as its standard input and output. Does not return. */
static void execute_holder(size_t size_bytes, const int input[2], const int output[2])
{
    char bytes[32];

    (void)snprintf(bytes, sizeof(bytes), "%zu", size_bytes);
    (void)dup2(input[0], STDIN_FILENO);
    (void)dup2(output[1], STDOUT_FILENO);
    (void)execl(HOLDER, HOLDER, bytes, (char *)NULL);
    _exit(127);
}

/* Starts the holder and waits until it has the memory. */
static tdm_status start_holder(struct tiny_outside *outside, size_t size_bytes)
{
    int input[2];
    int output[2];
    char byte;
    ssize_t got;

    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) {
        return tdm_fail(TDM_E_LIMIT, "no pipe for the holder");
    }
    outside->holder = fork();
    if (outside->holder == 0) {
        execute_holder(size_bytes, input, output);
    }
    (void)close(input[0]);
    (void)close(output[1]);
    outside->holder_stdin = input[1];
    got = read(output[0], &byte, 1);
    (void)close(output[0]);
    if (outside->holder < 0 || got != 1) {
        return tdm_fail(TDM_E_DEVICE_FULL, "the holder has no %zu bytes", size_bytes);
    }
    return TDM_OK;
}

/* Kills the holder. The GPU gets its memory back some time later. */
static void kill_holder(struct tiny_outside *outside)
{
    (void)kill(outside->holder, SIGKILL);
    (void)waitpid(outside->holder, NULL, 0);
    (void)close(outside->holder_stdin);
    outside->holder = 0;
}

/* ---- resume and pause ------------------------------------------------------------------- */

tdm_status tiny_outside_resume(struct tiny_outside *outside, const char *tag)
{
    int64_t in_process;
    int64_t mib;

    TDM_TRY(read_setting(outside, "outside_used_mib", &mib));
    TDM_TRY(read_setting(outside, "outside_in_process", &in_process));
    if (mib < 0 || strcmp(tag, "torch") != 0 || outside->memory != NULL || outside->holder != 0) {
        return tdm_fail(TDM_E_METHOD, "%s cannot be resumed", tag);
    }
    if (in_process == 1) {
        return start_holder(outside, (size_t)mib << 20);
    }
    outside->size_bytes = (size_t)mib << 20;
    outside->memory =
        mmap(NULL, outside->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(outside->memory, 1, outside->size_bytes);
    return TDM_OK;
}

tdm_status tiny_outside_pause(struct tiny_outside *outside, const char *tag)
{
    if (strcmp(tag, "torch") != 0 || (outside->memory == NULL && outside->holder == 0)) {
        return tdm_fail(TDM_E_METHOD, "%s cannot be paused", tag);
    }
    if (outside->holder != 0) {
        kill_holder(outside);
        return TDM_OK;
    }
    (void)munmap(outside->memory, outside->size_bytes);
    outside->memory = NULL;
    return TDM_OK;
}
