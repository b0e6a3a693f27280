/* torch_peer.c - one side of sharing GPU memory with PyTorch, the other is torch_share.py. */
/* SPDX-License-Identifier: Apache-2.0 */
/*   torch_peer describe                      the GPU's name, UUID, driver, MiB, a line each
 *   torch_peer give BYTES                    makes memory, byte i is i % 251; prints its handle
 *                                            and waits for the end of its input
 *   torch_peer take HANDLE ALLOCATION OFFSET BYTES   prints the sum of bytes it finds there */
#include "colocate/device/cuda/cuda_device.h"
#include "colocate/device/cuda/cuda_ipc.h"
#include "colocate/device/cuda/driver.h"
#include "tests/support/cuda_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_SKIPPED = 77 };

static int print_failure(void)
{
    (void)fprintf(stderr, "%s\n", tdm_error_detail());
    return 1;
}

static int describe(void)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_gpu gpu;
    int version = 0;

    if (tdm__cuda_gpu_at(0, &gpu) != TDM_OK || tdm__cuda_driver(&driver) != TDM_OK) {
        (void)print_failure();
        return EXIT_SKIPPED;
    }
    (void)driver->cuDriverGetVersion(&version);
    (void)printf("%s\n%s\n%d.%d\n%zu\n", gpu.name, gpu.uuid, version / 1000, version % 1000 / 10,
                 gpu.total_bytes >> 20);
    return 0;
}

static int export_from(struct tdm__device *device, size_t size_bytes, uint64_t address)
{
    unsigned char *bytes = malloc(size_bytes);
    struct tdm__cuda_ipc_memory shared;
    tdm_status status;

    for (size_t i = 0; bytes != NULL && i < size_bytes; i++) {
        bytes[i] = (unsigned char)(i % 251);
    }
    status = device->ops->copy(device, (void *)(uintptr_t)address, bytes, size_bytes);
    if (status == TDM_OK) {
        status = device->ops->copy_flush(device);
    }
    free(bytes);
    if (status != TDM_OK ||
        tdm__cuda_ipc_export(device, (void *)(uintptr_t)address, size_bytes, &shared) != TDM_OK) {
        return print_failure();
    }
    for (size_t i = 0; i < sizeof(shared.handle.bytes); i++) {
        (void)printf("%02x", (unsigned char)shared.handle.bytes[i]);
    }
    (void)printf("\n");
    (void)fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

static int give(struct tdm__device *device, size_t size_bytes)
{
    const struct tdm__cuda_driver *driver;
    uint64_t address;
    int result;
    TDM__CUDA_SCOPE(scope);

    if (tdm__cuda_driver(&driver) != TDM_OK ||
        tdm__cuda_enter((struct tdm__cuda_device *)device, &scope) != TDM_OK ||
        tdm__cuda_check(driver->cuMemAlloc_v2(&address, size_bytes), "cuMemAlloc") != TDM_OK) {
        return print_failure();
    }
    result = export_from(device, size_bytes, address);
    (void)driver->cuMemFree_v2(address);
    return result;
}

static int print_sum(struct tdm__device *device, const void *address, size_t size_bytes)
{
    unsigned char *bytes = malloc(size_bytes);
    unsigned long long sum = 0;

    if (bytes == NULL || device->ops->copy(device, bytes, address, size_bytes) != TDM_OK ||
        device->ops->copy_flush(device) != TDM_OK) {
        free(bytes);
        return print_failure();
    }
    for (size_t i = 0; i < size_bytes; i++) {
        sum += bytes[i];
    }
    free(bytes);
    (void)printf("%llu\n", sum);
    return 0;
}

static int take(struct tdm__device *device, char **arguments)
{
    struct tdm__cuda_ipc_memory shared = {.ipc_kind = TDM__CUDA_IPC_HANDLE,
                                          .fd = -1,
                                          .allocation_bytes =
                                              (size_t)strtoull(arguments[1], NULL, 10),
                                          .offset_bytes = (size_t)strtoull(arguments[2], NULL, 10)};
    struct tdm__cuda_ipc_mapping opened;
    int result;

    (void)snprintf(shared.uuid, sizeof(shared.uuid), "%s", device->uuid);
    for (size_t i = 0; i < sizeof(shared.handle.bytes) && arguments[0][2 * i] != '\0'; i++) {
        const char digits[3] = {arguments[0][2 * i], arguments[0][2 * i + 1], '\0'};

        shared.handle.bytes[i] = (char)strtoul(digits, NULL, 16);
    }
    if (tdm__cuda_ipc_open(device, &shared, &opened) != TDM_OK) {
        return print_failure();
    }
    result = print_sum(device, opened.address, (size_t)strtoull(arguments[3], NULL, 10));
    tdm__cuda_ipc_close(device, &opened);
    return result;
}

int main(int argc, char **argv)
{
    struct cuda_gpu *gpu;
    int result = 2;

    if (argc == 2 && strcmp(argv[1], "describe") == 0) {
        return describe();
    }
    gpu = cuda_gpu_open((size_t)1 << 30, false);
    if (argc == 3 && strcmp(argv[1], "give") == 0) {
        result = give(gpu->devices[0], (size_t)strtoull(argv[2], NULL, 10));
    } else if (argc == 6 && strcmp(argv[1], "take") == 0) {
        result = take(gpu->devices[0], argv + 2);
    } else {
        (void)fprintf(stderr, "torch_peer: describe, give BYTES, or take HANDLE ALLOCATION "
                              "OFFSET BYTES\n");
    }
    cuda_gpu_close(gpu);
    return result;
}
