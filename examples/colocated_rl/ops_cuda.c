/* ops_cuda.c - the arithmetic of a transformer on a GPU: cuBLAS and the kernels of ops.cu. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA machine. Operations are submitted to one stream of its own, in the primary context, in
 * which the regions' memory is mapped. They run in order, and read() and finish() wait for them.
 * Matrix products and norms use cuBLAS; everything else uses the kernels of ops.cu, whose image is
 * built in or read from a file. The first error is stored and returned by the next call that waits;
 * later results are meaningless. Functions may be called on any thread, and each sets the context
 * first. Collective calls go through a staging buffer in host memory. */
#include "examples/colocated_rl/cuda_library.h"
#include "examples/colocated_rl/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef COLOCATED_RL_KERNELS_FILE
/* The image that nvcc made, included as it is. */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "colocated_rl_kernels_image:\n"
        ".incbin \"" COLOCATED_RL_KERNELS_FILE "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char colocated_rl_kernels_image[] __attribute__((visibility("hidden")));

static const char *built_in_image(void)
{
    return colocated_rl_kernels_image;
}
#else
static const char *built_in_image(void)
{
    return NULL;
}
#endif

/* The kernels of ops.cu, whose names have the prefix colocated_rl_. */
#define KERNELS(X)                                                                                 \
    X(transfer)                                                                                    \
    X(zero)                                                                                        \
    X(add)                                                                                         \
    X(scale)                                                                                       \
    X(embed)                                                                                       \
    X(embed_back)                                                                                  \
    X(norm)                                                                                        \
    X(norm_inverses)                                                                               \
    X(norm_parts)                                                                                  \
    X(norm_weights)                                                                                \
    X(norm_values)                                                                                 \
    X(rotate)                                                                                      \
    X(attend)                                                                                      \
    X(attend_back_queries)                                                                         \
    X(attend_back_slots)                                                                           \
    X(swiglu)                                                                                      \
    X(swiglu_back)                                                                                 \
    X(log_softmax)                                                                                 \
    X(choose)                                                                                      \
    X(spread)                                                                                      \
    X(adam)

enum kernel {
#define X(name) KERNEL_##name,
    KERNELS(X)
#undef X
        KERNELS_COUNT
};

/* Threads per block, limits of a launch and of an image file, length of a GPU's UUID as text. */
enum { THREADS = 128, BLOCKS_MAX = 4096, IMAGE_BYTES_MAX = 64 << 20, UUID_CHARACTERS = 40 };

/* A machine that computes on one GPU. Its own stream keeps it independent of other streams. */
struct cuda_machine {
    struct machine base; /* The base, whose address is the handle. */
    const struct cuda_library *library;
    int device; /* The device's handle in the driver. */
    /* The primary context, retained; NULL until then. The handles below are created in this
     * order. */
    void *context;
    void *stream;
    void *module;
    void *blas;
    void *functions[KERNELS_COUNT]; /* The kernels, by enum kernel. */
    float *staging;       /* Staging buffer for collective calls in host memory (owned). */
    size_t staging_bytes; /* Size of the staging buffer. */
    char failure[160];    /* Text of the first error; "" if no operation has failed. */
};

/* Returns the CUDA machine that a machine is. */
static struct cuda_machine *self(struct machine *machine)
{
    return (struct cuda_machine *)machine;
}

/* ---- errors ----------------------------------------------------------------------------- */

/* Stores the error of `what` if it is the first one. Results after an error are meaningless. */
static void record_cuda_error(struct cuda_machine *cuda, int result, const char *what)
{
    const char *name = NULL;

    if (result == 0 || cuda->failure[0] != '\0') {
        return;
    }
    if (cuda->library->cuGetErrorName(result, &name) != 0 || name == NULL) {
        name = "an error without a name";
    }
    (void)snprintf(cuda->failure, sizeof(cuda->failure), "%s: %d, %s", what, result, name);
}

/* Stores a cuBLAS error if it is the first one. */
static void record_blas_error(struct cuda_machine *cuda, int result, const char *what)
{
    if (result != 0 && cuda->failure[0] == '\0') {
        (void)snprintf(cuda->failure, sizeof(cuda->failure), "%s: status %d of cuBLAS", what,
                       result);
    }
}

