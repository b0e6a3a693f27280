/* cuda_ipc_test.c - memory that others allocated on a GPU is shared the ipc_kind the driver allows.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/cuda_device.h"
#include "colocate/device/cuda/cuda_ipc.h"
#include "colocate/device/cuda/driver.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tandem/region.h>
#include <unistd.h>

#include <cmocka.h>

#define UNIT   ((size_t)2 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

/* Two processes with a socket between them; the driver does not survive a fork, so each opens
 * its own. */
struct note {
    struct tdm__cuda_ipc_memory shared;
    char word[8];
};

static void send_note(int socket, const struct note *note)
{
    struct iovec piece = {(void *)(uintptr_t)note, sizeof(*note)};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
                            .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS}};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    if (note->shared.fd >= 0) {
        memcpy(CMSG_DATA(&control.header), &note->shared.fd, sizeof(int));
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
    }
    assert_int_equal(sendmsg(socket, &message, 0), sizeof(*note));
}

static bool receive_note(int socket, struct note *note)
{
    struct iovec piece = {note, sizeof(*note)};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    const struct cmsghdr *header;

    if (recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof(*note)) {
        return false;
    }
    header = CMSG_FIRSTHDR(&message);
    if (header != NULL) {
        memcpy(&note->shared.fd, CMSG_DATA(header), sizeof(int));
    }
    return true;
}

/* The second process: returns 0 if it found the word at the shared address and wrote another. */
static int read_word(int socket)
{
    struct tdm__cuda_ipc_mapping opened;
    struct cuda_gpu *gpu;
    struct tdm__device *device;
    struct note note;
    char word[8];
    int result = 1;

    if (!receive_note(socket, &note)) {
        return 2;
    }
    gpu = cuda_gpu_open(64 * UNIT, false);
    device = gpu->devices[0];
    if (tdm__cuda_ipc_open(device, &note.shared, &opened) == TDM_OK) {
        if (device->ops->copy(device, word, opened.address, sizeof(word)) == TDM_OK &&
            device->ops->copy_flush(device) == TDM_OK &&
            memcmp(word, note.word, sizeof(word)) == 0 &&
            device->ops->copy(device, opened.address, "written", sizeof(word)) == TDM_OK) {
            result = 0;
        }
        tdm__cuda_ipc_close(device, &opened);
    } else {
        (void)fprintf(stderr, "%s\n", tdm_error_detail());
    }
    cuda_gpu_close(gpu);
    return result;
}

/* Writes a word at `address`, lets another process read it there and write back. */
static void round_trip(struct tdm__device *device, char *address, int socket,
                       enum tdm__cuda_ipc_kind ipc_kind)
{
    struct note note = {.word = "a word."};
    char word[8];

    TRY(device->ops->copy(device, address, note.word, sizeof(note.word)));
    TRY(device->ops->copy_flush(device));
    TRY(tdm__cuda_ipc_export(device, address, sizeof(word), &note.shared));
    assert_int_equal(note.shared.ipc_kind, ipc_kind);
    send_note(socket, &note);
    if (note.shared.fd >= 0) {
        (void)close(note.shared.fd);
    }
    assert_int_equal(read(socket, word, 1), 0); /* The other process has ended. */
    TRY(device->ops->copy(device, word, address, sizeof(word)));
    TRY(device->ops->copy_flush(device));
    assert_string_equal(word, "written");
}

static int start_reader(pid_t *pid_out)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    *pid_out = fork();
    assert_true(*pid_out >= 0);
    if (*pid_out == 0) {
        (void)close(ends[0]);
        _exit(read_word(ends[1]));
    }
    (void)close(ends[1]);
    return ends[0];
}

static void assert_succeeded(pid_t pid)
{
    int wait_status;

    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_int_equal(wait_status, 0);
}

/* Runs in a separate process in which nothing has opened the driver before. */
static void share_ordinary_memory(int socket)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    const struct tdm__cuda_driver *driver;
    uint64_t address;
    TDM__CUDA_SCOPE(scope);

    TRY(tdm__cuda_enter((struct tdm__cuda_device *)gpu->devices[0], &scope));
    TRY(tdm__cuda_driver(&driver));
    assert_int_equal(driver->cuMemAlloc_v2(&address, 3 * UNIT), CU_SUCCESS);
    round_trip(gpu->devices[0], (char *)(uintptr_t)address + UNIT + 4096, socket,
               TDM__CUDA_IPC_HANDLE);
    assert_int_equal(driver->cuMemFree_v2(address), CU_SUCCESS);
    tdm__cuda_scope_leave(&scope);
    cuda_gpu_close(gpu);
}

