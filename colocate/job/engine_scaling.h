/* engine_scaling.h - adds engines to a running job, and ends engines that it no longer needs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ENGINE_SCALING_H
#define TDM_COLOCATE_JOB_ENGINE_SCALING_H

#include "colocate/job/worker_group.h"

/* Engines are added and ended between two rollouts, when no update is in progress. The last engine
 * is ended first. Only engines with GPUs of their own can be: colocated ones share their GPUs with
 * trainer ranks, whose number does not change. */

/* Checks whether the job may have `wanted` engines. The error says what the job has, what is asked
 * for, and what to do. */
tdm_status tdm__engine_scaling_check(const struct tdm__worker_group *workers, uint32_t wanted);

/* Prepares the worker group for one engine more, whose number is that of the engines so far. The
 * caller then raises the number of engines of the settings. The engine is placed, created, started
 * and given weights like one that was lost (engine_recovery.h). */
void tdm__engine_scaling_add(struct tdm__worker_group *workers);
/* Ends the last engine and gives its GPUs back. The caller then lowers the number of engines of the
 * settings. `why` is for the log. An error means that its ranks could not be ended. */
tdm_status tdm__engine_scaling_remove(struct tdm__worker_group *workers, const char *why);

/* Returns the number of engines that serve. */
uint32_t tdm__engine_scaling_serving(const struct tdm__worker_group *workers);
/* Writes what the first engine that does not serve waits for; "" if all serve. The text is cut to
 * the capacity. */
void tdm__engine_scaling_lack(const struct tdm__worker_group *workers, char *text,
                              size_t text_bytes);

#endif