/* Returns the first error as TDM_E_DEVICE, or TDM_OK. */
static tdm_status first_error(const struct cuda_machine *cuda)
{
    return cuda->failure[0] == '\0' ? TDM_OK : tdm_fail(TDM_E_DEVICE, "%s", cuda->failure);
}

/* Makes the context current. Functions may be called on any thread, and each thread has a current
 * context of its own. */
static void set_context(struct cuda_machine *cuda)
{
    record_cuda_error(cuda, cuda->library->cuCtxSetCurrent(cuda->context), "cuCtxSetCurrent");
}

/* ---- copying ---------------------------------------------------------------------------- */

/* Waits for the stream and returns the first error. */
static tdm_status cuda_finish(struct machine *machine)
{
    struct cuda_machine *cuda = self(machine);

    set_context(cuda);
    record_cuda_error(cuda, cuda->library->cuStreamSynchronize(cuda->stream),
                      "cuStreamSynchronize");
    return first_error(cuda);
}

/* Copies in either direction and waits. The driver knows from an address which memory it is in. */
static tdm_status cuda_move(struct machine *machine, void *to, const void *from, size_t size_bytes)
{
    struct cuda_machine *cuda = self(machine);

    set_context(cuda);
    if (size_bytes > 0) {
        record_cuda_error(cuda,
                          cuda->library->cuMemcpyAsync((uint64_t)(uintptr_t)to,
                                                       (uint64_t)(uintptr_t)from, size_bytes,
                                                       cuda->stream),
                          "cuMemcpyAsync");
    }
    return cuda_finish(machine);
}

/* Makes the staging buffer at least `count` floats large. */
static tdm_status staging_reserve(struct cuda_machine *cuda, size_t count)
{
    float *staging;

    if (count * sizeof(float) <= cuda->staging_bytes) {
        return TDM_OK;
    }
    staging = realloc(cuda->staging, count * sizeof(float));
    if (staging == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a buffer to exchange %zu floats", count);
    }
    cuda->staging = staging;
    cuda->staging_bytes = count * sizeof(float);
    return TDM_OK;
}

static tdm_status cuda_all_reduce(struct machine *machine, tdm_collective_group *group, float *data,
                                  size_t count)
{
    struct cuda_machine *cuda = self(machine);

    TDM_TRY(staging_reserve(cuda, count));
    TDM_TRY(cuda_move(machine, cuda->staging, data, count * sizeof(float)));
    TDM_TRY(tdm_collective_all_reduce(group, cuda->staging, count, TDM_SUM));
    return cuda_move(machine, data, cuda->staging, count * sizeof(float));
}

static tdm_status cuda_all_gather(struct machine *machine, tdm_collective_group *group,
                                  const float *in, size_t count, float *out)
{
    struct cuda_machine *cuda = self(machine);
    size_t all = count * tdm_collective_ranks_count(group);
    float *own;

    TDM_TRY(staging_reserve(cuda, all));
    own = cuda->staging + count * tdm_collective_rank(group);
    TDM_TRY(cuda_move(machine, own, in, count * sizeof(float)));
    TDM_TRY(tdm_collective_all_gather(group, own, count * sizeof(float), cuda->staging));
    return cuda_move(machine, out, cuda->staging, all * sizeof(float));
}

static tdm_status cuda_reduce_scatter(struct machine *machine, tdm_collective_group *group,
                                      const float *in, size_t count, float *out)
{
    struct cuda_machine *cuda = self(machine);
    size_t all = count * tdm_collective_ranks_count(group);

    TDM_TRY(staging_reserve(cuda, all + count));
    TDM_TRY(cuda_move(machine, cuda->staging, in, all * sizeof(float)));
    TDM_TRY(tdm_collective_reduce_scatter(group, cuda->staging, count, cuda->staging + all));
    return cuda_move(machine, out, cuda->staging + all, count * sizeof(float));
}

/* ---- kernels ---------------------------------------------------------------------------- */

