/* commit.c - the commit protocol of weight versions, run on the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/commit.h"

#include "colocate/weights/commit_record.h"
#include "runtime/error.h"
#include "runtime/store/read_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One request, from the call until its answer. */
struct pending_request {
    struct pending_request *next;
    struct tdm__version_request request;
    struct tdm__member *lists; /* owned: the members, then the dead */
    int64_t deadline_ms;
    tdm__version_done_fn *fn;
    void *arg;
    /* As the body left it last: */
    tdm_status status;
    char *detail;                      /* owned; NULL: none */
    struct tdm__version_record record; /* as it is after this request */
};

/* First come, first served. */
struct request_list {
    struct pending_request *first; /* owned */
    struct pending_request **end;
};

/* The most models whose last record is known beyond their last question. */
enum { IDLE_LINES_MAX = 16 };

/* The questions about one model.  While it has a transaction under way it is the transaction's:
 * when `versions` is gone, it ends with it. */
struct model_queue {
    struct model_queue *next;
    struct tdm__version_client *versions; /* NULL: closed */
    struct tdm__read_cache *read_cache;   /* owned: the record, where this process wrote it last */
    bool running;                         /* a transaction is under way */
    struct request_list in_transaction;   /* seen by the transaction's body */
    struct request_list waiting;
    int64_t deadline_ms;               /* of the transaction */
    struct tdm__version_record record; /* the body's */
    tdm_writer *writer;                /* owned */
    char key[TDM__MODEL_NAME_BYTES_MAX + 8];
};

struct tdm__version_client {
    struct tdm__loop *loop;   /* borrowed */
    struct tdm__store *store; /* borrowed */
    struct model_queue *model_queues;
};

/* ---- questions -------------------------------------------------------------------------- */

static void request_list_init(struct request_list *requests)
{
    *requests = (struct request_list){NULL, &requests->first};
}

static void request_list_append(struct request_list *requests, struct pending_request *pending)
{
    pending->next = NULL;
    *requests->end = pending;
    requests->end = &pending->next;
}

/* Those of `from` whose deadline is later than `deadline_ms`, behind those that are there. */
static void request_list_split_later(struct request_list *requests, struct request_list *from,
                                     int64_t deadline_ms)
{
    struct pending_request *pending = from->first;

    request_list_init(from);
    while (pending != NULL) {
        struct pending_request *next = pending->next;

        request_list_append(pending->deadline_ms > deadline_ms ? requests : from, pending);
        pending = next;
    }
}

/* All of `from`, behind those that are there. */
static void request_list_move(struct request_list *requests, struct request_list *from)
{
    if (from->first != NULL) {
        *requests->end = from->first;
        requests->end = from->end;
    }
    request_list_init(from);
}

static void pending_request_free(struct pending_request *pending)
{
    free(pending->detail);
    free(pending->lists);
    free(pending);
}

/* The lists travel with the question: the caller's may be gone when the body runs. */
static tdm_status copy_lists(struct pending_request *pending)
{
    struct tdm__version_request *request = &pending->request;
    size_t count = (size_t)request->members_count + request->dead_count;

    pending->lists = calloc(count + 1, sizeof(pending->lists[0]));
    if (pending->lists == NULL) {
        return tdm__fail(TDM_E_NOMEM, "lists of %zu members", count);
    }
    if (request->members_count > 0) {
        memcpy(pending->lists, request->members,
               request->members_count * sizeof(pending->lists[0]));
    }
    if (request->dead_count > 0) {
        memcpy(pending->lists + request->members_count, request->dead,
               request->dead_count * sizeof(pending->lists[0]));
    }
    request->members = pending->lists;
    request->dead = pending->lists + request->members_count;
    return TDM_OK;
}

static tdm_status pending_request_create(const struct tdm__version_request *request,
                                         struct pending_request **question_out)
{
    struct pending_request *pending = calloc(1, sizeof(*pending));
    tdm_status status;

    if (pending == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a request about a version");
    }
    pending->request = *request;
    status = copy_lists(pending);
    if (status != TDM_OK) {
        pending_request_free(pending);
        return status;
    }
    *question_out = pending;
    return TDM_OK;
}

