/* commit.c - the commit protocol of weight versions, run on the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/commit.h"

#include "colocate/weights/commit_record.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One request under way.  Owned by the transaction until `done`. */
struct question {
    struct tdm__version_request request;
    struct tdm__member *lists; /* owned: the members, then the dead */
    tdm_writer *writer;        /* owned */
    tdm__version_fn *fn;
    void *arg;
    char key[TDM__MODEL_NAME_BYTES_MAX + 8];
    struct tdm__version_record record; /* as the body left it last */
};

static void question_free(struct question *question)
{
    tdm_writer_destroy(question->writer);
    free(question->lists);
    free(question);
}

static tdm_status question_body(void *arg, struct tdm__txn *txn)
{
    struct question *question = arg;
    const struct tdm__record *stored = tdm__txn_find(txn, question->key);
    bool changed = false;

    memset(&question->record, 0, sizeof(question->record));
    if (stored != NULL) {
        TDM_TRY(tdm__wrap(tdm__version_record_decode(stored->bytes, &question->record), "%s",
                          question->key));
    }
    TDM_TRY(tdm__version_apply(&question->record, &question->request, &changed));
    if (!changed) {
        return TDM_OK;
    }
    tdm_writer_clear(question->writer);
    TDM_TRY(tdm__version_record_encode(&question->record, question->writer));
    return tdm__txn_put(txn, question->key, tdm_writer_bytes(question->writer), 0);
}

static void question_done(void *arg, tdm_status status, const char *detail)
{
    struct question *question = arg;

    question->fn(question->arg, status, detail, status == TDM_OK ? &question->record : NULL);
    question_free(question);
}

/* The lists travel with the question: the caller's may be gone when the body runs. */
static tdm_status copy_lists(struct question *question)
{
    struct tdm__version_request *request = &question->request;
    size_t count = (size_t)request->members_count + request->dead_count;

    question->lists = calloc(count + 1, sizeof(question->lists[0]));
    if (question->lists == NULL) {
        return tdm__fail(TDM_E_NOMEM, "lists of %zu members", count);
    }
    if (request->members_count > 0) {
        memcpy(question->lists, request->members,
               request->members_count * sizeof(question->lists[0]));
    }
    if (request->dead_count > 0) {
        memcpy(question->lists + request->members_count, request->dead,
               request->dead_count * sizeof(question->lists[0]));
    }
    request->members = question->lists;
    request->dead = question->lists + request->members_count;
    return TDM_OK;
}

static tdm_status check_model(const char *model)
{
    size_t bytes = strnlen(model, TDM__MODEL_NAME_BYTES_MAX);

    if (bytes == 0 || bytes == TDM__MODEL_NAME_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a model's name has 1 to %d bytes",
                         TDM__MODEL_NAME_BYTES_MAX - 1);
    }
    for (size_t i = 0; i < bytes; i++) {
        if (model[i] <= ' ' || model[i] > '~' || model[i] == '*' || model[i] == '/') {
            return tdm__fail(TDM_E_INVAL, "model \"%s\": byte %zu is not allowed in a name",
                             model, i);
        }
    }
    return TDM_OK;
}

tdm_status tdm__version_ask(const struct tdm__version_store *where,
                            const struct tdm__version_request *request, tdm__version_fn *fn,
                            void *arg)
{
    struct question *question;
    const char *pattern;
    tdm_status status;

    TDM_TRY(check_model(where->model));
    question = calloc(1, sizeof(*question));
    if (question == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a request to %s", where->model);
    }
    question->request = *request;
    question->fn = fn;
    question->arg = arg;
    (void)snprintf(question->key, sizeof(question->key), "weight/%s", where->model);
    pattern = question->key;
    status = copy_lists(question);
    if (status == TDM_OK) {
        status = tdm_writer_create(&question->writer);
    }
    if (status == TDM_OK) {
        status = tdm__txn_run(where->loop, where->store, &pattern, 1, where->deadline_ms,
                              question_body, question_done, question);
    }
    if (status != TDM_OK) {
        question_free(question);
    }
    return status;
}
