/* environment.c - builds the environment variables of a program that is to be started. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/environment.h"

#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of bytes of the setting's name with its "="; 0 if the setting is malformed. */
static size_t name_bytes(const char *setting)
{
    const char *equals = strchr(setting, '=');

    return equals == NULL || equals == setting ? 0 : (size_t)(equals - setting) + 1;
}

/* Returns the place of the setting with the same name, or NULL. */
static char **environment_find(const struct tdm__environment *environment, const char *setting)
{
    for (uint32_t i = 0; i < environment->count; i++) {
        if (strncmp(environment->settings[i], setting, name_bytes(setting)) == 0) {
            return &environment->settings[i];
        }
    }
    return NULL;
}

/* Ensures that one more setting and the final NULL fit into the array. */
static tdm_status environment_reserve(struct tdm__environment *environment)
{
    uint32_t capacity = environment->capacity == 0 ? 64 : 2 * environment->capacity;
    char **settings;

    if (environment->count + 1 < environment->capacity) {
        return TDM_OK;
    }
    settings = realloc(environment->settings, capacity * sizeof(*settings));
    if (settings == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an environment of %u variables", environment->count);
    }
    environment->settings = settings;
    environment->capacity = capacity;
    return TDM_OK;
}

/* Sets one variable. An earlier setting of the same name is replaced if `replaces` is true, and
 * kept otherwise. */
static tdm_status environment_put(struct tdm__environment *environment, const char *setting,
                                  bool replaces)
{
    char **place;
    char *copy;

    if (name_bytes(setting) == 0) {
        return tdm__fail(TDM_E_INVAL, "\"%s\" is no setting: expected NAME=value", setting);
    }
    place = environment_find(environment, setting);
    if (place != NULL && !replaces) {
        return TDM_OK;
    }
    TDM_TRY(environment_reserve(environment));
    copy = strdup(setting);
    if (copy == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a variable of %zu bytes", strlen(setting));
    }
    if (place != NULL) {
        place = environment_find(environment, setting); /* The array may have moved. */
        free(*place);
        *place = copy;
        return TDM_OK;
    }
    environment->settings[environment->count++] = copy;
    environment->settings[environment->count] = NULL;
    return TDM_OK;
}

tdm_status tdm__environment_set(struct tdm__environment *environment, const char *setting)
{
    return environment_put(environment, setting, true);
}

tdm_status tdm__environment_set_default(struct tdm__environment *environment, const char *setting)
{
    return environment_put(environment, setting, false);
}

tdm_status tdm__environment_set_all(struct tdm__environment *environment, char *const *settings)
{
    for (; *settings != NULL; settings++) {
        if (name_bytes(*settings) > 0) {
            TDM_TRY(tdm__environment_set(environment, *settings));
        }
    }
    return TDM_OK;
}

void tdm__environment_clear(struct tdm__environment *environment)
{
    for (uint32_t i = 0; i < environment->count; i++) {
        free(environment->settings[i]);
    }
    free(environment->settings);
    *environment = (struct tdm__environment){.settings = NULL};
}
