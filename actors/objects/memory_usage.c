/* memory_usage.c - how much shared memory the processes of a node hold, all together. */
/* SPDX-License-Identifier: Apache-2.0 */
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

#define MAGIC UINT64_C(0x31656d656d646e54) /* "Tndmeme1" */

enum { PRESSED_MS = 1000 };

struct slot {
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t spilled_bytes;
};

/* The sums are changed with relaxed atomics: each is a number of its own, and nothing else is
 * read on the strength of it. */
struct usage_file {
    uint64_t magic;
    uint64_t limit_bytes;
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t spilled_bytes;
    _Atomic uint64_t wanted_bytes;
    _Atomic int64_t wanted_until_ms;
    struct slot slots[TDM__MEMORY_USAGE_SLOTS];
};

struct tdm__memory_usage {
    int fd; /* owned: the lock on the slot is this open file's */
    struct usage_file *usage_file;
    uint32_t slot;
};

static uint64_t slot_get(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void slot_add(_Atomic uint64_t *number, uint64_t bytes)
{
    (void)atomic_fetch_add_explicit(number, bytes, memory_order_relaxed);
}

static void slot_subtract(_Atomic uint64_t *number, uint64_t bytes)
{
    (void)atomic_fetch_sub_explicit(number, bytes, memory_order_relaxed);
}

/* ---- the file --------------------------------------------------------------------------- */

static void usage_file_path(const char *directory, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/object-store", directory);
}

static tdm_status usage_file_write(int fd, uint64_t limit_bytes)
{
    const struct usage_file head = {.magic = MAGIC, .limit_bytes = limit_bytes};

    ssize_t written = write(fd, &head, sizeof(head));

    if (written != (ssize_t)sizeof(head)) { /* a part of it: the disk is full */
        return tdm__fail_errno(written < 0 ? errno : ENOSPC,
                               "writing the account of the object store");
    }
    return TDM_OK;
}

tdm_status tdm__memory_usage_create_file(const char *directory, uint64_t limit_bytes)
{
    char path[PATH_MAX];
    tdm_status status;
    int fd;

    usage_file_path(directory, path);
    (void)unlink(path); /* of a daemon that was here before */
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return tdm__fail_errno(errno, "%s", path);
    }
    status = usage_file_write(fd, limit_bytes);
    (void)close(fd);
    return status;
}

/* ---- slots ------------------------------------------------------------------------------ */

static bool lock_slot(int fd, uint32_t slot, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* With its lock: what a dead process had is free. */
static void clear_slot(struct usage_file *usage_file, struct slot *slot)
{
    slot_subtract(&usage_file->used_bytes, atomic_exchange(&slot->used_bytes, 0));
    slot_subtract(&usage_file->spilled_bytes, atomic_exchange(&slot->spilled_bytes, 0));
}

static void slots_reclaim_dead(struct tdm__memory_usage *usage)
{
    for (uint32_t i = 0; i < TDM__MEMORY_USAGE_SLOTS; i++) {
        struct slot *slot = &usage->usage_file->slots[i];

        if (i != usage->slot && slot_get(&slot->used_bytes) + slot_get(&slot->spilled_bytes) > 0 &&
            lock_slot(usage->fd, i, F_WRLCK)) {
            clear_slot(usage->usage_file, slot);
            (void)lock_slot(usage->fd, i, F_UNLCK);
        }
    }
}

static tdm_status slot_take(struct tdm__memory_usage *usage)
{
    for (uint32_t i = 0; i < TDM__MEMORY_USAGE_SLOTS; i++) {
        if (lock_slot(usage->fd, i, F_WRLCK)) {
            usage->slot = i;
            clear_slot(usage->usage_file, &usage->usage_file->slots[i]);
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_LIMIT, "%d processes of this node have large values already",
                     (int)TDM__MEMORY_USAGE_SLOTS);
}

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
        return tdm__fail(TDM_E_PROTOCOL, "%s is no account of an object store", path);
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
        return tdm__fail(TDM_E_NOMEM, "an account of the object store");
    }
    usage_file_path(directory, path);
    status = usage_file_map(usage, path);
    if (status == TDM_OK) {
        status = slot_take(usage);
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
        clear_slot(usage->usage_file, &usage->usage_file->slots[usage->slot]);
        memory_usage_free(usage);
    }
}

/* ---- taking and giving ------------------------------------------------------------------ */

static bool slot_try_take(struct tdm__memory_usage *usage, uint64_t bytes)
{
    struct usage_file *usage_file = usage->usage_file;
    uint64_t used = slot_get(&usage_file->used_bytes);

    do {
        if (used > usage_file->limit_bytes || bytes > usage_file->limit_bytes - used) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&usage_file->used_bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    slot_add(&usage_file->slots[usage->slot].used_bytes, bytes);
    return true;
}

bool tdm__memory_usage_reserve(struct tdm__memory_usage *usage, uint64_t bytes)
{
    if (slot_try_take(usage, bytes)) {
        return true;
    }
    slots_reclaim_dead(usage);
    return slot_try_take(usage, bytes);
}

void tdm__memory_usage_reserve_over_limit(struct tdm__memory_usage *usage, uint64_t bytes)
{
    slot_add(&usage->usage_file->used_bytes, bytes);
    slot_add(&usage->usage_file->slots[usage->slot].used_bytes, bytes);
}

void tdm__memory_usage_release(struct tdm__memory_usage *usage, uint64_t bytes)
{
    TDM_ASSERT(slot_get(&usage->usage_file->slots[usage->slot].used_bytes) >= bytes);
    slot_subtract(&usage->usage_file->slots[usage->slot].used_bytes, bytes);
    slot_subtract(&usage->usage_file->used_bytes, bytes);
}

uint64_t tdm__memory_usage_shortage(const struct tdm__memory_usage *usage, uint64_t bytes)
{
    uint64_t used = slot_get(&usage->usage_file->used_bytes);
    uint64_t limit = usage->usage_file->limit_bytes;

    return used + bytes > limit ? used + bytes - limit : 0;
}

void tdm__memory_usage_add_spilled(struct tdm__memory_usage *usage, int64_t change_bytes)
{
    slot_add(&usage->usage_file->slots[usage->slot].spilled_bytes, (uint64_t)change_bytes);
    slot_add(&usage->usage_file->spilled_bytes, (uint64_t)change_bytes); /* wraps: subtracts */
}

void tdm__memory_usage_read(const struct tdm__memory_usage *usage,
                            struct tdm__memory_usage_totals *sums_out)
{
    *sums_out = (struct tdm__memory_usage_totals){
        .limit_bytes = usage->usage_file->limit_bytes,
        .used_bytes = slot_get(&usage->usage_file->used_bytes),
        .spilled_bytes = slot_get(&usage->usage_file->spilled_bytes)};
}

/* ---- pressure --------------------------------------------------------------------------- */

void tdm__memory_usage_set_pressure(struct tdm__memory_usage *usage, uint64_t bytes)
{
    struct usage_file *usage_file = usage->usage_file;

    atomic_store_explicit(&usage_file->wanted_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&usage_file->wanted_until_ms, tdm__clock_ms() + PRESSED_MS,
                          memory_order_relaxed);
}

uint64_t tdm__memory_usage_pressure(const struct tdm__memory_usage *usage)
{
    const struct usage_file *usage_file = usage->usage_file;

    return tdm__clock_ms() <
                   atomic_load_explicit(&usage_file->wanted_until_ms, memory_order_relaxed)
               ? slot_get(&usage_file->wanted_bytes)
               : 0;
}
