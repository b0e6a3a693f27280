/* worker_environment.h - the environment variables and the arguments of a worker process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_ENVIRONMENT_H
#define TDM_ACTORS_DAEMON_WORKER_ENVIRONMENT_H

#include "actors/common/actor_spec.h"

/* Creates the environment of a worker: an array of "NAME=value" that ends with NULL and is owned by
 * the caller. Settings of the spec replace those of the daemon. The variable of `devices`
 * ("NAME=value" or NULL) is left out, because it is added when the worker begins. OMP_NUM_THREADS
 * is added if neither sets it. */
tdm_status tdm__worker_environment_create(const struct tdm__actor_spec *spec, const char *devices,
                                          char ***environment_out);
/* Frees the environment of a worker. NULL is allowed. */
void tdm__worker_environment_destroy(char **environment);

/* True if the spec sets environment variables of the dynamic linker ("LD_..."), which reads them
 * only when a program is executed. */
bool tdm__worker_requires_exec(const struct tdm__actor_spec *spec);
/* Creates the arguments of a worker's program: its path, or `program` if the spec names none, and
 * the spec's arguments. The array ends with NULL; the caller frees it by
 * tdm__worker_environment_destroy(), also on failure, when it may be NULL. */
tdm_status tdm__worker_create_argv(const struct tdm__actor_spec *spec, const char *program,
                                   char ***argv_out);
/* Returns a text of a worker's directory, program with arguments, and environment, owned by the
 * caller; NULL without memory. Workers with equal texts can be forked from one fork server. */
char *tdm__worker_environment_create_key(const char *directory, char **argv, char **environment);
/* Appends one setting, which is borrowed until it is dropped. There is space for two. */
void tdm__worker_environment_add(char **environment, char *setting);
/* Removes the last setting of the environment of a worker without freeing the setting. */
void tdm__worker_environment_drop_last(char **environment);

#endif
