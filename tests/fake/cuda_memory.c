/* cuda_memory.c - the fake library for the CUDA driver: physical memory, addresses, handles. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A handle is the address of one of these. */
struct fake_memory {
    struct fake_memory *next;
    int fd;
    size_t bytes;
    unsigned handles;
    unsigned mappings;
    bool exportable;
    bool is_own; /* This process has created it. */
};

enum range_kind { RESERVED, VMM, LEGACY, OPENED };

/* A small allocation of cuMemAlloc, in a block of FAKE_UNIT bytes that it shares with others. */
struct piece {
    struct piece *next; /* The next one at higher addresses. */
    size_t offset;
    size_t bytes;
};

enum { PIECE_ALIGNMENT = 512 };

/* RESERVED ranges contain VMM ones; a LEGACY or OPENED one stands alone. */
struct range {
    struct range *next;
    uint64_t address;
    size_t bytes;
    enum range_kind kind;
    int access;
    unsigned opened;
    struct fake_memory *memory;
    bool has_pieces;      /* A block of small allocations. */
    struct piece *pieces; /* Owned list of them. */
    char file[FAKE_PATH_BYTES + 32];
};

/* Memory of cuMemHostAlloc, the only host memory that a kernel may use. */
struct host_memory {
    struct host_memory *next;
    void *address;
    size_t bytes;
};

static struct host_memory *host_memories;
static struct fake_memory *memories;
static struct range *ranges;

unsigned fake_cuda_resources_count(void)
{
    unsigned count = 0;

    for (const struct range *range = ranges; range != NULL; range = range->next) {
        count++;
    }
    for (const struct fake_memory *memory = memories; memory != NULL; memory = memory->next) {
        count += memory->handles;
    }
    return count;
}

/* ---- physical memory -------------------------------------------------------------------- */

static struct fake_memory *add_memory(int fd, size_t bytes, bool exportable, bool is_own)
{
    struct fake_memory *memory = calloc(1, sizeof(*memory));

    if (memory == NULL) {
        abort();
    }
    *memory = (struct fake_memory){.next = memories,
                                   .fd = fd,
                                   .bytes = bytes,
                                   .handles = 1,
                                   .exportable = exportable,
                                   .is_own = is_own};
    memories = memory;
    return memory;
}

static struct fake_memory *find_memory(uint64_t handle)
{
    struct fake_memory *memory = memories;

    while (memory != NULL && (uint64_t)(uintptr_t)memory != handle) {
        memory = memory->next;
    }
    return memory;
}

static void drop_if_unused(struct fake_memory *memory)
{
    struct fake_memory **link = &memories;

    if (memory->handles > 0 || memory->mappings > 0) {
        return;
    }
    while (*link != memory) {
        link = &(*link)->next;
    }
    *link = memory->next;
    if (memory->is_own) {
        fake_give_memory(memory->fd);
    } else {
        (void)close(memory->fd);
    }
    free(memory);
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    const char *path;
    int lock;

    ENTER();
    path = fake_path(fake_device());
    if (path == NULL) {
        return CU_INVALID_CONTEXT;
    }
    lock = fake_lock_device(path);
    *free_bytes = fake_capacity() - fake_count_used(path);
    *total_bytes = fake_capacity();
    (void)close(lock);
    return CU_SUCCESS;
}

int cuMemCreate(uint64_t *handle, size_t bytes, const struct cu_allocation *allocation,
                unsigned long long flags)
{
    char name[FAKE_PATH_BYTES + 32];
    const char *path;
    int fd;

    ENTER();
    path = fake_path(allocation->location.id);
    if (path == NULL || flags != 0 || bytes == 0 || bytes % FAKE_UNIT != 0 ||
        allocation->type != CU_ALLOCATION_PINNED ||
        allocation->location.type != CU_LOCATION_DEVICE) {
        return CU_INVALID_VALUE;
    }
    fd = fake_make_file(path, bytes, name, sizeof(name));
    if (fd < 0) {
        return CU_OUT_OF_MEMORY;
    }
    *handle = (uint64_t)(uintptr_t)add_memory(
        fd, bytes, (allocation->handle_types & CU_HANDLE_POSIX_FD) != 0, true);
    return CU_SUCCESS;
}

