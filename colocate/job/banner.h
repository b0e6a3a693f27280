/* banner.h - the summary lines that a job prints before its first step. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_BANNER_H
#define TDM_COLOCATE_JOB_BANNER_H

#include "colocate/job/job_file.h"
#include "colocate/job/run_options.h"
#include "colocate/job/weight_connect.h"

/* Size in bytes of the buffer for one banner line, its final NUL included. */
enum { TDM__BANNER_BYTES = 512 };

/* Writes the first line of a job, for example "tandem 0.1.0 job arith-7f3a redis embedded 4
 * virtual GPUs × 256 MiB on this host". The job is named by the last component of its output
 * directory. `cluster` is the address of the cluster that the job joined; NULL for a private
 * node with an embedded Redis. */
void tdm__banner_title(const struct tdm__job_spec *spec, const struct tdm__job_run_options *options,
                       const char *cluster, char text[TDM__BANNER_BYTES]);
/* Writes the line that says on which GPUs the ranks are placed. An example is "placement trainer
 * 4 ranks (0.4 GPU each) engines 2 × TP2 (0.2 GPU each) gather groups {0,1}→0 {2,3}→2". A gather
 * group lists the trainer ranks that serve one engine and the rank that calls the engine. */
void tdm__banner_placement(const struct tdm__job_spec *spec, char text[TDM__BANNER_BYTES]);
/* Writes the line that says what each weight update moves. An example is "update 1.19 GiB, 50 %
 * of it on the same GPU at most 310 copies an engine rank donate". The line ends with the number
 * and size of the buckets if the update copies. */
void tdm__banner_update(const struct tdm__job_spec *spec, const struct tdm__weight_cost *cost,
                        char text[TDM__BANNER_BYTES]);

#endif
