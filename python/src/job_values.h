/* job_values.h - what a job passes to ranks in Python and gets from them, as tuples and bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_PYTHON_JOB_VALUES_H
#define TANDEM_PYTHON_JOB_VALUES_H

#include "binding.h"

#include <string.h>

/* Returns a text of libtandem, whose bytes may be cut anywhere. */
static inline PyObject *text_object(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* Returns the samples of a batch as a list of tuples; NULL with an exception. */
PyObject *binding_samples_object(const struct tdm_batch *batch);
/* Returns the requests of a reward as a list of (prompt, answer, tokens, logprobs, text, finished);
 * NULL with an exception. */
PyObject *binding_requests_object(const struct tdm_reward_request *requests, uint32_t count);

/* Reads the list of (name, value) that a step returns. Returns false with an exception. */
bool binding_read_metrics(PyObject *list, struct tdm_metrics *metrics);
/* Copies the log-probabilities of sample number `index` from bytes. Returns false with an
 * exception. */
bool binding_read_logprobs(PyObject *bytes, const struct tdm_sample *sample, uint32_t index,
                           float *logprobs);
/* Copies the list of answers, or nothing for None. Returns false with an exception. */
bool binding_read_completions(PyObject *list, uint32_t count, uint32_t tokens_max,
                              struct tdm_completion *completions);
/* Copies one (reward, token rewards or None, failure or None). Returns false with an exception. */
bool binding_read_reward(PyObject *tuple, struct tdm_reward_request *request);

#endif