int cuMemRelease(uint64_t handle)
{
    struct fake_memory *memory;

    ENTER();
    memory = find_memory(handle);
    if (memory == NULL || memory->handles == 0) {
        return CU_INVALID_VALUE;
    }
    memory->handles--;
    drop_if_unused(memory);
    return CU_SUCCESS;
}

int cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type,
                                 unsigned long long flags)
{
    struct fake_memory *memory;
    int fd;

    ENTER();
    memory = find_memory(handle);
    if (memory == NULL || flags != 0 || type != CU_HANDLE_POSIX_FD || !memory->exportable) {
        return CU_INVALID_VALUE;
    }
    fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) {
        return CU_OUT_OF_MEMORY;
    }
    *(int *)shareable = fd;
    return CU_SUCCESS;
}

int cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int type)
{
    struct stat status;
    int fd = (int)(intptr_t)shareable;

    ENTER();
    if (type != CU_HANDLE_POSIX_FD || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_size == 0 || status.st_size % FAKE_UNIT != 0) {
        return CU_INVALID_VALUE;
    }
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) {
        return CU_OUT_OF_MEMORY;
    }
    *handle = (uint64_t)(uintptr_t)add_memory(fd, (size_t)status.st_size, true, false);
    return CU_SUCCESS;
}

/* ---- addresses -------------------------------------------------------------------------- */

/* Aligned addresses without access; they hold `fd` open (-1: none). */
static uint64_t make_addresses(size_t bytes, int fd)
{
    char *start = mmap(NULL, bytes + FAKE_UNIT, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (start == MAP_FAILED) {
        return 0;
    }
    before = (FAKE_UNIT - (uintptr_t)start % FAKE_UNIT) % FAKE_UNIT;
    if (before > 0) {
        (void)munmap(start, before);
    }
    (void)munmap(start + before + bytes, FAKE_UNIT - before);
    if (fd >= 0 &&
        mmap(start + before, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        return 0;
    }
    (void)madvise(start + before, bytes, MADV_DONTFORK);
    return (uint64_t)(uintptr_t)(start + before);
}

static struct range *add_range(uint64_t address, size_t bytes, enum range_kind kind)
{
    struct range *range = calloc(1, sizeof(*range));

    if (range == NULL) {
        abort();
    }
    range->next = ranges;
    range->address = address;
    range->bytes = bytes;
    range->kind = kind;
    ranges = range;
    return range;
}

static void remove_range(struct range *range)
{
    struct range **link = &ranges;

    while (*link != range) {
        link = &(*link)->next;
    }
    *link = range->next;
    free(range);
}

/* The range with memory (or, if `reserved`, the reservation) around an address. */
static struct range *find_range(uint64_t address, bool reserved)
{
    struct range *range = ranges;

    while (range != NULL &&
           !((range->kind == RESERVED) == reserved && address - range->address < range->bytes)) {
        range = range->next;
    }
    return range;
}

/* Any range with memory that begins in these addresses. */
static struct range *find_mapped_in(uint64_t address, size_t bytes)
{
    struct range *range = ranges;

    while (range != NULL && (range->kind == RESERVED || range->address - address >= bytes)) {
        range = range->next;
    }
    return range;
}

int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted,
                        unsigned long long flags)
{
    uint64_t start;

    ENTER();
    (void)wanted;
    if (bytes == 0 || bytes % FAKE_UNIT != 0 || alignment > FAKE_UNIT || flags != 0) {
        return CU_INVALID_VALUE;
    }
    start = make_addresses(bytes, -1);
    if (start == 0) {
        return CU_OUT_OF_MEMORY;
    }
    (void)add_range(start, bytes, RESERVED);
    *address = start;
    return CU_SUCCESS;
}

int cuMemAddressFree(uint64_t address, size_t bytes)
{
    struct range *range;

    ENTER();
    range = find_range(address, true);
    if (range == NULL || range->address != address || range->bytes != bytes ||
        find_mapped_in(address, bytes) != NULL) {
        return CU_INVALID_VALUE;
    }
    (void)munmap((void *)(uintptr_t)address, bytes);
    remove_range(range);
    return CU_SUCCESS;
}

int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
             unsigned long long flags)
{
    const struct range *reservation;
    struct fake_memory *memory;
    struct range *range;

    ENTER();
    reservation = find_range(address, true);
    memory = find_memory(handle);
    if (reservation == NULL || memory == NULL || flags != 0 || offset != 0 ||
        bytes != memory->bytes || address % FAKE_UNIT != 0 ||
        bytes > reservation->bytes - (size_t)(address - reservation->address) ||
        find_range(address, false) != NULL || find_mapped_in(address, bytes) != NULL) {
        return CU_INVALID_VALUE;
    }
    if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->fd, 0) ==
        MAP_FAILED) {
        return CU_OUT_OF_MEMORY;
    }
    (void)madvise((void *)(uintptr_t)address, bytes, MADV_DONTFORK);
    range = add_range(address, bytes, VMM);
    range->memory = memory;
    memory->mappings++;
    return CU_SUCCESS;
}

