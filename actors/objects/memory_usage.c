/* memory_usage.c - the bytes of shared memory that all processes of a node use, in one file. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns the mapping of the file `object-store` in the node's directory (struct usage_file) and
 * this process's slot in it. The totals are the sums over all slots. Processes change them with
 * atomic additions; no lock and no message is needed.
 *
 * The lock on byte N of the file (an open-file-description lock) says that slot N has an owner.
 * The kernel releases it when the process and all children that it forked have ended or executed
 * another program. Such a child has the segments of its parent mapped, so their memory is in use
 * until then, and a lock of the process alone would release it too early. A process that finds the
 * store full locks slots that still have bytes; if that succeeds, their owner has ended and their
 * bytes are subtracted. Callers hold the loop's lock, but other processes change the file at any
 * time. */

#include "actors/objects/memory_usage.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* "Tndmeme1" in memory; the digit is the version of the file. */
#define MAGIC UINT64_C(0x31656d656d646e54)

/* Milliseconds after which a request for memory expires. */
enum { PRESSURE_VALID_MS = 1000 };

/* The share of one process in the totals. */
struct slot {
    _Atomic uint64_t used_bytes;    /* Bytes of its segments. */
    _Atomic uint64_t spilled_bytes; /* Bytes of its values on disk. */
};

/* The contents of the usage file. The numbers are changed with relaxed atomics: each is
 * independent, and no other memory is read because of it. */
struct usage_file {
    uint64_t magic;                 /* MAGIC. */
    uint64_t limit_bytes;           /* Most bytes of shared memory on this node; never changes. */
    _Atomic uint64_t used_bytes;    /* Bytes of the segments of all processes. */
    _Atomic uint64_t spilled_bytes; /* Bytes of the spilled values of all processes. */
    _Atomic uint64_t wanted_bytes;  /* Bytes that a process waits for. */
    /* Milliseconds on CLOCK_MONOTONIC until which `wanted_bytes` is valid. */
    _Atomic int64_t wanted_until_ms;
    /* One slot for each process; free if its byte of the file is not locked. */
    struct slot slots[TDM__MEMORY_USAGE_SLOTS];
};

/* One process's access to the usage file; guarded by the loop's lock, except for the mapped
 * numbers. */
struct tdm__memory_usage {
    int fd; /* Descriptor of the file, owned. The lock on the slot belongs to this open file. */
    struct usage_file *usage_file; /* Mapping of the file, owned. */
    uint32_t slot;                 /* Index of this process's slot. */
};

/* Reads one of the numbers. */
static uint64_t usage_number_get(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

/* Adds to one of the numbers. */
static void usage_number_add(_Atomic uint64_t *number, uint64_t bytes)
{
    (void)atomic_fetch_add_explicit(number, bytes, memory_order_relaxed);
}

/* Subtracts from one of the numbers. */
static void usage_number_subtract(_Atomic uint64_t *number, uint64_t bytes)
{
    (void)atomic_fetch_sub_explicit(number, bytes, memory_order_relaxed);
}

/* ---- the file --------------------------------------------------------------------------- */

/* Writes the path of the usage file. */
static void usage_file_path(const char *directory, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/object-store", directory);
}

/* Writes an empty usage file with this limit. */
static tdm_status usage_file_write(int fd, uint64_t limit_bytes)
{
    const struct usage_file head = {.magic = MAGIC, .limit_bytes = limit_bytes};

    ssize_t written = write(fd, &head, sizeof(head));

    if (written != (ssize_t)sizeof(head)) { /* A short write means that the disk is full. */
        return tdm__fail_errno(written < 0 ? errno : ENOSPC,
                               "writing the usage file of the object store");
    }
    return TDM_OK;
}

tdm_status tdm__memory_usage_create_file(const char *directory, uint64_t limit_bytes)
{
    char path[PATH_MAX];
    tdm_status status;
    int fd;

    usage_file_path(directory, path);
    (void)unlink(path); /* Removes the file of an earlier daemon. */
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return tdm__fail_errno(errno, "%s", path);
    }
    status = usage_file_write(fd, limit_bytes);
    (void)close(fd);
    return status;
}

