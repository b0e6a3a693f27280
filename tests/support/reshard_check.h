/* reshard_check.h - runs a plan over real memory and looks at every element. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_RESHARD_CHECK_H
#define TDM_TESTS_SUPPORT_RESHARD_CHECK_H

#include "colocate/layout/reshard.h"

/* Fills every element of the source with a hash of its tensor, row and column, runs the plan,
 * and fails the test unless each element of the destination was written once, has the right
 * value (converted as a plain reference does it), and the steps' sums are the cost that was
 * stated. */
void reshard_check_run(const struct tdm__model *model, const struct tdm__reshard *reshard);

#endif