int cuMemUnmap(uint64_t address, size_t bytes)
{
    struct range *range;

    ENTER();
    range = find_range(address, false);
    if (range == NULL || range->kind != VMM || range->address != address || range->bytes != bytes) {
        return CU_INVALID_VALUE;
    }
    fake_note_unmapping(address, bytes);
    (void)mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    range->memory->mappings--;
    drop_if_unused(range->memory);
    remove_range(range);
    return CU_SUCCESS;
}

int cuMemSetAccess(uint64_t address, size_t bytes, const struct cu_access *access, size_t count)
{
    uint64_t at = address;

    ENTER();
    if (count != 1 || bytes == 0) {
        return CU_INVALID_VALUE;
    }
    if (access->flags == CU_ACCESS_READ && getenv("FAKE_CUDA_REFUSE_READ_ONLY") != NULL) {
        return CU_NOT_SUPPORTED;
    }
    while (at - address < bytes) {
        const struct range *range = find_range(at, false);

        if (range == NULL || range->kind != VMM || range->address != at) {
            return CU_INVALID_VALUE;
        }
        at += range->bytes;
    }
    if (at != address + bytes) {
        return CU_INVALID_VALUE;
    }
    for (at = address; at != address + bytes;) {
        struct range *range = find_range(at, false);

        range->access = access->flags;
        at += range->bytes;
    }
    return fake_memory_open(false);
}

int cuMemRetainAllocationHandle(uint64_t *handle, void *address)
{
    const struct range *range;

    ENTER();
    range = find_range((uint64_t)(uintptr_t)address, false);
    if (range == NULL || range->kind != VMM) {
        return CU_INVALID_VALUE;
    }
    range->memory->handles++;
    *handle = (uint64_t)(uintptr_t)range->memory;
    return CU_SUCCESS;
}

/* ---- memory with addresses, and its handles --------------------------------------------- */

static struct range *add_mapped(int fd, size_t bytes, enum range_kind kind, const char *file)
{
    uint64_t address = make_addresses(bytes, fd);
    struct range *range;

    if (address == 0) {
        (void)close(fd);
        return NULL;
    }
    range = add_range(address, bytes, kind);
    range->memory = add_memory(fd, bytes, false, kind != OPENED);
    range->memory->handles = 0;
    range->memory->mappings = 1;
    range->access = CU_ACCESS_READ_WRITE;
    (void)snprintf(range->file, sizeof(range->file), "%s", file);
    return range;
}

