/* coverage_exit.h - lets processes that end by _exit() write their coverage counters first. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CMAKE_COVERAGE_EXIT_H
#define TDM_CMAKE_COVERAGE_EXIT_H

/* With the preset `coverage` the compiler includes this header at the start of every source. gcov
 * writes counters at exit() and before fork and exec, but not at _exit(), by which workers,
 * supervisors and reapers end. _exit() is therefore replaced by a function that writes them. Each
 * program and each shared library has counters of its own. */

#include <unistd.h>

/* Part of gcov's library: writes the counters of the program or shared library that calls it. */
void __gcov_dump(void);

/* Writes the counters of libtandem. NULL in a program without libtandem. */
__attribute__((weak)) void tdm__coverage_dump(void);

/* Writes the counters of libtandem and of the calling program or library, and calls _exit(). */
_Noreturn static inline void tdm__coverage_exit(int code)
{
    if (tdm__coverage_dump != 0) {
        tdm__coverage_dump();
    }
    __gcov_dump();
    _exit(code);
}

#define _exit(code) tdm__coverage_exit(code)

#endif
