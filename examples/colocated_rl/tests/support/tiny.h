/* tiny.h - a job small enough for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TESTS_TINY_H
#define COLOCATED_RL_TESTS_TINY_H

#include "examples/colocated_rl/settings.h"

#include <tandem/config.h>

/* On which machine the job is: cluster.device of what follows; "host" first. */
void tiny_choose(const char *machine);

/* The settings of tiny.c with `overrides` ("a=b" each, NULL at the end) applied; destroy it. */
tdm_config *tiny_config(const char *const *overrides);

/* The settings of such a config with no overrides; valid until the program ends. */
const struct settings *tiny_settings(void);

/* A folder for this test's files, emptied before each call's return; the same path each time.
 */
const char *tiny_folder(void);

#endif