static void remove_mapped(struct range *range)
{
    (void)munmap((void *)(uintptr_t)range->address, range->bytes);
    range->memory->mappings--;
    drop_if_unused(range->memory);
    remove_range(range);
}

/* Allocates whole units, the memory of one file. NULL if the device is full. */
static struct range *allocate_units(const char *path, size_t bytes)
{
    size_t rounded = (bytes + FAKE_UNIT - 1) / FAKE_UNIT * FAKE_UNIT;
    char name[FAKE_PATH_BYTES + 32];
    int fd = fake_make_file(path, rounded, name, sizeof(name));

    return fd >= 0 ? add_mapped(fd, rounded, LEGACY, name) : NULL;
}

/* Cuts a piece from the first gap of a block that is large enough. False if there is none. */
static bool cut_piece(struct range *block, size_t bytes, uint64_t *address_out)
{
    struct piece **link = &block->pieces;
    size_t offset = 0;
    struct piece *piece;

    while (*link != NULL && (*link)->offset - offset < bytes) {
        offset = (*link)->offset + (*link)->bytes;
        link = &(*link)->next;
    }
    if (block->bytes - offset < bytes) {
        return false;
    }
    piece = malloc(sizeof(*piece));
    if (piece == NULL) {
        abort();
    }
    *piece = (struct piece){*link, offset, bytes};
    *link = piece;
    *address_out = block->address + offset;
    return true;
}

/* Allocates less than a unit from a block of the device, or from a new one. */
static int allocate_piece(const char *path, size_t bytes, uint64_t *address_out)
{
    size_t rounded = (bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
    struct range *block;

    for (block = ranges; block != NULL; block = block->next) {
        if (block->has_pieces && strncmp(block->file, path, strlen(path)) == 0 &&
            cut_piece(block, rounded, address_out)) {
            return CU_SUCCESS;
        }
    }
    block = allocate_units(path, FAKE_UNIT);
    if (block == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    block->has_pieces = true;
    return cut_piece(block, rounded, address_out) ? CU_SUCCESS : CU_OUT_OF_MEMORY;
}

/* Frees the piece at the address, and the block with its last piece. */
static int free_piece(struct range *block, uint64_t address)
{
    struct piece **link = &block->pieces;
    struct piece *piece;

    while (*link != NULL && block->address + (*link)->offset != address) {
        link = &(*link)->next;
    }
    piece = *link;
    if (piece == NULL) {
        return CU_INVALID_VALUE;
    }
    *link = piece->next;
    free(piece);
    if (block->pieces == NULL) {
        remove_mapped(block);
    }
    return CU_SUCCESS;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    const struct range *range;
    const char *path;

    ENTER();
    path = fake_path(fake_device());
    if (path == NULL) {
        return CU_INVALID_CONTEXT;
    }
    if (bytes == 0) {
        return CU_INVALID_VALUE;
    }
    if (bytes < FAKE_UNIT) {
        return allocate_piece(path, bytes, address);
    }
    range = allocate_units(path, bytes);
    if (range == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    *address = range->address;
    return CU_SUCCESS;
}

int cuMemFree_v2(uint64_t address)
{
    struct range *range;

    ENTER();
    range = find_range(address, false);
    if (range == NULL || range->kind != LEGACY) {
        return CU_INVALID_VALUE;
    }
    if (range->has_pieces) {
        return free_piece(range, address);
    }
    if (range->address != address) {
        return CU_INVALID_VALUE;
    }
    remove_mapped(range);
    return CU_SUCCESS;
}

/* Memory that is not portable is pinned for one context only, which nothing of Tandem's wants. */
int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    struct host_memory *memory;

    ENTER();
    if (fake_device() < 0) {
        return CU_INVALID_CONTEXT;
    }
    if (flags != CU_HOST_ALLOC_PORTABLE) {
        return CU_INVALID_VALUE;
    }
    memory = malloc(sizeof(*memory));
    *address = NULL;
    if (memory == NULL || posix_memalign(address, 4096, bytes) != 0) {
        free(memory);
        return CU_OUT_OF_MEMORY;
    }
    *memory = (struct host_memory){host_memories, *address, bytes};
    host_memories = memory;
    return CU_SUCCESS;
}

bool fake_kernel_may_use(const void *address)
{
    for (const struct host_memory *memory = host_memories; memory != NULL; memory = memory->next) {
        if ((uintptr_t)address - (uintptr_t)memory->address < memory->bytes) {
            return true;
        }
    }
    return find_range((uint64_t)(uintptr_t)address, false) != NULL;
}

int cuMemFreeHost(void *address)
{
    struct host_memory **link = &host_memories;
    struct host_memory *memory;
    int result;

    ENTER();
    while (*link != NULL && (*link)->address != address) {
        link = &(*link)->next;
    }
    memory = *link;
    if (memory == NULL) {
        return CU_INVALID_VALUE;
    }
    result = fake_run_all();
    *link = memory->next;
    free(memory->address);
    free(memory);
    return result;
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t address)
{
    const struct range *range;

    ENTER();
    range = find_range(address, false);
    if (range == NULL) {
        return CU_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_POINTER_MEMORY_TYPE:
        *(unsigned *)value = CU_MEMORY_IS_DEVICE;
        return CU_SUCCESS;
    case CU_POINTER_LEGACY_IPC_CAPABLE:
        *(unsigned *)value = range->kind == LEGACY;
        return CU_SUCCESS;
    case CU_POINTER_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)value =
            range->kind == VMM && range->memory->exportable ? CU_HANDLE_POSIX_FD : 0;
        return CU_SUCCESS;
    default:
        return CU_INVALID_VALUE;
    }
}

int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address)
{
    const struct range *range;

    ENTER();
    range = find_range(address, false);
    if (range == NULL) {
        return CU_NOT_FOUND;
    }
    *base = range->address;
    *bytes = range->bytes;
    return CU_SUCCESS;
}

