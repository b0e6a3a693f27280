/* starving.h - for one test program: the n-th allocation that Tandem makes fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_COLOCATE_STARVING_H
#define TDM_TESTS_COLOCATE_STARVING_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
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
    bool and_rest; /* and all later ones */
    const char *call;
};

static _Thread_local struct starving starving;

static inline void starve(uint64_t nth, bool and_rest)
{
    starving = (struct starving){.armed = true, .nth = nth, .and_rest = and_rest};
}

/* Returns how many calls there were. */
static inline uint64_t feed(void)
{
    starving.armed = false;
    return starving.count;
}

static inline bool is_refused(const char *call, const void *caller)
{
    Dl_info about;

    if (!starving.armed || dladdr(caller, &about) == 0 ||
        strstr(about.dli_fname, "libtandem") == NULL) {
        return false;
    }
    starving.count++;
    if (starving.count != starving.nth &&
        (!starving.and_rest || starving.count < starving.nth)) {
        return false;
    }
    starving.call = call;
    errno = ENOMEM;
    return true;
}

#define IS_REFUSED() is_refused(__func__, __builtin_return_address(0))
#define OVERRIDES    __attribute__((visibility("default"), noinline))

/* The C library's. */
#define NEXT(name)                                                                             \
    static __typeof__(name) *next;                                                             \
    if (next == NULL) {                                                                        \
        *(void **)&next = dlsym(RTLD_NEXT, #name);                                             \
    }

/* Sanitizers must have the heap to themselves. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STARVES_HEAP = 0 };
#else
enum { STARVES_HEAP = 1 };

OVERRIDES void *malloc(size_t size_bytes)
{
    NEXT(malloc)
    return IS_REFUSED() ? NULL : next(size_bytes);
}

OVERRIDES void *calloc(size_t count, size_t size_bytes)
{
    NEXT(calloc)
    return IS_REFUSED() ? NULL : next(count, size_bytes);
}

OVERRIDES void *realloc(void *memory, size_t size_bytes)
{
    NEXT(realloc)
    return IS_REFUSED() ? NULL : next(memory, size_bytes);
}

#endif

OVERRIDES void *mmap(void *address, size_t size_bytes, int protection, int flags, int fd,
                     off_t offset)
{
    if (IS_REFUSED()) {
        return MAP_FAILED;
    }
    return (void *)(uintptr_t)syscall(SYS_mmap, address, size_bytes, protection, flags, fd,
                                      offset);
}

OVERRIDES void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...)
{
    va_list arguments;
    void *to = NULL;

    if (IS_REFUSED()) {
        return MAP_FAILED;
    }
    va_start(arguments, flags);
    if ((flags & MREMAP_FIXED) != 0) {
        to = va_arg(arguments, void *);
    }
    va_end(arguments);
    return (void *)(uintptr_t)syscall(SYS_mremap, address, old_bytes, new_bytes, flags, to);
}

OVERRIDES int memfd_create(const char *name, unsigned flags)
{
    return IS_REFUSED() ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

OVERRIDES int fallocate(int fd, int mode, off_t offset, off_t size_bytes)
{
    return IS_REFUSED() ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, size_bytes);
}

#endif
