/* gpu_holder_program.c - a process that holds memory of the GPU until it is killed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/driver.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Usage: gpu_holder_program BYTES. Allocates the bytes on the first visible GPU, writes a line to
 * stdout, and ends when stdin does, so that it does not outlive its parent. */
int main(int argc, char **argv)
{
    const struct tdm__cuda_driver *driver;
    uint64_t address;
    void *context;
    char byte;

    if (argc != 2 || tdm__cuda_driver(&driver) != TDM_OK ||
        driver->cuDevicePrimaryCtxRetain(&context, 0) != CU_SUCCESS ||
        driver->cuCtxPushCurrent_v2(context) != CU_SUCCESS ||
        driver->cuMemAlloc_v2(&address, strtoull(argv[1], NULL, 10)) != CU_SUCCESS) {
        (void)fprintf(stderr, "gpu_holder_program: the GPU has no %s bytes\n",
                      argc == 2 ? argv[1] : "?");
        return 1;
    }
    (void)puts("held");
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}