int cuIpcGetMemHandle(struct cu_ipc_handle *handle, uint64_t address)
{
    const struct range *range;
    pid_t pid = getpid();

    ENTER();
    range = find_range(address, false);
    if (range == NULL || range->kind != LEGACY) {
        return CU_INVALID_VALUE;
    }
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &pid, sizeof(pid));
    (void)snprintf(handle->bytes + sizeof(pid), sizeof(handle->bytes) - sizeof(pid), "%s",
                   strrchr(range->file, '/'));
    return CU_SUCCESS;
}

int cuIpcOpenMemHandle_v2(uint64_t *address, struct cu_ipc_handle handle, unsigned flags)
{
    char file[FAKE_PATH_BYTES + 32];
    struct range *range;
    struct stat status;
    pid_t pid;
    int fd;

    ENTER();
    (void)flags;
    memcpy(&pid, handle.bytes, sizeof(pid));
    if (fake_device() < 0 || pid == getpid()) {
        return CU_INVALID_CONTEXT;
    }
    (void)snprintf(file, sizeof(file), "%s%.40s", fake_path(fake_device()),
                   handle.bytes + sizeof(pid));
    for (range = ranges; range != NULL; range = range->next) {
        if (range->kind == OPENED && strcmp(range->file, file) == 0) {
            range->opened++;
            *address = range->address;
            return CU_SUCCESS;
        }
    }
    fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0 || flock(fd, LOCK_SH) != 0) {
        return CU_INVALID_VALUE;
    }
    range = add_mapped(fd, (size_t)status.st_size, OPENED, file);
    if (range == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    range->opened = 1;
    *address = range->address;
    return CU_SUCCESS;
}

