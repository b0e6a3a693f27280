/* layout_pair_check.h - runs the plan between two layouts over real memory and looks at every
 * element. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_LAYOUT_PAIR_CHECK_H
#define TDM_TESTS_SUPPORT_LAYOUT_PAIR_CHECK_H

#include "tests/support/layout_pair.h"

/* Fills every element of the trainers with a hash of its tensor, row and column, runs the plan, and
 * fails the test unless each byte of each engine rank's slices was written once and no other byte,
 * each element has the right value (converted as a plain reference does it), and the sums of the
 * copies are the cost that was stated. */
void layout_pair_check(const struct layout_pair *pair);

#endif
