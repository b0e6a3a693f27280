/* starving.h - makes the n-th allocation of Tandem fail, for one test program. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_COLOCATE_STARVING_H
#define TDM_TESTS_COLOCATE_STARVING_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The program's own malloc, calloc, realloc, mmap, mremap, memfd_create and fallocate come
 * before the C library's.  While armed, those calls count that libtandem.so makes on the arming
 * thread; the chosen ones fail as they do where there is no memory. */
struct starving {
    bool armed;
    uint64_t count;
    uint64_t nth;  /* fails */
    bool and_rest; /* True if all later allocations fail, too. */
    const char *call;
};

static _Thread_local struct starving starving;

static inline void starving_start(uint64_t nth, bool and_rest)
{
    starving = (struct starving){.armed = true, .nth = nth, .and_rest = and_rest};
}

/* Returns how many calls there were. */
static inline uint64_t starving_stop(void)
{
    starving.armed = false;
    return starving.count;
}

static inline bool starving_refuses(const char *call, const void *caller)
{
    Dl_info about;

    if (!starving.armed || dladdr(caller, &about) == 0 ||
        strstr(about.dli_fname, "libtandem") == NULL) {
        return false;
    }
    starving.count++;
    if (starving.count != starving.nth && (!starving.and_rest || starving.count < starving.nth)) {
        return false;
    }
    starving.call = call;
    errno = ENOMEM;
    return true;
}

#define STARVING_REFUSES(name) starving_refuses(name, __builtin_return_address(0))
/* The name that the linker knows; the C library's own declarations stay as they are. */
#define STANDS_FOR(name) __asm__(name) __attribute__((visibility("default"), noinline))

/* Sanitizers must have the heap to themselves. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STARVES_HEAP = 0 };
#else
enum { STARVES_HEAP = 1 };

void *starving_malloc(size_t size_bytes) STANDS_FOR("malloc");
void *starving_calloc(size_t count, size_t size_bytes) STANDS_FOR("calloc");
void *starving_realloc(void *memory, size_t size_bytes) STANDS_FOR("realloc");

/* The C library's. */
static inline void *next_of(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

void *starving_malloc(size_t size_bytes)
{
    static void *(*next)(size_t);

    if (next == NULL) {
        *(void **)&next = next_of("malloc");
    }
    return STARVING_REFUSES("malloc") ? NULL : next(size_bytes);
}

void *starving_calloc(size_t count, size_t size_bytes)
{
    static void *(*next)(size_t, size_t);

    if (next == NULL) {
        *(void **)&next = next_of("calloc");
    }
    return STARVING_REFUSES("calloc") ? NULL : next(count, size_bytes);
}

void *starving_realloc(void *memory, size_t size_bytes)
{
    static void *(*next)(void *, size_t);

    if (next == NULL) {
        *(void **)&next = next_of("realloc");
    }
    return STARVING_REFUSES("realloc") ? NULL : next(memory, size_bytes);
}
#endif

void *starving_mmap(void *address, size_t size_bytes, int protection, int flags, int fd,
                    off_t offset) STANDS_FOR("mmap64");
void *starving_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *to)
    STANDS_FOR("mremap");
int starving_memfd(const char *name, unsigned flags) STANDS_FOR("memfd_create");
int starving_fallocate(int fd, int mode, off_t offset, off_t size_bytes) STANDS_FOR("fallocate64");

void *starving_mmap(void *address, size_t size_bytes, int protection, int flags, int fd,
                    off_t offset)
{
    return STARVING_REFUSES("mmap") ? MAP_FAILED
                                    : (void *)(uintptr_t)syscall(SYS_mmap, address, size_bytes,
                                                                 protection, flags, fd, offset);
}

/* `to` is garbage, and not read, unless the flags say that there is one. */
void *starving_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *to)
{
    return STARVING_REFUSES("mremap")
               ? MAP_FAILED
               : (void *)(uintptr_t)syscall(SYS_mremap, address, old_bytes, new_bytes, flags, to);
}

int starving_memfd(const char *name, unsigned flags)
{
    return STARVING_REFUSES("memfd_create") ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

int starving_fallocate(int fd, int mode, off_t offset, off_t size_bytes)
{
    return STARVING_REFUSES("fallocate")
               ? -1
               : (int)syscall(SYS_fallocate, fd, mode, offset, size_bytes);
}

#endif
