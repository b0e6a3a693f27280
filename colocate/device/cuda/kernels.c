/* kernels.c - finds, loads and launches the compiled CUDA kernels. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of kernels.cu are compiled by nvcc and built into the library as bytes
 * (TDM_CUDA_KERNELS_FILE), or read from the file that TANDEM_CUDA_KERNELS names, which has
 * priority. A struct tdm__cuda_kernels owns the loaded module of one device; copy_engine.c owns
 * the struct and serialises the calls.
 *
 * Nothing here waits for the GPU. */

#include "colocate/device/cuda/kernels.h"

#include "colocate/device/cuda/cuda_device.h"
#include "runtime/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef TDM_CUDA_KERNELS_FILE
/* The image that nvcc compiled, included byte by byte. */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "tdm__cuda_kernels_image:\n"
        ".incbin \"" TDM_CUDA_KERNELS_FILE "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char tdm__cuda_kernels_image[] __attribute__((visibility("hidden")));

/* Returns the kernels that were built in, or NULL if Tandem was built without nvcc. */
static const char *built_in_image(void)
{
    return tdm__cuda_kernels_image;
}
#else
static const char *built_in_image(void)
{
    return NULL;
}
#endif

enum { IMAGE_BYTES_MIN = 8, IMAGE_BYTES_MAX = 64 << 20 };

/* The kernels loaded on one device. The copy engine owns it. */
struct tdm__cuda_kernels {
    struct tdm__cuda_device *cuda; /* Borrowed. */
    /* Owned module of the driver; NULL until it is loaded. */
    void *module;
    /* Functions of the module by kind of kernel. */
    void *functions[TDM__CUDA_KERNELS_COUNT];
};

/* ---- loading ---------------------------------------------------------------------------- */

/* Reads a file and appends a zero byte, which the driver needs after PTX text. */
static tdm_status read_image(const char *path, char **image_out)
{
    FILE *file = fopen(path, "rbe");
    char *image;
    long bytes;

    if (file == NULL) {
        return tdm__fail_errno(errno, "%s", path);
    }
    if (fseek(file, 0, SEEK_END) != 0 || (bytes = ftell(file)) < IMAGE_BYTES_MIN ||
        bytes > IMAGE_BYTES_MAX || fseek(file, 0, SEEK_SET) != 0) {
        (void)fclose(file);
        return tdm__fail(TDM_E_LIMIT, "%s is no file of %d to %d bytes", path, IMAGE_BYTES_MIN,
                         IMAGE_BYTES_MAX);
    }
    image = calloc(1, (size_t)bytes + 1);
    if (image == NULL || fread(image, 1, (size_t)bytes, file) != (size_t)bytes) {
        free(image);
        (void)fclose(file);
        return tdm__fail(TDM_E_IO, "%s: %ld bytes could not be read", path, bytes);
    }
    (void)fclose(file);
    *image_out = image;
    return TDM_OK;
}

/* Loads the file of TANDEM_CUDA_KERNELS or the built-in kernels. */
static tdm_status load_module(struct tdm__cuda_kernels *kernels)
{
    const struct tdm__cuda_driver *driver = kernels->cuda->driver;
    const char *path = getenv("TANDEM_CUDA_KERNELS");
    const char *built_in = built_in_image();
    char *image = NULL;
    tdm_status status;

    if (path == NULL && built_in == NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "no kernels for the GPU: Tandem was built without nvcc, and "
                         "TANDEM_CUDA_KERNELS names no file with them");
    }
    if (path != NULL) {
        TDM_TRY(read_image(path, &image));
    }
    status = tdm__cuda_check(
        driver->cuModuleLoadData(&kernels->module, image != NULL ? image : built_in),
        "cuModuleLoadData on %s", kernels->cuda->base.uuid);
    free(image);
    return status;
}

/* Looks up the kernels in the module. */
static tdm_status find_functions(struct tdm__cuda_kernels *kernels)
{
    static const char *const names[TDM__CUDA_KERNELS_COUNT] = {
        [TDM__CUDA_KERNEL_COPY] = "tandem_copy",
        [TDM__CUDA_KERNEL_CAST] = "tandem_cast",
        [TDM__CUDA_KERNEL_QUANTIZE] = "tandem_quantize",
        [TDM__CUDA_KERNEL_SCALES] = "tandem_scales",
    };
    const struct tdm__cuda_driver *driver = kernels->cuda->driver;

    for (int i = 0; i < TDM__CUDA_KERNELS_COUNT; i++) {
        TDM_TRY(tdm__cuda_check(
            driver->cuModuleGetFunction(&kernels->functions[i], kernels->module, names[i]),
            "cuModuleGetFunction of %s", names[i]));
    }
    return TDM_OK;
}

tdm_status tdm__cuda_kernels_open(struct tdm__device *device,
                                  struct tdm__cuda_kernels **kernels_out)
{
    struct tdm__cuda_kernels *kernels = calloc(1, sizeof(*kernels));
    tdm_status status;
    TDM__CUDA_SCOPE(scope);

    if (kernels == NULL) {
        return tdm__fail(TDM_E_NOMEM, "kernels");
    }
    kernels->cuda = (struct tdm__cuda_device *)device;
    status = tdm__cuda_enter(kernels->cuda, &scope);
    if (status == TDM_OK) {
        status = load_module(kernels);
    }
    if (status == TDM_OK) {
        status = find_functions(kernels);
    }
    if (status != TDM_OK) {
        tdm__cuda_kernels_close(kernels);
        return status;
    }
    *kernels_out = kernels;
    return TDM_OK;
}

void tdm__cuda_kernels_close(struct tdm__cuda_kernels *kernels)
{
    if (kernels == NULL) {
        return;
    }
    if (kernels->module != NULL) {
        (void)kernels->cuda->driver->cuModuleUnload(kernels->module);
    }
    free(kernels);
}

/* ---- launching --------------------------------------------------------------------------- */

tdm_status tdm__cuda_kernels_launch(struct tdm__cuda_kernels *kernels,
                                    enum tdm__cuda_kernel_kind work, struct tdm__cuda_batch *batch,
                                    uint32_t count, uint32_t blocks, void *stream)
{
    const struct tdm__cuda_device *cuda = kernels->cuda;
    void *arguments[1] = {batch};

    return tdm__cuda_check(cuda->driver->cuLaunchKernel(kernels->functions[work], blocks, count, 1,
                                                        TDM__CUDA_THREADS_PER_BLOCK, 1, 1, 0,
                                                        stream, arguments, NULL),
                           "cuLaunchKernel for %u copy ops on %s", count, cuda->base.uuid);
}
