/* train_batch.h - encodes batches of samples for trainer ranks and the metrics that they reply. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRAIN_BATCH_H
#define TDM_COLOCATE_JOB_TRAIN_BATCH_H

#include <tandem/job.h>
#include <tandem/value.h>

/* Encodes a batch with its step number and its samples. */
tdm_status tdm__batch_write(tdm_writer *writer, const struct tdm_batch *batch);

/* Decodes a batch. Texts are borrowed from `value`; free the samples with tdm__batch_fini().
 * TDM_E_PROTOCOL names a sample whose arrays and tokens differ in length. */
tdm_status tdm__batch_read(const tdm_value *value, struct tdm_batch *batch_out);
/* Frees the samples of a decoded batch. */
void tdm__batch_fini(struct tdm_batch *batch);

/* Encodes the metrics of a training step as pairs of name and number. */
tdm_status tdm__train_metrics_write(tdm_writer *writer, const struct tdm_metrics *metrics);
/* Decodes the metrics of a training step. Returns TDM_E_TYPE if one of them is not finite. */
tdm_status tdm__train_metrics_read(const tdm_value *value, struct tdm_metrics *metrics_out);
/* Returns the metric of that name, or `otherwise` if it does not exist. */
double tdm__train_metrics_find(const struct tdm_metrics *metrics, const char *name,
                               double otherwise);

#endif
