/* splitmix.h - a hash of two numbers, for reproducible seeds. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SPLITMIX_H
#define TDM_RUNTIME_SPLITMIX_H

#include <stdint.h>

/* Returns the finalizer of SplitMix64 over both numbers.  The same pair always gives the same
 * result, and consecutive numbers give results that look independent. */
static inline uint64_t tdm__splitmix64(uint64_t seed, uint64_t number)
{
    uint64_t mixed = seed + (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

#endif
