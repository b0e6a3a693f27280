/* worker_environment.h - the environment variables of a worker's process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_ENVIRONMENT_H
#define TDM_ACTORS_DAEMON_WORKER_ENVIRONMENT_H

#include "actors/common/actor_spec.h"

/* "NAME=value" each, NULL-terminated, all of it owned by the caller.  This process's own, the
 * spec's settings over it, and `devices` ("NAME=value" or NULL) over both; OMP_NUM_THREADS
 * where neither says it; room for a mark. */
tdm_status tdm__worker_environment_create(const struct tdm__actor_spec *spec, const char *devices,
                                          char ***environment_out);
void tdm__worker_environment_destroy(char **environment); /* NULL is allowed */

/* Writes the mark, of TDM__PROCESS_MARK_BYTES - 1 characters, into its place. */
void tdm__worker_environment_mark(char **environment, const char *mark);
/* One more setting, borrowed until it is dropped: there is room for one. */
void tdm__worker_environment_add(char **environment, char *setting);
void tdm__worker_environment_drop_last(char **environment);

#endif