/* The driver cuts small allocations from a block, which they share. */
static void share_small_memory(int socket)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    struct tdm__cuda_ipc_memory shared;
    const struct tdm__cuda_driver *driver;
    uint64_t addresses[2];
    TDM__CUDA_SCOPE(scope);

    TRY(tdm__cuda_enter((struct tdm__cuda_device *)gpu->devices[0], &scope));
    TRY(tdm__cuda_driver(&driver));
    assert_int_equal(driver->cuMemAlloc_v2(&addresses[0], 5000), CU_SUCCESS);
    assert_int_equal(driver->cuMemAlloc_v2(&addresses[1], 5000), CU_SUCCESS);
    TRY(tdm__cuda_ipc_export(gpu->devices[0], (void *)(uintptr_t)addresses[1], 5000, &shared));
    if (!cuda_gpu_is_real()) {
        assert_int_equal(shared.offset_bytes, 5120);
    }
    round_trip(gpu->devices[0], (char *)(uintptr_t)addresses[1], socket, TDM__CUDA_IPC_HANDLE);
    assert_int_equal(driver->cuMemFree_v2(addresses[0]), CU_SUCCESS);
    assert_int_equal(driver->cuMemFree_v2(addresses[1]), CU_SUCCESS);
    tdm__cuda_scope_leave(&scope);
    cuda_gpu_close(gpu);
}

static void share_exportable_memory(int socket)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    struct tdm__device *device = gpu->devices[0];
    const size_t size_bytes = 3 * UNIT;
    struct tdm__block *block;
    void *address;

    TRY(device->ops->reserve(device, size_bytes, &address));
    TRY(device->ops->create(device, "weights", &size_bytes, 1, &block));
    TRY(device->ops->map(device, address, block, TDM__READ_WRITE));
    round_trip(device, (char *)address + UNIT + 4096, socket, TDM__CUDA_IPC_DESCRIPTOR);
    TRY(device->ops->unmap(device, address, size_bytes));
    device->ops->release(device, &block, 1);
    device->ops->unreserve(device, address, size_bytes);
    cuda_gpu_close(gpu);
}

static void run_pair(void (*share)(int socket))
{
    pid_t reader;
    int socket = start_reader(&reader);
    pid_t sharer = fork();

    assert_true(sharer >= 0);
    if (sharer == 0) {
        share(socket);
        _exit(0);
    }
    (void)close(socket);
    assert_succeeded(sharer);
    assert_succeeded(reader);
}

static void ordinary_memory_travels_by_handle(void **state)
{
    (void)state;
    run_pair(share_ordinary_memory);
}

static void small_memory_travels_with_its_offset(void **state)
{
    (void)state;
    run_pair(share_small_memory);
}

static void exportable_memory_travels_by_descriptor(void **state)
{
    (void)state;
    run_pair(share_exportable_memory);
}

/* Allocates memory as torch_memory_saver does. */
static void memory_that_cannot_be_exported_is_refused_with_the_remedy(void **state)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    struct tdm__device *device = gpu->devices[0];
    struct cu_allocation allocation = {.type = CU_ALLOCATION_PINNED,
                                       .location = {CU_LOCATION_DEVICE, 0}};
    const struct cu_access access = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_ipc_memory shared;
    uint64_t block;
    void *address;

    (void)state;
    TRY(tdm__cuda_driver(&driver));
    TRY(device->ops->reserve(device, UNIT, &address));
    assert_int_equal(driver->cuMemCreate(&block, UNIT, &allocation, 0), CU_SUCCESS);
    assert_int_equal(driver->cuMemMap((uint64_t)(uintptr_t)address, UNIT, 0, block, 0), CU_SUCCESS);
    /* Without access rights the driver does not find the address at all. */
    assert_int_equal(driver->cuMemSetAccess((uint64_t)(uintptr_t)address, UNIT, &access, 1),
                     CU_SUCCESS);
    assert_int_equal(tdm__cuda_ipc_export(device, address, UNIT, &shared), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "POSIX_FILE_DESCRIPTOR"));
    assert_int_equal(driver->cuMemUnmap((uint64_t)(uintptr_t)address, UNIT), CU_SUCCESS);
    assert_int_equal(driver->cuMemRelease(block), CU_SUCCESS);
    device->ops->unreserve(device, address, UNIT);
    cuda_gpu_close(gpu);
}

/* Maps two blocks one after the other, as PyTorch's expandable segments do. */
static void memory_of_two_allocations_is_refused_with_the_remedy(void **state)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    struct tdm__device *device = gpu->devices[0];
    const size_t sizes_bytes[2] = {UNIT, UNIT};
    struct tdm__cuda_ipc_memory shared;
    struct tdm__block *blocks[2];
    char *address;

    (void)state;
    TRY(device->ops->reserve(device, 2 * UNIT, (void **)&address));
    TRY(device->ops->create(device, "segment", sizes_bytes, 2, blocks));
    TRY(device->ops->map(device, address, blocks[0], TDM__READ_WRITE));
    TRY(device->ops->map(device, address + UNIT, blocks[1], TDM__READ_WRITE));
    assert_int_equal(tdm__cuda_ipc_export(device, address + UNIT / 2, UNIT, &shared),
                     TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "2097152 bytes at"));
    assert_non_null(strstr(tdm_error_detail(), "ends after 1048576 of them"));
    assert_non_null(strstr(tdm_error_detail(), "expandable_segments:False"));
    assert_int_equal(tdm__cuda_ipc_export(device, address, 0, &shared), TDM_E_INVAL);
    TRY(tdm__cuda_ipc_export(device, address + UNIT, UNIT, &shared));
    (void)close(shared.fd);
    TRY(device->ops->unmap(device, address, 2 * UNIT));
    device->ops->release(device, blocks, 2);
    device->ops->unreserve(device, address, 2 * UNIT);
    cuda_gpu_close(gpu);
}

