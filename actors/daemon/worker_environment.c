/* worker_environment.c - the environment variables of a worker's process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_environment.h"

#include "actors/common/fork_server.h"
#include "actors/common/worker_bootstrap.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Placeholder in a worker's environment, over which the process mark is written. */
#define NO_MARK "00000000000000000000000000000000.00000000"
_Static_assert(sizeof(NO_MARK) == TDM__PROCESS_MARK_BYTES, "a mark is written over it");

/* Most settings of a worker's environment; further ones are dropped. */
enum { ENVIRONMENT_MAX = 4096 };

/* True if the settings `setting` and `entry`, "NAME=value", have the same name. */
static bool is_same_variable(const char *setting, const char *entry)
{
    return strncmp(setting, entry, strcspn(entry, "=") + 1) == 0;
}

/* True if the daemon's setting `entry` is replaced in the worker. */
static bool is_variable_replaced(const char *entry, const struct tdm__actor_spec *spec,
                                 const char *devices)
{
    bool replaced = is_same_variable(TDM__WORKER_VARIABLE "=", entry) ||
                    is_same_variable(TDM__PROCESS_MARK_VARIABLE "=", entry) ||
                    (devices != NULL && is_same_variable(devices, entry));

    for (uint32_t i = 0; i < spec->environment_count && !replaced; i++) {
        replaced = is_same_variable(spec->environment[i], entry);
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

/* Returns a setting of OMP_NUM_THREADS, owned by the caller: as many threads as the actor requires
 * CPUs, and at least one. NULL if the environment sets the variable. Without it, numeric libraries
 * start one thread for each CPU of the machine in every actor. */
static char *default_threads_setting(const struct tdm__actor_spec *spec, char **environment)
{
    int64_t cpus = spec->wish.wanted.cpu / TDM__RESOURCE_ONE;
    char setting[48];

    (void)snprintf(setting, sizeof(setting), "OMP_NUM_THREADS=%lld",
                   (long long)(cpus < 1 ? 1 : cpus));
    return environment_has_variable(environment, setting) ? NULL : strdup(setting);
}

tdm_status tdm__worker_environment_create(const struct tdm__actor_spec *spec, const char *devices,
                                          char ***environment_out)
{
    char **environment = calloc(ENVIRONMENT_MAX + 2, sizeof(char *));
    uint32_t count = 0;

    if (environment == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a worker's environment");
    }
    for (char **own = environ; *own != NULL && count < ENVIRONMENT_MAX; own++) {
        if (!is_variable_replaced(*own, spec, devices)) {
            environment[count++] = strdup(*own);
        }
    }
    for (uint32_t i = 0; i < spec->environment_count && count < ENVIRONMENT_MAX; i++) {
        if (devices == NULL || !is_same_variable(devices, spec->environment[i])) {
            environment[count++] = strdup(spec->environment[i]);
        }
    }
    if (devices != NULL && count < ENVIRONMENT_MAX) {
        environment[count++] = strdup(devices);
    }
    if (count < ENVIRONMENT_MAX) {
        char *threads = default_threads_setting(spec, environment);

        if (threads != NULL) {
            environment[count++] = threads;
        }
    }
    if (count < ENVIRONMENT_MAX) {
        environment[count++] = strdup(TDM__PROCESS_MARK_VARIABLE "=" NO_MARK);
    }
    *environment_out = environment;
    return TDM_OK;
}

void tdm__worker_environment_mark(char **environment, const char *mark)
{
    for (char **entry = environment; *entry != NULL; entry++) {
        if (is_same_variable(TDM__PROCESS_MARK_VARIABLE "=", *entry)) {
            memcpy(*entry + strlen(TDM__PROCESS_MARK_VARIABLE "="), mark,
                   TDM__PROCESS_MARK_BYTES - 1);
        }
    }
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
