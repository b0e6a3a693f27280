/* banner.h - the lines at the head of a job: what runs, on what, who sits where. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_BANNER_H
#define TDM_COLOCATE_JOB_BANNER_H

#include "colocate/job/job.h"
#include "colocate/job/weight_update.h"

enum { TDM__BANNER_BYTES = 512 };

/* "tandem 0.1.0  job arith-7f3a  redis embedded  4 virtual GPUs × 256 MiB on this host".
 * The run has the name of its folder; `cluster` is the address that was joined, NULL for a
 * private node with a store of its own. */
void tdm__banner_title(const struct tdm__job_spec *spec, const struct tdm__job_run_options *options,
                       const char *cluster, char text[TDM__BANNER_BYTES]);
/* "placement   trainer 4 ranks (0.4 GPU each)   engines 2 × TP2 (0.2 GPU each)   gather groups
 * {0,1}→0 {2,3}→2": the trainer ranks of each engine, and the one that its weights pass. */
void tdm__banner_placement(const struct tdm__job_spec *spec, char text[TDM__BANNER_BYTES]);
/* "update      1.19 GiB, 50 % of it on the same GPU   310 copies an engine rank   donate": what
 * each update moves; in copy mode the buckets, too. */
void tdm__banner_update(const struct tdm__job_spec *spec, const struct tdm__weight_cost *cost,
                        char text[TDM__BANNER_BYTES]);

#endif
