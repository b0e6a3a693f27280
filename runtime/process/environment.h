/* environment.h - builds the environment variables of a program that is to be started. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_ENVIRONMENT_H
#define TDM_RUNTIME_PROCESS_ENVIRONMENT_H

#include <stdint.h>
#include <tandem/error.h>

/* An environment that is being built. A zeroed structure is empty. */
struct tdm__environment {
    /* Settings, "NAME=value" each, owned; the array is owned and ends with NULL. NULL if the
     * environment is empty. */
    char **settings;
    uint32_t count;    /* Number of settings. */
    uint32_t capacity; /* Number of elements of `settings` that are allocated. */
};

/* Sets one variable: `setting` is "NAME=value", which is copied and replaces an earlier setting of
 * the same name. Returns TDM_E_INVAL if the setting has no name or no "=". */
tdm_status tdm__environment_set(struct tdm__environment *environment, const char *setting);
/* Sets one variable like tdm__environment_set() unless the environment sets it already. */
tdm_status tdm__environment_set_default(struct tdm__environment *environment, const char *setting);
/* Sets all variables of an array of settings that ends with NULL. Entries without a name or "=" are
 * left out. */
tdm_status tdm__environment_set_all(struct tdm__environment *environment, char *const *settings);
/* Frees the settings; the environment is empty afterwards. */
void tdm__environment_clear(struct tdm__environment *environment);

#endif