static void pending_request_reply(struct pending_request *pending, tdm_status status,
                                  const char *detail)
{
    pending->fn(pending->arg, status, detail, status == TDM_OK ? &pending->record : NULL);
    pending_request_free(pending);
}

/* What the body found; or, where the transaction failed, that. */
static void request_list_reply(struct request_list *requests, tdm_status status, const char *detail)
{
    struct pending_request *pending = requests->first;

    request_list_init(requests);
    while (pending != NULL) {
        struct pending_request *next = pending->next;

        if (status != TDM_OK) {
            pending_request_reply(pending, status, detail);
        } else {
            pending_request_reply(pending, pending->status,
                                  pending->detail != NULL ? pending->detail : "");
        }
        pending = next;
    }
}

/* ---- a transaction ---------------------------------------------------------------------- */

static void pending_request_apply(struct pending_request *pending, struct model_queue *queue,
                                  bool *changed)
{
    free(pending->detail);
    pending->detail = NULL;
    pending->status = tdm__version_apply_batched(&queue->record, &pending->request, changed);
    if (pending->status == TDM_OK) {
        pending->record = queue->record;
    } else {
        pending->detail = strdup(tdm_error_detail());
    }
}

/* Whoever came while the record was being read comes along. */
static tdm_status model_queue_transaction(void *arg, struct tdm__txn *txn)
{
    struct model_queue *queue = arg;
    const struct tdm__store_record *stored = tdm__txn_find_record(txn, queue->key);
    bool changed = false;

    request_list_move(&queue->in_transaction, &queue->waiting);
    memset(&queue->record, 0, sizeof(queue->record));
    if (stored != NULL) {
        TDM_TRY(
            tdm__wrap(tdm__version_record_decode(stored->bytes, &queue->record), "%s", queue->key));
    }
    for (struct pending_request *pending = queue->in_transaction.first; pending != NULL;
         pending = pending->next) {
        pending_request_apply(pending, queue, &changed);
    }
    if (!changed) {
        return TDM_OK;
    }
    if (tdm__id_is_none(&queue->record.update.id)) { /* forgotten */
        return tdm__txn_delete(txn, queue->key);
    }
    tdm_writer_clear(queue->writer);
    TDM_TRY(tdm__version_record_encode(&queue->record, queue->writer));
    return tdm__txn_put(txn, queue->key, tdm_writer_bytes(queue->writer), 0);
}

static void model_queue_done(void *arg, tdm_status status, const char *detail);

/* Who has waited too long is no reason to fail those who have just come. */
static tdm_status model_queue_run(struct model_queue *queue)
{
    const char *pattern = queue->key;
    int64_t deadline_ms = 0;

    for (const struct pending_request *pending = queue->waiting.first; pending != NULL;
         pending = pending->next) {
        deadline_ms = pending->deadline_ms > deadline_ms ? pending->deadline_ms : deadline_ms;
    }
    queue->deadline_ms = deadline_ms;
    TDM_TRY(tdm__txn_run(queue->versions->store, queue->read_cache, &pattern, 1, deadline_ms,
                         model_queue_transaction, model_queue_done, queue));
    queue->running = true;
    return TDM_OK;
}

static void model_queue_free(struct model_queue *queue)
{
    for (struct model_queue **place = queue->versions == NULL ? NULL
                                                              : &queue->versions->model_queues;
         place != NULL && *place != NULL; place = &(*place)->next) {
        if (*place == queue) {
            *place = queue->next;
            break;
        }
    }
    tdm_writer_destroy(queue->writer);
    tdm__read_cache_destroy(queue->read_cache);
    free(queue);
}

static bool has_too_many(const struct tdm__version_client *versions)
{
    uint32_t idle_count = 0;

    for (const struct model_queue *queue = versions->model_queues; queue != NULL;
         queue = queue->next) {
        idle_count += !queue->running;
    }
    return idle_count > IDLE_LINES_MAX;
}

/* After a failure those who still wait fail as well, and ask again: the store is away, or the
 * record is not to be read.  But those who came with more time than it had are not out of time
 * with it. */