/* Expects that PyTorch's export of these bytes is refused with words in the error. */
static void assert_no_handle(const void *address, tdm_status status, const char *words)
{
    assert_int_equal(tdm_gpu_memory_check_ipc(address, UNIT), status);
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

/* PyTorch exports by cudaIpc, which takes memory of cudaMalloc only. */
static void only_memory_of_cuda_malloc_has_a_handle_for_pytorch(void **state)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    struct tdm__device *device = gpu->devices[0];
    struct cu_allocation allocation = {.type = CU_ALLOCATION_PINNED,
                                       .location = {CU_LOCATION_DEVICE, 0}};
    const struct cu_access access = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};
    const size_t size_bytes = UNIT;
    const struct tdm__cuda_driver *driver;
    struct tdm__block *block;
    char *address;
    uint64_t plain;
    uint64_t saved;
    char host[8];
    TDM__CUDA_SCOPE(scope);

    (void)state;
    TRY(tdm__cuda_enter((struct tdm__cuda_device *)device, &scope));
    TRY(tdm__cuda_driver(&driver));
    assert_int_equal(driver->cuMemAlloc_v2(&plain, 2 * UNIT), CU_SUCCESS);
    TRY(tdm_gpu_memory_check_ipc((char *)(uintptr_t)plain + 4096, UNIT));
    assert_no_handle((char *)(uintptr_t)plain + UNIT + 4096, TDM_E_UNSUPPORTED,
                     "ends after 2093056 of them");
    assert_int_equal(driver->cuMemFree_v2(plain), CU_SUCCESS);
    TRY(device->ops->reserve(device, 2 * UNIT, (void **)&address));
    TRY(device->ops->create(device, "weights", &size_bytes, 1, &block));
    TRY(device->ops->map(device, address, block, TDM__READ_WRITE));
    assert_no_handle(address, TDM_E_UNSUPPORTED, "like Tandem's regions: cudaIpc cannot export");
    assert_int_equal(driver->cuMemCreate(&saved, UNIT, &allocation, 0), CU_SUCCESS);
    assert_int_equal(driver->cuMemMap((uint64_t)(uintptr_t)address + UNIT, UNIT, 0, saved, 0),
                     CU_SUCCESS);
    assert_int_equal(driver->cuMemSetAccess((uint64_t)(uintptr_t)address + UNIT, UNIT, &access, 1),
                     CU_SUCCESS);
    assert_no_handle(address + UNIT, TDM_E_UNSUPPORTED, "torch_memory_saver's");
    assert_no_handle(host, TDM_E_INVAL, "not memory of a GPU");
    assert_no_handle(NULL, TDM_E_INVAL, "address");
    assert_int_equal(driver->cuMemUnmap((uint64_t)(uintptr_t)address + UNIT, UNIT), CU_SUCCESS);
    assert_int_equal(driver->cuMemRelease(saved), CU_SUCCESS);
    TRY(device->ops->unmap(device, address, UNIT));
    device->ops->release(device, &block, 1);
    device->ops->unreserve(device, address, 2 * UNIT);
    tdm__cuda_scope_leave(&scope);
    cuda_gpu_close(gpu);
}

static void memory_of_another_gpu_is_refused(void **state)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    const struct tdm__cuda_ipc_memory shared = {.uuid = "GPU-of-somebody-else",
                                                .allocation_bytes = UNIT};
    struct tdm__cuda_ipc_mapping opened;

    (void)state;
    assert_int_equal(tdm__cuda_ipc_open(gpu->devices[0], &shared, &opened), TDM_E_DEVICE);
    assert_non_null(strstr(tdm_error_detail(), "GPU-of-somebody-else"));
    cuda_gpu_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordinary_memory_travels_by_handle),
        cmocka_unit_test(small_memory_travels_with_its_offset),
        cmocka_unit_test(exportable_memory_travels_by_descriptor),
        cmocka_unit_test(memory_that_cannot_be_exported_is_refused_with_the_remedy),
        cmocka_unit_test(memory_of_two_allocations_is_refused_with_the_remedy),
        cmocka_unit_test(only_memory_of_cuda_malloc_has_a_handle_for_pytorch),
        cmocka_unit_test(memory_of_another_gpu_is_refused),
    };
    int failed;

    cuda_gpu_choose(64 * UNIT);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
