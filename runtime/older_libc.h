/* older_libc.h - what the C libraries of systems older than Debian 12 lack, back to glibc 2.31. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_OLDER_LIBC_H
#define TDM_RUNTIME_OLDER_LIBC_H

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Number of the system call close_range(2), the same on all architectures; Linux 5.9. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* Kind of the ID of waitid(2) that is a descriptor of a process; Linux 5.4. Where the C library has
 * it, it is P_PIDFD of an enumeration, which the preprocessor does not see. */
#define TDM__WAIT_PIDFD ((idtype_t)3)

/* Seal of fcntl(2): no new mapping may be writable; Linux 5.1. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Advice to madvise(2): fill the pages for writing; Linux 5.14. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Flag of mremap(2): keep the old mapping; Linux 5.7. */
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 32)
/* Returns the description of a signal, such as "Killed"; NULL if there is no such signal. It is
 * safe in signal handlers. */
static inline const char *sigdescr_np(int signal_number)
{
    return signal_number > 0 && signal_number < _NSIG ? sys_siglist[signal_number] : NULL;
}

/* Returns the description of a signal, because glibc has no short names for it. */
static inline const char *sigabbrev_np(int signal_number)
{
    return sigdescr_np(signal_number);
}
#endif

#endif
