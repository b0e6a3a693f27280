/* train_batch.h - batches of samples on their way from the controller to trainer ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRAIN_BATCH_H
#define TDM_COLOCATE_JOB_TRAIN_BATCH_H

#include <tandem/job.h>
#include <tandem/value.h>

/* One packed array: (supervised, step, steps_count, [sample …]). */
tdm_status tdm__batch_write(tdm_writer *writer, const struct tdm_batch *batch);

/* Borrows from `value`; free the samples with tdm__batch_fini.  TDM_E_PROTOCOL names the sample
 * whose arrays are not as long as its tokens. */
tdm_status tdm__batch_read(const tdm_value *value, struct tdm_batch *batch_out);
void tdm__batch_fini(struct tdm_batch *batch);

/* (name, value, name, value …) */
tdm_status tdm__train_metrics_write(tdm_writer *writer, const struct tdm_metrics *metrics);
tdm_status tdm__train_metrics_read(const tdm_value *value, struct tdm_metrics *metrics_out);
/* The number of that name, or `otherwise`. */
double tdm__train_metrics_find(const struct tdm_metrics *metrics, const char *name,
                               double otherwise);

#endif
