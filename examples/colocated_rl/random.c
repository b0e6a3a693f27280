/* random.c - random numbers that are a pure function of a key and a counter. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/random.h"

#include <math.h>

/* Mixes the bits of x: the last stage of the generator splitmix64. */
static uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t key, uint64_t counter)
{
    return scramble(scramble(key) ^ scramble(~counter));
}

double random_uniform(uint64_t key, uint64_t counter)
{
    return (double)(random_bits(key, counter) >> 11) * 0x1p-53;
}

double random_normal(uint64_t key, uint64_t counter)
{
    double radius = sqrt(-2.0 * log(1.0 - random_uniform(key, 2 * counter)));

    return radius * cos(2.0 * M_PI * random_uniform(key, 2 * counter + 1));
}
