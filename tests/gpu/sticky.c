/* sticky.c - a kernel that writes to a wrong address breaks its process, which is noticed, and no
 * other process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/driver.h"
#include "runtime/process_fault.h"
#include "tests/support/cuda_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_SKIPPED = 77, EXIT_FAULT = 42 };

/* The driver compiles the kernel, so that no compiler is needed. The fake library knows it by its
 * name. */
static const char kernel_text[] = "//\n"
                                  ".version 7.0\n"
                                  ".target sm_80\n"
                                  ".address_size 64\n"
                                  ".visible .entry tandem_fault()\n"
                                  "{\n"
                                  "    .reg .b64 %address;\n"
                                  "    .reg .b32 %value;\n"
                                  "    mov.b64 %address, 16;\n"
                                  "    mov.b32 %value, 1;\n"
                                  "    st.global.b32 [%address], %value;\n"
                                  "    ret;\n"
                                  "}\n";

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)printf("failed: %s:%d: %s: %s\n", __FILE__, __LINE__, #condition,                \
                         tdm_error_detail());                                                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* The driver and a stream on the first GPU. */
struct process {
    const struct tdm__cuda_driver *driver;
    void *stream;
};

static tdm_status process_open(struct process *process)
{
    struct tdm__cuda_gpu gpu;
    void *context;

    TDM_TRY(tdm__cuda_driver(&process->driver));
    TDM_TRY(tdm__cuda_gpu_at(0, &gpu));
    TDM_TRY(tdm__cuda_check(process->driver->cuDevicePrimaryCtxRetain(&context, gpu.device),
                            "cuDevicePrimaryCtxRetain"));
    TDM_TRY(tdm__cuda_check(process->driver->cuCtxSetCurrent(context), "cuCtxSetCurrent"));
    return tdm__cuda_check(
        process->driver->cuStreamCreate(&process->stream, CU_STREAM_NON_BLOCKING),
        "cuStreamCreate");
}

/* Starts the kernel and waits for it. */
static tdm_status process_write_to_wrong_address(struct process *process)
{
    void *function;
    void *module;

    TDM_TRY(tdm__cuda_check(process->driver->cuModuleLoadData(&module, kernel_text),
                            "cuModuleLoadData"));
    TDM_TRY(tdm__cuda_check(process->driver->cuModuleGetFunction(&function, module, "tandem_fault"),
                            "cuModuleGetFunction"));
    TDM_TRY(tdm__cuda_check(
        process->driver->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, process->stream, NULL, NULL),
        "cuLaunchKernel"));
    return tdm__cuda_check(process->driver->cuStreamSynchronize(process->stream),
                           "cuStreamSynchronize after a kernel");
}

/* A driver gets an error, and every later call fails with it, too. */
static int break_a_driver(void)
{
    struct process process;
    uint64_t address;

    EXPECT(process_open(&process) == TDM_OK);
    EXPECT(process_write_to_wrong_address(&process) == TDM_E_DEVICE);
    (void)printf("a driver gets: %s\n", tdm_error_detail());
    EXPECT(strstr(tdm_error_detail(), "it must be started again") != NULL);
    EXPECT(tdm__cuda_check(process.driver->cuMemAlloc_v2(&address, 4096), "cuMemAlloc") ==
           TDM_E_DEVICE);
    (void)printf("then: %s\n", tdm_error_detail());
    EXPECT(strstr(tdm_error_detail(), "it must be started again") != NULL);
    return 0;
}

static void end_process(const char *cause)
{
    (void)printf("a worker ends with: %s\n", cause);
    (void)fflush(stdout);
    _exit(EXIT_FAULT);
}

/* A worker ends. */
static int break_a_worker(void)
{
    struct process process;

    tdm__process_fault_set_handler(end_process);
    EXPECT(process_open(&process) == TDM_OK);
    EXPECT(process_write_to_wrong_address(&process) == TDM_OK);
    return 1;
}

/* Another process, such as the worker that was started again, can use the GPU. */
static int use_the_gpu(void)
{
    const uint32_t written = 0x7d4d;
    struct process process;
    uint32_t read = 0;
    uint64_t address;

    EXPECT(process_open(&process) == TDM_OK);
    EXPECT(tdm__cuda_check(process.driver->cuMemAlloc_v2(&address, sizeof(read)), "cuMemAlloc") ==
           TDM_OK);
    EXPECT(tdm__cuda_check(process.driver->cuMemcpyHtoD_v2(address, &written, sizeof(written)),
                           "cuMemcpyHtoD") == TDM_OK);
    EXPECT(tdm__cuda_check(process.driver->cuMemcpyDtoH_v2(&read, address, sizeof(read)),
                           "cuMemcpyDtoH") == TDM_OK);
    EXPECT(read == written);
    return 0;
}

/* Runs a function in a process of its own. Returns true if its exit code is `wanted`. */
static bool run_in_process(const char *name, int (*fn)(void), int wanted)
{
    int wait_status = 0;
    pid_t pid;
    int code;

    (void)fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int result = fn();

        (void)fflush(stdout);
        _exit(result);
    }
    if (pid < 0 || waitpid(pid, &wait_status, 0) != pid) {
        return false;
    }
    code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
    (void)printf("%s: exit code %d%s\n", name, code, code == wanted ? "" : ": FAILED");
    return code == wanted;
}

static int can_use_cuda(void)
{
    const struct tdm__cuda_driver *driver;

    if (tdm__cuda_driver(&driver) != TDM_OK) {
        (void)printf("skipped: %s\n", tdm_error_detail());
        return EXIT_SKIPPED;
    }
    return 0;
}

int main(void)
{
    bool passed;

    cuda_gpu_choose((size_t)64 << 20);
    if (!run_in_process("CUDA", can_use_cuda, 0)) {
        return EXIT_SKIPPED;
    }
    passed = run_in_process("a driver with a wrong kernel", break_a_driver, 0);
    passed &= run_in_process("a worker with a wrong kernel", break_a_worker, EXIT_FAULT);
    passed &= run_in_process("the next process", use_the_gpu, 0);
    cuda_gpu_forget();
    return passed ? 0 : 1;
}