/* Submits one kernel over `items` items with `work` as its argument. */
static void launch(struct machine *machine, enum kernel kernel, const void *work, size_t items)
{
    static const char *const names[KERNELS_COUNT] = {
#define X(name) [KERNEL_##name] = "kernel " #name,
        KERNELS(X)
#undef X
    };
    struct cuda_machine *cuda = self(machine);
    size_t blocks = (items + THREADS - 1) / THREADS;
    void *arguments[1] = {(void *)(uintptr_t)work}; /* The driver only reads the argument. */

    if (items == 0) {
        return;
    }
    set_context(cuda);
    record_cuda_error(
        cuda,
        cuda->library->cuLaunchKernel(cuda->functions[kernel],
                                      (unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX), 1, 1,
                                      THREADS, 1, 1, 0, cuda->stream, arguments, NULL),
        names[kernel]);
}

/* Defines an operation that is one kernel. */
#define OPERATION(name, work_type, items)                                                          \
    static void cuda_##name(struct machine *machine, const struct work_type *work)                 \
    {                                                                                              \
        launch(machine, KERNEL_##name, work, items);                                               \
    }

OPERATION(transfer, transfer, work->count * work->width)
OPERATION(zero, filling, work->count)
OPERATION(add, sum, work->count)
OPERATION(scale, scaling, work->count)
OPERATION(embed, embedding, work->count * work->width)
OPERATION(embed_back, embedding_back, work->width)
OPERATION(norm, norm, work->count * work->heads)
OPERATION(rotate, rotation, work->count * work->heads * (work->width / 2))
OPERATION(attend, attention, work->count * work->heads)
OPERATION(swiglu, swiglu, work->count * work->width)
OPERATION(swiglu_back, swiglu_back, work->count * work->width)
OPERATION(log_softmax, log_softmax, work->count)
OPERATION(choose, choice, work->targets_count)
OPERATION(spread, spreading, work->width)
OPERATION(adam, adam, work->count)

static void cuda_norm_back(struct machine *machine, const struct norm_back *work)
{
    size_t vectors = work->count * work->heads;

    launch(machine, KERNEL_norm_inverses, work, vectors);
    launch(machine, KERNEL_norm_parts, work, norm_parts(work) * work->norm.width);
    launch(machine, KERNEL_norm_weights, work, work->norm.width);
    launch(machine, KERNEL_norm_values, work, vectors);
}

static void cuda_attend_back(struct machine *machine, const struct attention_back *work)
{
    const struct attention *forward = &work->forward;

    launch(machine, KERNEL_attend_back_queries, work, forward->count * forward->heads);
    launch(machine, KERNEL_attend_back_slots, work, forward->count * forward->key_heads);
}

/* ---- cuBLAS ----------------------------------------------------------------------------- */

static tdm_status cuda_squares(struct machine *machine, const float *values, size_t count,
                               double *sum_out)
{
    struct cuda_machine *cuda = self(machine);
    float length = 0.0F;

    set_context(cuda);
    record_blas_error(cuda,
                      cuda->library->cublasSnrm2_v2(cuda->blas, (int)count, values, 1, &length),
                      "cublasSnrm2");
    TDM_TRY(cuda_finish(machine));
    *sum_out = (double)length * (double)length;
    return TDM_OK;
}

/* A product of column-major matrices, as cuBLAS expects them: c[rows × columns] = beta · c + a · b,
 * over `inner`. Each pitch is the distance of the matrix's columns in floats. */
struct gemm {
    int a_form, b_form;
    size_t rows, columns, inner;
    const float *a, *b;
    size_t a_pitch, b_pitch;
    float beta;
    float *c;
};

/* Submits a product to cuBLAS. */
static void multiply(struct machine *machine, const struct gemm *work)
{
    const float alpha = 1.0F;
    struct cuda_machine *cuda = self(machine);

    set_context(cuda);
    record_blas_error(cuda,
                      cuda->library->cublasSgemm_v2(
                          cuda->blas, work->a_form, work->b_form, (int)work->rows,
                          (int)work->columns, (int)work->inner, &alpha, work->a, (int)work->a_pitch,
                          work->b, (int)work->b_pitch, &work->beta, work->c, (int)work->rows),
                      "cublasSgemm");
}

/* The library regards a row-major matrix as its transpose, so that this computes toᵀ. */
static void cuda_linear(struct machine *machine, const struct product *work)
{
    multiply(machine, &(const struct gemm){.a_form = CUBLAS_TRANSPOSE,
                                           .rows = work->outputs,
                                           .columns = work->rows,
                                           .inner = work->inputs,
                                           .a = work->b,
                                           .b = work->a,
                                           .a_pitch = work->inputs,
                                           .b_pitch = work->inputs,
                                           .c = work->to});
}

static void cuda_linear_back_input(struct machine *machine, const struct product *work)
{
    multiply(machine, &(const struct gemm){.rows = work->inputs,
                                           .columns = work->rows,
                                           .inner = work->outputs,
                                           .a = work->b,
                                           .b = work->a,
                                           .a_pitch = work->inputs,
                                           .b_pitch = work->outputs,
                                           .c = work->to});
}

static void cuda_linear_back_weight(struct machine *machine, const struct product *work)
{
    multiply(machine, &(const struct gemm){.b_form = CUBLAS_TRANSPOSE,
                                           .rows = work->inputs,
                                           .columns = work->outputs,
                                           .inner = work->rows,
                                           .a = work->b,
                                           .b = work->a,
                                           .a_pitch = work->inputs,
                                           .b_pitch = work->outputs,
                                           .beta = 1.0F,
                                           .c = work->to});
}

/* ---- opening ---------------------------------------------------------------------------- */

static void cuda_close(struct machine *machine)
{
    struct cuda_machine *cuda = self(machine);
    const struct cuda_library *library = cuda->library;

    if (cuda->context != NULL) {
        (void)library->cuCtxSetCurrent(cuda->context);
    }
    if (cuda->blas != NULL) {
        (void)library->cublasDestroy_v2(cuda->blas);
    }
    if (cuda->module != NULL) {
        (void)library->cuModuleUnload(cuda->module);
    }
    if (cuda->stream != NULL) {
        (void)library->cuStreamDestroy_v2(cuda->stream);
    }
    if (cuda->context != NULL) {
        (void)library->cuDevicePrimaryCtxRelease_v2(cuda->device);
    }
    free(cuda->staging);
    free(cuda);
}

/* Writes a UUID in the form of CUDA_VISIBLE_DEVICES. */
static void write_uuid(const struct cuda_uuid *uuid, char text[UUID_CHARACTERS + 1])
{
    char *at = text + snprintf(text, UUID_CHARACTERS + 1, "GPU-");

    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        at += snprintf(at, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                       uuid->bytes[i]);
    }
}