int cuIpcCloseMemHandle(uint64_t address)
{
    struct range *range;

    ENTER();
    range = find_range(address, false);
    if (range == NULL || range->kind != OPENED || range->address != address) {
        return CU_INVALID_VALUE;
    }
    range->opened--;
    if (range->opened == 0) {
        remove_mapped(range);
    }
    return CU_SUCCESS;
}

/* ---- copies ----------------------------------------------------------------------------- */

enum { BOUNCE_BYTES = 1 << 20 };

/* How many bytes at `address` are of one kind: in one range, or (range NULL) host memory. */
static int find_allocation(uint64_t address, size_t bytes, struct range **range_out,
                           size_t *run_out)
{
    struct range *range = find_range(address, false);

    *range_out = range;
    *run_out = bytes;
    if (range == NULL) {
        return find_range(address, true) != NULL ? CU_ILLEGAL_ADDRESS : CU_SUCCESS;
    }
    if (*run_out > range->bytes - (size_t)(address - range->address)) {
        *run_out = range->bytes - (size_t)(address - range->address);
    }
    return range->access == 0 ? CU_ILLEGAL_ADDRESS : CU_SUCCESS;
}

static int copy_bytes(const struct range *range, bool write, uint64_t address, void *host,
                      size_t bytes)
{
    off_t offset = (off_t)(address - range->address);
    ssize_t moved = write ? pwrite(range->memory->fd, host, bytes, offset)
                          : pread(range->memory->fd, host, bytes, offset);

    return moved == (ssize_t)bytes ? CU_SUCCESS : CU_ILLEGAL_ADDRESS;
}

/* At most BOUNCE_BYTES, within one range on either side. */
static int copy_piece(uint64_t to, uint64_t from, size_t bytes, size_t *copied_out)
{
    static char bounce[BOUNCE_BYTES];
    struct range *target;
    struct range *source;
    size_t to_run;
    size_t from_run;
    int result = find_allocation(to, bytes, &target, &to_run);

    if (result == CU_SUCCESS) {
        result = find_allocation(from, to_run, &source, &from_run);
    }
    if (result != CU_SUCCESS || (target != NULL && target->access != CU_ACCESS_READ_WRITE)) {
        return CU_ILLEGAL_ADDRESS;
    }
    *copied_out = from_run;
    if (source != NULL && target != NULL) {
        *copied_out = from_run < BOUNCE_BYTES ? from_run : BOUNCE_BYTES;
        result = copy_bytes(source, false, from, bounce, *copied_out);
        return result == CU_SUCCESS ? copy_bytes(target, true, to, bounce, *copied_out) : result;
    }
    if (source != NULL) {
        return copy_bytes(source, false, from, (void *)(uintptr_t)to, from_run);
    }
    if (target != NULL) {
        return copy_bytes(target, true, to, (void *)(uintptr_t)from, from_run);
    }
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, from_run);
    return CU_SUCCESS;
}

int fake_copy(uint64_t to, uint64_t from, size_t bytes)
{
    while (bytes > 0) {
        size_t copied;
        int result = copy_piece(to, from, bytes, &copied);

        if (result != CU_SUCCESS) {
            return result;
        }
        to += copied;
        from += copied;
        bytes -= copied;
    }
    return CU_SUCCESS;
}

/* ---- kernels ---------------------------------------------------------------------------- */

int fake_memory_open(bool open)
{
    for (const struct range *range = ranges; range != NULL; range = range->next) {
        int wanted = range->access == CU_ACCESS_READ_WRITE ? PROT_READ | PROT_WRITE
                     : range->access == CU_ACCESS_READ     ? PROT_READ
                                                           : PROT_NONE;

        if (range->kind != RESERVED &&
            mprotect((void *)(uintptr_t)range->address, range->bytes,
                     open || fake_is_touchable() ? wanted : PROT_NONE) != 0) {
            return CU_INVALID_VALUE;
        }
    }
    return CU_SUCCESS;
}
