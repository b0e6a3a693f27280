/* coverage_exit.c - part of libtandem in the preset `coverage` only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cmake/coverage_exit.h"

void tdm__coverage_dump(void)
{
    __gcov_dump();
}