/* Finds the actor's first GPU. Tandem lists the actor's GPUs, by UUID, in CUDA_VISIBLE_DEVICES. */
static tdm_status find_device(struct cuda_machine *cuda)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;

    record_cuda_error(cuda, cuda->library->cuDeviceGetCount(&count), "cuDeviceGetCount");
    for (int i = 0; i < count; i++) {
        char text[UUID_CHARACTERS + 1];
        struct cuda_uuid uuid = {{0}};

        record_cuda_error(cuda, cuda->library->cuDeviceGet(&cuda->device, i), "cuDeviceGet");
        record_cuda_error(cuda, cuda->library->cuDeviceGetUuid_v2(&uuid, cuda->device),
                          "cuDeviceGetUuid");
        TDM_TRY(first_error(cuda));
        write_uuid(&uuid, text);
        if (visible == NULL || strncmp(visible, "GPU-", 4) != 0 ||
            strncmp(visible, text, strlen(text)) == 0) {
            return TDM_OK;
        }
    }
    TDM_TRY(first_error(cuda));
    return tdm_fail(TDM_E_NOT_FOUND,
                    "none of the %d GPUs is the first one in CUDA_VISIBLE_DEVICES (%s)", count,
                    visible != NULL ? visible : "not set");
}

/* Reads a file and appends a zero byte, which the driver requires after a text image. The caller
 * frees *image_out. */
static tdm_status read_image(const char *path, char **image_out)
{
    FILE *file = fopen(path, "rbe");
    char *image = NULL;
    long bytes = 0;

    if (file == NULL) {
        return tdm_fail(TDM_E_IO, "%s cannot be opened", path);
    }
    if (fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) > 0 && bytes < IMAGE_BYTES_MAX &&
        fseek(file, 0, SEEK_SET) == 0) {
        image = calloc(1, (size_t)bytes + 1);
    }
    if (image != NULL && fread(image, 1, (size_t)bytes, file) != (size_t)bytes) {
        free(image);
        image = NULL;
    }
    (void)fclose(file);
    if (image == NULL) {
        return tdm_fail(TDM_E_IO, "%s: %ld bytes of kernels cannot be read", path, bytes);
    }
    *image_out = image;
    return TDM_OK;
}

