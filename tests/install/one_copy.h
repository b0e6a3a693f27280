/* one_copy.h - what the loaded library gives to the test. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_ONE_COPY_H
#define TDM_TESTS_ONE_COPY_H

#include <tandem/error.h>

/* Fails with a detail of its own. */
TDM_API tdm_status one_copy_fail(void);

#endif
