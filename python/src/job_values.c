/* job_values.c - what a job passes to ranks in Python and gets from them, as tuples and bytes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The forms are those of tandem._job_rank. All functions need the GIL. Arrays of numbers are bytes,
 * 4 for each number, which Python turns into arrays. */
#include "job_values.h"

#include <string.h>

/* Returns the bytes of `count` numbers of 4 bytes, or None. */
static PyObject *bytes_object(const void *numbers, uint32_t count)
{
    return numbers == NULL ? Py_NewRef(Py_None)
                           : PyBytes_FromStringAndSize(numbers, (Py_ssize_t)count * 4);
}

/* Returns the samples of a batch as a list of tuples. */
PyObject *binding_samples_object(const struct tdm_batch *batch)
{
    PyObject *list = PyList_New(batch->samples_count);

    for (uint32_t i = 0; list != NULL && i < batch->samples_count; i++) {
        const struct tdm_sample *sample = &batch->samples[i];

        (void)PyList_SetItem(
            list, i,
            Py_BuildValue("INNNNNdK", sample->group, text_object(sample->prompt),
                          text_object(sample->answer),
                          bytes_object(sample->tokens, sample->tokens_count),
                          bytes_object(sample->logprobs, sample->tokens_count),
                          bytes_object(sample->token_rewards, sample->tokens_count),
                          (double)sample->reward, (unsigned long long)sample->weight_version));
    }
    return list;
}

/* Reads the list of (name, value) that a step returns. Returns false with an exception. */
bool binding_read_metrics(PyObject *list, struct tdm_metrics *metrics)
{
    Py_ssize_t count = PyList_Size(list);

    if (count < 0 || count > TDM_METRICS_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd metrics, at most %d", count, (int)TDM_METRICS_MAX);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        struct tdm_metric *metric = &metrics->entries[i];
        const char *name;

        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sd", &name, &metric->value)) {
            return false;
        }
        (void)strncpy(metric->name, name, sizeof(metric->name) - 1);
    }
    metrics->count = (uint32_t)count;
    return true;
}

/* Copies one (tokens, logprobs, text, finished). Returns false with an exception. */
static bool read_completion(PyObject *tuple, uint32_t tokens_max, struct tdm_completion *completion)
{
    Py_ssize_t logprobs_bytes;
    Py_ssize_t tokens_bytes;
    Py_ssize_t text_bytes;
    const char *logprobs;
    const char *tokens;
    const char *text;

    if (!PyArg_ParseTuple(tuple, "y#y#s#p", &tokens, &tokens_bytes, &logprobs, &logprobs_bytes,
                          &text, &text_bytes, &completion->finished)) {
        return false;
    }
    if (tokens_bytes != logprobs_bytes || tokens_bytes > (Py_ssize_t)tokens_max * 4 ||
        (size_t)text_bytes >= completion->text_bytes_max) {
        PyErr_Format(PyExc_ValueError,
                     "an answer of %zd tokens (at most %u), %zd log-probabilities and %zd bytes of "
                     "text (at most %zd)",
                     tokens_bytes / 4, tokens_max, logprobs_bytes / 4, text_bytes,
                     (Py_ssize_t)completion->text_bytes_max - 1);
        return false;
    }
    memcpy(completion->tokens, tokens, (size_t)tokens_bytes);
    memcpy(completion->logprobs, logprobs, (size_t)logprobs_bytes);
    memcpy(completion->text, text, (size_t)text_bytes);
    completion->text[text_bytes] = '\0';
    completion->tokens_count = (uint32_t)(tokens_bytes / 4);
    return true;
}

/* Copies the list of answers, or nothing for None. Returns false with an exception. */
bool binding_read_completions(PyObject *list, uint32_t count, uint32_t tokens_max,
                              struct tdm_completion *completions)
{
    if (list == Py_None) {
        return true;
    }
    if (PyList_Size(list) != (Py_ssize_t)count) {
        PyErr_Format(PyExc_ValueError, "%zd answers to %u prompts", PyList_Size(list), count);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!read_completion(PyList_GetItem(list, i), tokens_max, &completions[i])) {
            return false;
        }
    }
    return true;
}

/* Returns the requests as a list of (prompt, answer, tokens, logprobs, text, finished). */
PyObject *binding_requests_object(const struct tdm_reward_request *requests, uint32_t count)
{
    PyObject *list = PyList_New(count);

    for (uint32_t i = 0; list != NULL && i < count; i++) {
        const struct tdm_completion *completion = requests[i].completion;

        (void)PyList_SetItem(
            list, i,
            Py_BuildValue("NNNNNi", text_object(requests[i].prompt),
                          text_object(requests[i].answer),
                          bytes_object(completion->tokens, completion->tokens_count),
                          bytes_object(completion->logprobs, completion->tokens_count),
                          text_object(completion->text), completion->finished));
    }
    return list;
}

/* Copies one (reward, token rewards or None, failure or None). Returns false with an exception. */
bool binding_read_reward(PyObject *tuple, struct tdm_reward_request *request)
{
    Py_ssize_t wanted_bytes = (Py_ssize_t)request->completion->tokens_count * 4;
    Py_ssize_t tokens_bytes;
    const char *failure;
    const char *tokens;
    double reward;

    if (!PyArg_ParseTuple(tuple, "dz#z", &reward, &tokens, &tokens_bytes, &failure)) {
        return false;
    }
    if (tokens != NULL && tokens_bytes != wanted_bytes) {
        PyErr_Format(PyExc_ValueError, "%zd rewards for %zd tokens", tokens_bytes / 4,
                     wanted_bytes / 4);
        return false;
    }
    request->reward = (float)reward;
    if (tokens != NULL) {
        memcpy(request->token_rewards, tokens, (size_t)tokens_bytes);
    }
    if (failure != NULL) {
        (void)strncpy(request->failure, failure, sizeof(request->failure) - 1);
    }
    return true;
}

/* Copies the log-probabilities of one sample from bytes. Returns false with an exception. */
bool binding_read_logprobs(PyObject *bytes, const struct tdm_sample *sample, uint32_t index,
                           float *logprobs)
{
    Py_ssize_t size_bytes = PyBytes_Size(bytes);

    if (size_bytes != (Py_ssize_t)sample->tokens_count * 4) {
        PyErr_Format(PyExc_ValueError, "logprobs() returned %zd numbers for the %u tokens of %u",
                     size_bytes / 4, sample->tokens_count, index);
        return false;
    }
    memcpy(logprobs, PyBytes_AsString(bytes), (size_t)size_bytes);
    return true;
}
