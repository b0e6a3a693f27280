/* cuda_gpu.c - a GPU for tests, a real one or the fake library, with a broker and two tenants. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/cuda_gpu.h"

#include "colocate/device/cuda/cuda.h"
#include "colocate/device/cuda/cuda_device.h"
#include "runtime/assert.h"
#include "tests/support/direct_broker.h"
#include "tests/support/faulty_device.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_LIBRARY      TDM_TEST_BUILD_DIR "/tests/cuda_fake.so"
#define FAKE_NCCL_LIBRARY TDM_TEST_BUILD_DIR "/tests/nccl_fake.so"

struct cuda_gpu_controls cuda_gpu_fake;
static char directory[64];

static void must(tdm_status status)
{
    if (status != TDM_OK) {
        (void)fprintf(stderr, "%s\n", tdm_error_detail());
    }
    TDM_ASSERT(status == TDM_OK);
}

bool cuda_gpu_is_real(void)
{
    return getenv("TANDEM_TEST_REAL_GPU") != NULL;
}

/* TANDEM_TEST_FAKE_CUDA names a fake library with a mistake in its kernels. */
static const char *fake_library(void)
{
    const char *path = getenv("TANDEM_TEST_FAKE_CUDA");

    return path != NULL ? path : FAKE_LIBRARY;
}

static void find_controls(void)
{
    void *library = dlopen(fake_library(), RTLD_NOW | RTLD_LOCAL);

    TDM_ASSERT(library != NULL);
    *(void **)&cuda_gpu_fake.break_call = dlsym(library, "fake_cuda_fail");
    *(void **)&cuda_gpu_fake.calls = dlsym(library, "fake_cuda_calls");
    *(void **)&cuda_gpu_fake.defer = dlsym(library, "fake_cuda_defer");
    *(void **)&cuda_gpu_fake.things = dlsym(library, "fake_cuda_resources_count");
}

/* The fake library has the kernels in it, and looks only at the mark of what it is given. */
static void choose_kernels(void)
{
    char path[sizeof(directory) + 16];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/kernels.ptx", directory);
    file = fopen(path, "we");
    TDM_ASSERT(file != NULL);
    (void)fputs("// no kernels\n", file);
    (void)fclose(file);
    (void)setenv("TANDEM_CUDA_KERNELS", path, 1);
}

void cuda_gpu_choose(size_t fake_bytes)
{
    char bytes[32];

    if (cuda_gpu_is_real()) {
        return;
    }
    if (getenv("TANDEM_TEST_FAKE_CUDA") != NULL) {
        /* The test may end without removing its files; the caller removes the folder. */
        (void)snprintf(directory, sizeof(directory), "%s.XXXXXX", fake_library());
    } else {
        /* Not under Tandem's name: other tests look there for what Tandem left behind. */
        (void)snprintf(directory, sizeof(directory), "%s/fake-cuda-XXXXXX",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    }
    TDM_ASSERT(mkdtemp(directory) != NULL);
    (void)snprintf(bytes, sizeof(bytes), "%zu", fake_bytes);
    (void)setenv("FAKE_CUDA_DIRECTORY", directory, 1);
    (void)setenv("FAKE_CUDA_BYTES", bytes, 1);
    (void)setenv("TANDEM_CUDA_LIBRARY", fake_library(), 1);
    /* A real NCCL, which may be installed here, cannot use the fake CUDA library. */
    (void)setenv("TANDEM_NCCL_LIBRARY", FAKE_NCCL_LIBRARY, 0);
    choose_kernels();
    find_controls();
}

static void remove_tree(const char *path)
{
    DIR *tree = opendir(path);
    struct dirent *entry;

    while (tree != NULL && (entry = readdir(tree)) != NULL) {
        char inner[512];

        if (entry->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        if (unlink(inner) != 0) {
            remove_tree(inner);
        }
    }
    if (tree != NULL) {
        (void)closedir(tree);
    }
    (void)rmdir(path);
}

void cuda_gpu_forget(void)
{
    if (directory[0] != '\0') {
        remove_tree(directory);
    }
}

struct cuda_gpu *cuda_gpu_open(size_t capacity_bytes, bool faulty)
{
    static const char *const names[2] = {"trainer rank 1", "engine 0"};
    struct cuda_gpu *gpu = calloc(1, sizeof(*gpu));
    struct tdm__cuda_gpu found;

    TDM_ASSERT(gpu != NULL);
    must(tdm__cuda_gpu_at(0, &found));
    (void)snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", found.uuid);
    must(tdm__broker_create(1, capacity_bytes, &gpu->broker));
    for (int i = 0; i < 2; i++) {
        must(tdm__id_generate(&gpu->tenants[i].id));
        (void)snprintf(gpu->tenants[i].name, sizeof(gpu->tenants[i].name), "%s", names[i]);
        must(tdm__broker_client_open_direct(gpu->broker, &gpu->tenants[i], &gpu->clients[i]));
        must(tdm__device_cuda_kind.open(gpu->clients[i], 0, gpu->uuid, &gpu->devices[i]));
        if (faulty) {
            must(tdm__device_faulty_open(gpu->devices[i], &gpu->devices[i]));
        }
    }
    return gpu;
}

void cuda_gpu_close(struct cuda_gpu *gpu)
{
    for (int i = 0; i < 2; i++) {
        tdm__device_close(gpu->devices[i]);
        tdm__broker_client_destroy(gpu->clients[i]);
    }
    tdm__broker_destroy(gpu->broker);
    free(gpu);
}

size_t cuda_gpu_used_bytes(const struct cuda_gpu *gpu)
{
    struct tdm__broker_gpu described;

    tdm__broker_gpu_usage(gpu->broker, 0, &described);
    return described.used_bytes;
}

size_t cuda_gpu_free_bytes(const struct cuda_gpu *gpu)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)gpu->devices[0];
    size_t free_bytes;
    size_t total_bytes;
    TDM__CUDA_SCOPE(scope);

    must(tdm__cuda_enter(cuda, &scope));
    must(tdm__cuda_check(cuda->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes),
                         "cuMemGetInfo of %s", gpu->uuid));
    return free_bytes;
}
