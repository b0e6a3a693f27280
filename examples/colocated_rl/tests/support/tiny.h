/* tiny.h - a job small enough for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TESTS_TINY_H
#define COLOCATED_RL_TESTS_TINY_H

#include "examples/colocated_rl/settings.h"

#include <tandem/config.h>

/* Chooses the machine of later configurations (cluster.device); it is "host" at first. */
void tiny_choose(const char *machine);

/* Returns the settings of tiny.c with `overrides` ("a=b" each, NULL at the end). The caller
 * destroys them. */
tdm_config *tiny_config(const char *const *overrides);

/* Returns the settings without overrides; valid until the program ends. */
const struct settings *tiny_settings(void);

/* Empties and returns a folder for this test's files; the path is the same each time. */
const char *tiny_folder(void);

#endif