/* ---- slots ------------------------------------------------------------------------------ */

/* Acquires (F_WRLCK) or releases (F_UNLCK) the lock on a slot. Returns false if another process
 * holds it. */
static bool slot_lock(int fd, uint32_t slot, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* Subtracts the share of a slot from the totals and clears it. The caller holds the slot's lock. */
static void slot_clear(struct usage_file *usage_file, struct slot *slot)
{
    usage_number_subtract(&usage_file->used_bytes, atomic_exchange(&slot->used_bytes, 0));
    usage_number_subtract(&usage_file->spilled_bytes, atomic_exchange(&slot->spilled_bytes, 0));
}

/* Subtracts the shares of all processes that have ended. */
static void slots_reclaim_dead(struct tdm__memory_usage *usage)
{
    for (uint32_t i = 0; i < TDM__MEMORY_USAGE_SLOTS; i++) {
        struct slot *slot = &usage->usage_file->slots[i];

        if (i != usage->slot &&
            usage_number_get(&slot->used_bytes) + usage_number_get(&slot->spilled_bytes) > 0 &&
            slot_lock(usage->fd, i, F_WRLCK)) {
            slot_clear(usage->usage_file, slot);
            (void)slot_lock(usage->fd, i, F_UNLCK);
        }
    }
}

/* Acquires the first free slot for this process. */
static tdm_status slot_acquire(struct tdm__memory_usage *usage)
{
    for (uint32_t i = 0; i < TDM__MEMORY_USAGE_SLOTS; i++) {
        if (slot_lock(usage->fd, i, F_WRLCK)) {
            usage->slot = i;
            slot_clear(usage->usage_file, &usage->usage_file->slots[i]);
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_LIMIT, "%d processes of this node have large values already",
                     (int)TDM__MEMORY_USAGE_SLOTS);
}

/* Opens, checks and maps the usage file. */
static tdm_status usage_file_map(struct tdm__memory_usage *usage, const char *path)
{
    struct stat stat;
    void *address;

    usage->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (usage->fd < 0) {
        return errno == ENOENT ? tdm__fail(TDM_E_NOT_FOUND, "%s", path)
                               : tdm__fail_errno(errno, "%s", path);
    }
    if (fstat(usage->fd, &stat) != 0 || stat.st_size != (off_t)sizeof(struct usage_file)) {
        return tdm__fail(TDM_E_PROTOCOL, "%s is not the usage file of an object store", path);
    }
    address =
        mmap(NULL, sizeof(struct usage_file), PROT_READ | PROT_WRITE, MAP_SHARED, usage->fd, 0);
    if (address == MAP_FAILED) {
        return tdm__fail_errno(errno, "mmap: %s", path);
    }
    usage->usage_file = address;
    return usage->usage_file->magic == MAGIC
               ? TDM_OK
               : tdm__fail(TDM_E_PROTOCOL, "%s is of another version", path);
}

/* Unmaps and closes the file, which releases the slot's lock. */
static void memory_usage_free(struct tdm__memory_usage *usage)
{
    if (usage->usage_file != NULL) {
        (void)munmap(usage->usage_file, sizeof(*usage->usage_file));
    }
    if (usage->fd >= 0) {
        (void)close(usage->fd);
    }
    free(usage);
}

tdm_status tdm__memory_usage_open(const char *directory, struct tdm__memory_usage **usage_out)
{
    struct tdm__memory_usage *usage = calloc(1, sizeof(*usage));
    char path[PATH_MAX];
    tdm_status status;

    if (usage == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the usage file of the object store");
    }
    usage_file_path(directory, path);
    status = usage_file_map(usage, path);
    if (status == TDM_OK) {
        status = slot_acquire(usage);
    }
    if (status != TDM_OK) {
        memory_usage_free(usage);
        return status;
    }
    *usage_out = usage;
    return TDM_OK;
}

void tdm__memory_usage_close(struct tdm__memory_usage *usage)
{
    if (usage != NULL) {
        slot_clear(usage->usage_file, &usage->usage_file->slots[usage->slot]);
        memory_usage_free(usage);
    }
}

/* ---- reserving and releasing ---------------------------------------------------------------- */

/* Adds `bytes` to the total and to this process's slot, unless the total would exceed the limit. */
static bool slot_try_reserve(struct tdm__memory_usage *usage, uint64_t bytes)
{
    struct usage_file *usage_file = usage->usage_file;
    uint64_t used = usage_number_get(&usage_file->used_bytes);

    do {
        if (used > usage_file->limit_bytes || bytes > usage_file->limit_bytes - used) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&usage_file->used_bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    usage_number_add(&usage_file->slots[usage->slot].used_bytes, bytes);
    return true;
}

bool tdm__memory_usage_reserve(struct tdm__memory_usage *usage, uint64_t bytes)
{
    if (slot_try_reserve(usage, bytes)) {
        return true;
    }
    slots_reclaim_dead(usage);
    return slot_try_reserve(usage, bytes);
}

void tdm__memory_usage_reserve_over_limit(struct tdm__memory_usage *usage, uint64_t bytes)
{
    usage_number_add(&usage->usage_file->used_bytes, bytes);
    usage_number_add(&usage->usage_file->slots[usage->slot].used_bytes, bytes);
}

void tdm__memory_usage_release(struct tdm__memory_usage *usage, uint64_t bytes)
{
    TDM_ASSERT(usage_number_get(&usage->usage_file->slots[usage->slot].used_bytes) >= bytes);
    usage_number_subtract(&usage->usage_file->slots[usage->slot].used_bytes, bytes);
    usage_number_subtract(&usage->usage_file->used_bytes, bytes);
}

uint64_t tdm__memory_usage_shortage(const struct tdm__memory_usage *usage, uint64_t bytes)
{
    uint64_t used = usage_number_get(&usage->usage_file->used_bytes);
    uint64_t limit = usage->usage_file->limit_bytes;

    return used + bytes > limit ? used + bytes - limit : 0;
}

void tdm__memory_usage_add_spilled(struct tdm__memory_usage *usage, int64_t change_bytes)
{
    usage_number_add(&usage->usage_file->slots[usage->slot].spilled_bytes, (uint64_t)change_bytes);
    /* Adding a negative number wraps around and so subtracts. */
    usage_number_add(&usage->usage_file->spilled_bytes, (uint64_t)change_bytes);
}

void tdm__memory_usage_read(const struct tdm__memory_usage *usage,
                            struct tdm__memory_usage_totals *sums_out)
{
    *sums_out = (struct tdm__memory_usage_totals){
        .limit_bytes = usage->usage_file->limit_bytes,
        .used_bytes = usage_number_get(&usage->usage_file->used_bytes),
        .spilled_bytes = usage_number_get(&usage->usage_file->spilled_bytes)};
}

/* ---- pressure --------------------------------------------------------------------------- */

void tdm__memory_usage_set_pressure(struct tdm__memory_usage *usage, uint64_t bytes)
{
    struct usage_file *usage_file = usage->usage_file;

    atomic_store_explicit(&usage_file->wanted_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&usage_file->wanted_until_ms, tdm__clock_ms() + PRESSURE_VALID_MS,
                          memory_order_relaxed);
}

uint64_t tdm__memory_usage_pressure(const struct tdm__memory_usage *usage)
{
    const struct usage_file *usage_file = usage->usage_file;

    return tdm__clock_ms() <
                   atomic_load_explicit(&usage_file->wanted_until_ms, memory_order_relaxed)
               ? usage_number_get(&usage_file->wanted_bytes)
               : 0;
}
