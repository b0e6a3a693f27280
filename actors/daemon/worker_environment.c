/* worker_environment.c - the environment variables and the arguments of a worker's process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_environment.h"

#include "actors/common/worker_bootstrap.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Most settings of a worker's environment; further ones are dropped. */
enum { ENVIRONMENT_MAX = 4096 };

/* True if the settings `setting` and `entry`, "NAME=value", have the same name. */
static bool is_same_variable(const char *setting, const char *entry)
{
    return strncmp(setting, entry, strcspn(entry, "=") + 1) == 0;
}

/* True if the daemon's setting `entry` is replaced in the worker, or added when it begins. */
static bool is_variable_replaced(const char *entry, const struct tdm__actor_spec *spec,
                                 const char *devices)
{
    bool replaced = is_same_variable(TDM__WORKER_VARIABLE "=", entry) ||
                    (devices != NULL && is_same_variable(devices, entry));

    for (uint32_t i = 0; i < spec->environment.count && !replaced; i++) {
        replaced = is_same_variable(spec->environment.items[i], entry);
    }
    return replaced;
}

/* True if `environment` sets the variable whose name begins `setting`. */
static bool environment_has_variable(char **environment, const char *setting)
{
    for (char **entry = environment; *entry != NULL; entry++) {
        if (is_same_variable(setting, *entry)) {
            return true;
        }
    }
    return false;
}

/* Appends a copy of `setting`, and increments `*count`. Does nothing if the environment is full. */
static tdm_status environment_append(char **environment, uint32_t *count, const char *setting)
{
    if (*count == ENVIRONMENT_MAX) {
        return TDM_OK;
    }
    environment[*count] = strdup(setting);
    if (environment[*count] == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a worker's environment");
    }
    (*count)++;
    return TDM_OK;
}

/* Appends OMP_NUM_THREADS unless the environment sets it: as many threads as CPUs of the actor,
 * and at least one. Without it, numeric libraries start one thread for each CPU of the machine in
 * every actor. */
static tdm_status environment_append_threads(char **environment, uint32_t *count,
                                             const struct tdm__actor_spec *spec)
{
    int64_t cpus = spec->placement.wanted.cpu / TDM__RESOURCE_ONE;
    char setting[48];

    (void)snprintf(setting, sizeof(setting), "OMP_NUM_THREADS=%lld",
                   (long long)(cpus < 1 ? 1 : cpus));
    return environment_has_variable(environment, setting)
               ? TDM_OK
               : environment_append(environment, count, setting);
}

/* Fills an empty environment. */
static tdm_status environment_fill(char **environment, const struct tdm__actor_spec *spec,
                                   const char *devices)
{
    uint32_t count = 0;

    for (char **own = environ; *own != NULL; own++) {
        if (!is_variable_replaced(*own, spec, devices)) {
            TDM_TRY(environment_append(environment, &count, *own));
        }
    }
    for (uint32_t i = 0; i < spec->environment.count; i++) {
        if (devices == NULL || !is_same_variable(devices, spec->environment.items[i])) {
            TDM_TRY(environment_append(environment, &count, spec->environment.items[i]));
        }
    }
    return environment_append_threads(environment, &count, spec);
}

tdm_status tdm__worker_environment_create(const struct tdm__actor_spec *spec, const char *devices,
                                          char ***environment_out)
{
    char **environment = calloc(ENVIRONMENT_MAX + 3, sizeof(char *));
    tdm_status status;

    if (environment == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a worker's environment");
    }
    status = environment_fill(environment, spec, devices);
    if (status != TDM_OK) {
        tdm__worker_environment_destroy(environment);
        return status;
    }
    *environment_out = environment;
    return TDM_OK;
}

bool tdm__worker_requires_exec(const struct tdm__actor_spec *spec)
{
    for (uint32_t i = 0; i < spec->environment.count; i++) {
        if (strncmp(spec->environment.items[i], "LD_", strlen("LD_")) == 0) {
            return true;
        }
    }
    return false;
}

tdm_status tdm__worker_create_argv(const struct tdm__actor_spec *spec, const char *program,
                                   char ***argv_out)
{
    uint32_t count = spec->program_arguments.count;
    char **argv = calloc(count + 2, sizeof(*argv));

    *argv_out = argv;
    if (argv == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the arguments of a worker's program");
    }
    for (uint32_t i = 0; i <= count; i++) {
        argv[i] = strdup(i > 0                      ? spec->program_arguments.items[i - 1]
                         : spec->program[0] != '\0' ? spec->program
                                                    : program);
        if (argv[i] == NULL) {
            return tdm__fail(TDM_E_NOMEM, "an argument of a worker's program");
        }
    }
    return TDM_OK;
}

char *tdm__worker_environment_create_key(const char *directory, char **argv, char **environment)
{
    char **const lists[] = {argv, environment};
    size_t capacity = strlen(directory) + 1;
    char *key;
    size_t used;

    for (int i = 0; i < 2; i++) {
        for (char **entry = lists[i]; *entry != NULL; entry++) {
            capacity += strlen(*entry) + 1;
        }
    }
    key = malloc(capacity);
    if (key == NULL) {
        return NULL;
    }
    used = (size_t)snprintf(key, capacity, "%s", directory);
    for (int i = 0; i < 2; i++) {
        for (char **entry = lists[i]; *entry != NULL; entry++) {
            used += (size_t)snprintf(key + used, capacity - used, "\n%s", *entry);
        }
    }
    return key;
}

void tdm__worker_environment_add(char **environment, char *setting)
{
    uint32_t count = 0;

    while (environment[count] != NULL) {
        count++;
    }
    environment[count] = setting;
}

void tdm__worker_environment_drop_last(char **environment)
{
    uint32_t count = 0;

    while (environment[count] != NULL) {
        count++;
    }
    environment[count - 1] = NULL;
}

void tdm__worker_environment_destroy(char **environment)
{
    for (char **entry = environment; entry != NULL && *entry != NULL; entry++) {
        free(*entry);
    }
    free(environment);
}