static void model_queue_done(void *arg, tdm_status status, const char *detail)
{
    struct model_queue *queue = arg;
    bool is_good = status == TDM_OK;

    if (status != TDM_OK) {
        request_list_move(&queue->in_transaction, &queue->waiting);
    }
    if (status == TDM_E_TIMEOUT) {
        request_list_split_later(&queue->waiting, &queue->in_transaction, queue->deadline_ms);
    }
    request_list_reply(&queue->in_transaction, status, detail);
    if (queue->versions == NULL || queue->versions->store->closing) {
        request_list_reply(&queue->waiting, TDM_E_STORE, "the store is being closed");
    } else if (queue->waiting.first != NULL) {
        status = model_queue_run(queue);
        if (status == TDM_OK) {
            return;
        }
        request_list_reply(&queue->waiting, status, tdm_error_detail());
        is_good = false;
    }
    queue->running = false;
    if (!is_good || queue->versions == NULL || has_too_many(queue->versions)) {
        model_queue_free(queue);
    }
}

/* ---- from outside ----------------------------------------------------------------------- */

tdm_status tdm__version_client_open(struct tdm__loop *loop, struct tdm__store *store,
                                    struct tdm__version_client **versions_out)
{
    struct tdm__version_client *versions = calloc(1, sizeof(*versions));

    if (versions == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the versions of models");
    }
    *versions = (struct tdm__version_client){.loop = loop, .store = store};
    *versions_out = versions;
    return TDM_OK;
}

void tdm__version_client_close(struct tdm__version_client *versions)
{
    if (versions == NULL) {
        return;
    }
    for (struct model_queue *queue = versions->model_queues, *next; queue != NULL; queue = next) {
        next = queue->next;
        queue->versions = NULL;
        request_list_reply(&queue->waiting, TDM_E_STORE, "the daemon is leaving");
        if (!queue->running) {
            model_queue_free(queue);
        }
    }
    free(versions);
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
            return tdm__fail(TDM_E_INVAL, "model \"%s\": byte %zu is not allowed in a name", model,
                             i);
        }
    }
    return TDM_OK;
}

static struct model_queue *find_model_queue(const struct tdm__version_client *versions,
                                            const char *key)
{
    struct model_queue *queue = versions->model_queues;

    while (queue != NULL && strcmp(queue->key, key) != 0) {
        queue = queue->next;
    }
    return queue;
}

static tdm_status create_model_queue(struct tdm__version_client *versions, const char *key,
                                     struct model_queue **line_out)
{
    struct model_queue *queue = calloc(1, sizeof(*queue));
    tdm_status status;

    if (queue == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a request to %s", key);
    }
    (void)snprintf(queue->key, sizeof(queue->key), "%s", key);
    request_list_init(&queue->in_transaction);
    request_list_init(&queue->waiting);
    queue->versions = versions;
    queue->next = versions->model_queues;
    versions->model_queues = queue;
    status = tdm_writer_create(&queue->writer);
    if (status == TDM_OK) {
        status = tdm__read_cache_create(&queue->read_cache);
    }
    if (status != TDM_OK) {
        model_queue_free(queue);
        return status;
    }
    *line_out = queue;
    return TDM_OK;
}

/* The question is the line's from TDM_OK on. */
static tdm_status model_queue_submit(struct tdm__version_client *versions, const char *key,
                                     struct pending_request *pending)
{
    struct model_queue *queue = find_model_queue(versions, key);
    tdm_status status;

    if (queue == NULL) {
        TDM_TRY(create_model_queue(versions, key, &queue));
    }
    request_list_append(&queue->waiting, pending);
    if (queue->running) {
        return TDM_OK;
    }
    status = model_queue_run(queue);
    if (status != TDM_OK) {
        model_queue_free(queue);
    }
    return status;
}

tdm_status tdm__version_client_submit(struct tdm__version_client *versions, const char *model,
                                      int64_t deadline_ms,
                                      const struct tdm__version_request *request,
                                      tdm__version_done_fn *fn, void *arg)
{
    char key[TDM__MODEL_NAME_BYTES_MAX + 8];
    struct pending_request *pending;
    tdm_status status;

    TDM_TRY(check_model(model));
    (void)snprintf(key, sizeof(key), "weight/%s", model);
    TDM_TRY(pending_request_create(request, &pending));
    pending->deadline_ms = deadline_ms;
    pending->fn = fn;
    pending->arg = arg;
    status = model_queue_submit(versions, key, pending);
    if (status != TDM_OK) {
        pending_request_free(pending);
    }
    return status;
}
