/* account.c - how much shared memory the processes of a node hold, all together. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/account.h"

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
struct sheet {
    uint64_t magic;
    uint64_t limit_bytes;
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t spilled_bytes;
    _Atomic uint64_t wanted_bytes;
    _Atomic int64_t wanted_until_ms;
    struct slot slots[TDM__ACCOUNT_SLOTS];
};

struct tdm__account {
    int fd; /* owned: the lock on the slot is this open file's */
    struct sheet *sheet;
    uint32_t slot;
};

static uint64_t get(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void add(_Atomic uint64_t *number, uint64_t bytes)
{
    (void)atomic_fetch_add_explicit(number, bytes, memory_order_relaxed);
}

static void subtract(_Atomic uint64_t *number, uint64_t bytes)
{
    (void)atomic_fetch_sub_explicit(number, bytes, memory_order_relaxed);
}

/* ---- the file --------------------------------------------------------------------------- */

static void path_in(const char *directory, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/object-store", directory);
}

static tdm_status write_sheet(int fd, uint64_t limit_bytes)
{
    const struct sheet head = {.magic = MAGIC, .limit_bytes = limit_bytes};

    ssize_t written = write(fd, &head, sizeof(head));

    if (written != (ssize_t)sizeof(head)) { /* a part of it: the disk is full */
        return tdm__fail_errno(written < 0 ? errno : ENOSPC,
                               "writing the account of the object store");
    }
    return TDM_OK;
}

tdm_status tdm__account_make(const char *directory, uint64_t limit_bytes)
{
    char path[PATH_MAX];
    tdm_status status;
    int fd;

    path_in(directory, path);
    (void)unlink(path); /* of a daemon that was here before */
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return tdm__fail_errno(errno, "%s", path);
    }
    status = write_sheet(fd, limit_bytes);
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
static void clear_slot(struct sheet *sheet, struct slot *slot)
{
    subtract(&sheet->used_bytes, atomic_exchange(&slot->used_bytes, 0));
    subtract(&sheet->spilled_bytes, atomic_exchange(&slot->spilled_bytes, 0));
}

static void bury_the_dead(struct tdm__account *account)
{
    for (uint32_t i = 0; i < TDM__ACCOUNT_SLOTS; i++) {
        struct slot *slot = &account->sheet->slots[i];

        if (i != account->slot && get(&slot->used_bytes) + get(&slot->spilled_bytes) > 0 &&
            lock_slot(account->fd, i, F_WRLCK)) {
            clear_slot(account->sheet, slot);
            (void)lock_slot(account->fd, i, F_UNLCK);
        }
    }
}

static tdm_status take_slot(struct tdm__account *account)
{
    for (uint32_t i = 0; i < TDM__ACCOUNT_SLOTS; i++) {
        if (lock_slot(account->fd, i, F_WRLCK)) {
            account->slot = i;
            clear_slot(account->sheet, &account->sheet->slots[i]);
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_LIMIT, "%d processes of this node have large values already",
                     (int)TDM__ACCOUNT_SLOTS);
}

static tdm_status map_sheet(struct tdm__account *account, const char *path)
{
    struct stat stat;
    void *address;

    account->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (account->fd < 0) {
        return errno == ENOENT ? tdm__fail(TDM_E_NOT_FOUND, "%s", path)
                               : tdm__fail_errno(errno, "%s", path);
    }
    if (fstat(account->fd, &stat) != 0 || stat.st_size != (off_t)sizeof(struct sheet)) {
        return tdm__fail(TDM_E_PROTOCOL, "%s is no account of an object store", path);
    }
    address =
        mmap(NULL, sizeof(struct sheet), PROT_READ | PROT_WRITE, MAP_SHARED, account->fd, 0);
    if (address == MAP_FAILED) {
        return tdm__fail_errno(errno, "mmap: %s", path);
    }
    account->sheet = address;
    return account->sheet->magic == MAGIC
               ? TDM_OK
               : tdm__fail(TDM_E_PROTOCOL, "%s is of another version", path);
}

static void account_free(struct tdm__account *account)
{
    if (account->sheet != NULL) {
        (void)munmap(account->sheet, sizeof(*account->sheet));
    }
    if (account->fd >= 0) {
        (void)close(account->fd);
    }
    free(account);
}

tdm_status tdm__account_open(const char *directory, struct tdm__account **account_out)
{
    struct tdm__account *account = calloc(1, sizeof(*account));
    char path[PATH_MAX];
    tdm_status status;

    if (account == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an account of the object store");
    }
    path_in(directory, path);
    status = map_sheet(account, path);
    if (status == TDM_OK) {
        status = take_slot(account);
    }
    if (status != TDM_OK) {
        account_free(account);
        return status;
    }
    *account_out = account;
    return TDM_OK;
}

void tdm__account_close(struct tdm__account *account)
{
    if (account != NULL) {
        clear_slot(account->sheet, &account->sheet->slots[account->slot]);
        account_free(account);
    }
}

/* ---- taking and giving ------------------------------------------------------------------ */

static bool try_take(struct tdm__account *account, uint64_t bytes)
{
    struct sheet *sheet = account->sheet;
    uint64_t used = get(&sheet->used_bytes);

    do {
        if (used > sheet->limit_bytes || bytes > sheet->limit_bytes - used) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &sheet->used_bytes, &used, used + bytes, memory_order_relaxed, memory_order_relaxed));
    add(&sheet->slots[account->slot].used_bytes, bytes);
    return true;
}

bool tdm__account_take(struct tdm__account *account, uint64_t bytes)
{
    if (try_take(account, bytes)) {
        return true;
    }
    bury_the_dead(account);
    return try_take(account, bytes);
}

void tdm__account_take_anyway(struct tdm__account *account, uint64_t bytes)
{
    add(&account->sheet->used_bytes, bytes);
    add(&account->sheet->slots[account->slot].used_bytes, bytes);
}

void tdm__account_give(struct tdm__account *account, uint64_t bytes)
{
    TDM_ASSERT(get(&account->sheet->slots[account->slot].used_bytes) >= bytes);
    subtract(&account->sheet->slots[account->slot].used_bytes, bytes);
    subtract(&account->sheet->used_bytes, bytes);
}

uint64_t tdm__account_missing(const struct tdm__account *account, uint64_t bytes)
{
    uint64_t used = get(&account->sheet->used_bytes);
    uint64_t limit = account->sheet->limit_bytes;

    return used + bytes > limit ? used + bytes - limit : 0;
}

void tdm__account_spilled(struct tdm__account *account, int64_t change_bytes)
{
    add(&account->sheet->slots[account->slot].spilled_bytes, (uint64_t)change_bytes);
    add(&account->sheet->spilled_bytes, (uint64_t)change_bytes); /* wraps: subtracts */
}

void tdm__account_read(const struct tdm__account *account, struct tdm__account_sums *sums_out)
{
    *sums_out =
        (struct tdm__account_sums){.limit_bytes = account->sheet->limit_bytes,
                                   .used_bytes = get(&account->sheet->used_bytes),
                                   .spilled_bytes = get(&account->sheet->spilled_bytes)};
}

/* ---- pressure --------------------------------------------------------------------------- */

void tdm__account_press(struct tdm__account *account, uint64_t bytes)
{
    struct sheet *sheet = account->sheet;

    atomic_store_explicit(&sheet->wanted_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&sheet->wanted_until_ms, tdm__clock_ms() + PRESSED_MS,
                          memory_order_relaxed);
}

uint64_t tdm__account_pressed(const struct tdm__account *account)
{
    const struct sheet *sheet = account->sheet;

    return tdm__clock_ms() < atomic_load_explicit(&sheet->wanted_until_ms, memory_order_relaxed)
               ? get(&sheet->wanted_bytes)
               : 0;
}
