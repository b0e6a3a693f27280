/* watched_processes.h - the processes without which the actor of this process fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_WATCHED_PROCESSES_H
#define TDM_ACTORS_WATCHED_PROCESSES_H

#include <tandem/runtime.h>

/* Ends all watches of tdm_actor_watch(), because the actor ends gracefully and may end the
 * processes itself. Takes the loop's lock. */
void tdm__watched_processes_clear(tdm_runtime *runtime);

#endif