/* Loads the module and looks up its kernels. */
static tdm_status load_kernels(struct cuda_machine *cuda)
{
    static const char *const names[KERNELS_COUNT] = {
#define X(name) [KERNEL_##name] = "colocated_rl_" #name,
        KERNELS(X)
#undef X
    };
    const char *path = getenv("COLOCATED_RL_KERNELS");
    const char *built_in = built_in_image();
    char *image = NULL;

    if (path == NULL && built_in == NULL) {
        return tdm_fail(TDM_E_UNSUPPORTED,
                        "no kernels for the GPU: this library was built without nvcc, and "
                        "COLOCATED_RL_KERNELS names no file with them");
    }
    if (path != NULL) {
        TDM_TRY(read_image(path, &image));
    }
    record_cuda_error(
        cuda, cuda->library->cuModuleLoadData(&cuda->module, image != NULL ? image : built_in),
        "cuModuleLoadData");
    free(image);
    for (int i = 0; i < KERNELS_COUNT && cuda->failure[0] == '\0'; i++) {
        record_cuda_error(
            cuda, cuda->library->cuModuleGetFunction(&cuda->functions[i], cuda->module, names[i]),
            names[i]);
    }
    return first_error(cuda);
}

/* Retains the context and creates stream, module and cuBLAS handle. */
static tdm_status cuda_machine_start(struct cuda_machine *cuda)
{
    const struct cuda_library *library;

    TDM_TRY(cuda_library_open(&cuda->library));
    library = cuda->library;
    TDM_TRY(find_device(cuda));
    record_cuda_error(cuda, library->cuDevicePrimaryCtxRetain(&cuda->context, cuda->device),
                      "cuDevicePrimaryCtxRetain");
    TDM_TRY(first_error(cuda));
    set_context(cuda);
    record_cuda_error(cuda, library->cuStreamCreate(&cuda->stream, CUDA_STREAM_NON_BLOCKING),
                      "cuStreamCreate");
    TDM_TRY(first_error(cuda));
    TDM_TRY(load_kernels(cuda));
    record_blas_error(cuda, library->cublasCreate_v2(&cuda->blas), "cublasCreate");
    TDM_TRY(first_error(cuda));
    record_blas_error(cuda, library->cublasSetStream_v2(cuda->blas, cuda->stream),
                      "cublasSetStream");
    record_blas_error(cuda, library->cublasSetMathMode(cuda->blas, CUBLAS_PEDANTIC_MATH),
                      "cublasSetMathMode");
    return first_error(cuda);
}

static const struct ops cuda_ops = {
    .name = "cuda",
    .close = cuda_close,
    .write = cuda_move,
    .read = cuda_move,
    .finish = cuda_finish,
    .all_reduce = cuda_all_reduce,
    .all_gather = cuda_all_gather,
    .reduce_scatter = cuda_reduce_scatter,
    .transfer = cuda_transfer,
    .zero = cuda_zero,
    .add = cuda_add,
    .scale = cuda_scale,
    .squares = cuda_squares,
    .linear = cuda_linear,
    .linear_back_input = cuda_linear_back_input,
    .linear_back_weight = cuda_linear_back_weight,
    .embed = cuda_embed,
    .embed_back = cuda_embed_back,
    .norm = cuda_norm,
    .norm_back = cuda_norm_back,
    .rotate = cuda_rotate,
    .attend = cuda_attend,
    .attend_back = cuda_attend_back,
    .swiglu = cuda_swiglu,
    .swiglu_back = cuda_swiglu_back,
    .log_softmax = cuda_log_softmax,
    .choose = cuda_choose,
    .spread = cuda_spread,
    .adam = cuda_adam,
};

tdm_status machine_open_cuda(struct machine **machine_out)
{
    struct cuda_machine *cuda = calloc(1, sizeof(*cuda));
    tdm_status status;

    if (cuda == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a machine of %zu bytes", sizeof(*cuda));
    }
    cuda->base.ops = &cuda_ops;
    status = cuda_machine_start(cuda);
    if (status != TDM_OK) {
        cuda_close(&cuda->base);
        return status;
    }
    *machine_out = &cuda->base;
    return TDM_OK;
}
