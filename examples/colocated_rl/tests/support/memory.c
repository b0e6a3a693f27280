/* memory.c - memory for tests of the model on either machine, with a fake library for a GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/tests/support/memory.h"

#include <dlfcn.h>
#include <fts.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    struct machine *machine; /* NULL: not opened yet */
    char folder[64];         /* Directory of the fake library; "" with a real GPU. */
    int (*allocate)(uint64_t *address, size_t bytes);
    int (*release)(uint64_t address);
} cuda = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void must(int good, const char *what)
{
    if (!good) {
        (void)fprintf(stderr, "%s: %s\n", what, tdm_error_detail());
        abort();
    }
}

/* ---- the fake library ----------------------------------------------------------------------- */

static void remove_folder(void)
{
    char *const paths[] = {cuda.folder, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    const FTSENT *entry;

    while (tree != NULL && (entry = fts_read(tree)) != NULL) {
        if (entry->fts_info == FTS_DP) {
            (void)rmdir(entry->fts_path);
        } else if (entry->fts_info != FTS_D) {
            (void)unlink(entry->fts_path);
        }
    }
    if (tree != NULL) {
        (void)fts_close(tree);
    }
}

/* What stands for kernels: the fake library has its own, and looks at the mark of PTX alone. */
static void write_kernels(void)
{
    char path[80];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/kernels.ptx", cuda.folder);
    file = fopen(path, "we");
    must(file != NULL && fputs("// none\n", file) >= 0 && fclose(file) == 0, path);
    (void)setenv("COLOCATED_RL_KERNELS", path, 1);
}

static void choose_fake(void)
{
    if (getenv("TANDEM_TEST_REAL_GPU") != NULL) {
        return;
    }
    (void)snprintf(cuda.folder, sizeof(cuda.folder), "%s/fake-model-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(cuda.folder) != NULL && atexit(remove_folder) == 0, "a folder");
    (void)setenv("FAKE_CUDA_DIRECTORY", cuda.folder, 1);
    /* Deferred operations that no call waits for do not happen. */
    (void)setenv("FAKE_CUDA_DEFER", "1", 1);
    (void)setenv("TANDEM_CUDA_LIBRARY", FAKES_FOLDER "/cuda_fake.so", 1);
    (void)setenv("COLOCATED_RL_CUBLAS_LIBRARY", FAKES_FOLDER "/cublas_fake.so", 1);
    write_kernels();
}

static void open_cuda(void)
{
    const char *path;
    void *library;

    choose_fake();
    must(machine_open("cuda", &cuda.machine) == TDM_OK, "CUDA");
    path = getenv("TANDEM_CUDA_LIBRARY");
    library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    must(library != NULL, "the driver");
    *(void **)&cuda.allocate = dlsym(library, "cuMemAlloc_v2");
    *(void **)&cuda.release = dlsym(library, "cuMemFree_v2");
    must(cuda.allocate != NULL && cuda.release != NULL, "cuMemAlloc");
}

/* ---- memory ----------------------------------------------------------------------------- */

struct machine *memory_machine(const char *name)
{
    if (strcmp(name, "cuda") != 0) {
        return machine_host();
    }
    (void)pthread_mutex_lock(&cuda.lock);
    if (cuda.machine == NULL) {
        open_cuda();
    }
    (void)pthread_mutex_unlock(&cuda.lock);
    return cuda.machine;
}

void *memory_take(struct machine *machine, size_t size_bytes)
{
    size_t floats = size_bytes / sizeof(float) + 1;
    uint64_t address = 0;

    if (machine->ops->computes_on_host) {
        void *memory = calloc(floats, sizeof(float));

        must(memory != NULL, "memory");
        return memory;
    }
    /* Makes the machine's context current. */
    must(machine->ops->finish(machine) == TDM_OK, "the machine");
    must(cuda.allocate(&address, floats * sizeof(float)) == 0, "cuMemAlloc");
    machine->ops->zero(machine, &(const struct filling){(float *)(uintptr_t)address, floats});
    must(machine->ops->finish(machine) == TDM_OK, "the machine");
    return (void *)(uintptr_t)address;
}

void memory_give(struct machine *machine, void *memory)
{
    if (machine->ops->computes_on_host) {
        free(memory);
        return;
    }
    must(machine->ops->finish(machine) == TDM_OK, "the machine");
    must(cuda.release((uint64_t)(uintptr_t)memory) == 0, "cuMemFree");
}

void memory_write(struct machine *machine, void *to, const void *from, size_t size_bytes)
{
    must(machine->ops->write(machine, to, from, size_bytes) == TDM_OK, "writing");
}

void memory_read(struct machine *machine, void *to, const void *from, size_t size_bytes)
{
    must(machine->ops->read(machine, to, from, size_bytes) == TDM_OK, "reading");
}
