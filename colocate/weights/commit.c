/* commit.c - applies the requests of the commit protocol to the records in the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */

/* There is one queue for each model with requests. A queue is idle, or has one transaction on
 * the record "weight/MODEL" in progress. New requests wait in `waiting`. The body of the
 * transaction moves them to `in_transaction` and applies them in order to a copy of the record
 * (commit_core.h). The store may run the body again after a conflict. When the transaction ends,
 * every request in it is answered, and a new transaction begins if requests wait.
 *
 * Invariants: a request is in exactly one list and is answered exactly once. A queue with a
 * running transaction is owned by that transaction: after the client is closed,
 * model_queue_done() frees it. An idle queue keeps its read cache, at most IDLE_QUEUES_MAX of
 * them. Only the loop's thread enters. The protocol is docs/protocols/commit.md. */

#include "colocate/weights/commit.h"

#include "colocate/weights/commit_record.h"
#include "runtime/error.h"
#include "runtime/store/read_cache.h"
#include "runtime/store/txn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One request, from its submission until its reply. */
struct pending_request {
    /* Next request of the list that contains this one; NULL at the end of the list. */
    struct pending_request *next;
    struct tdm__version_request request; /* The request; its lists point into `lists`. */
    /* Copies of the request's members, followed by its dead members. Owned. */
    struct tdm__member *lists;
    int64_t deadline_ms;      /* Deadline of the request, in milliseconds of tdm__clock_ms(). */
    tdm__version_done_fn *fn; /* Callback that gets the result of the request. */
    void *arg;                /* First argument of the callback `fn`. */
    tdm_status status;        /* Result of the request when the transaction's body last ran. */
    char *detail;             /* Error text that belongs to `status`; NULL if absent. Owned. */
    /* Copy of the version record as it was after this request was applied. */
    struct tdm__version_record record;
};

/* A queue of requests in the order of their submission. */
struct request_list {
    /* First request; NULL if the list is empty. The list owns its requests. */
    struct pending_request *first;
    /* Address of the pointer to which the next request is appended. */
    struct pending_request **end;
};

/* The largest number of queues without requests that a client keeps for their cached records. */
enum { IDLE_QUEUES_MAX = 16 };

/* The requests about one model. The client's list owns an idle queue. A queue with a running
 * transaction is freed when the transaction ends, if the client was closed meanwhile. */
struct model_queue {
    struct model_queue *next; /* Queue of the next model in the client's list; NULL at its end. */
    /* Client to which the queue belongs; NULL after the client was closed. */
    struct tdm__version_client *versions;
    /* Cache of the version record as this process last wrote or read it. Owned. */
    struct tdm__read_cache *read_cache;
    bool running; /* True while a store transaction on the model's version record is in progress. */
    /* Requests that the running transaction has applied and that await its end. */
    struct request_list in_transaction;
    struct request_list waiting; /* Requests that no transaction has applied yet. */
    /* Deadline of the running transaction, in milliseconds of tdm__clock_ms(). */
    int64_t deadline_ms;
    /* Version record that the running transaction's body changes. */
    struct tdm__version_record record;
    tdm_writer *writer; /* Encoder that turns the version record into bytes; owned. */
    /* Key of the version record in the store: "weight/" and the model's name. */
    char key[TDM__VERSION_KEY_BYTES];
};

/* The queues of all models that have requests or a cached record. Used on the loop's thread
 * only. */
struct tdm__version_client {
    struct tdm__loop *loop;   /* Loop whose thread runs all transactions and callbacks; borrowed. */
    struct tdm__store *store; /* Store that contains the version records; borrowed. */
    struct model_queue *model_queues; /* Linked list of the queues of all models; owned. */
};

/* ---- pending requests ---------------------------------------------------------------- */

/* Initializes an empty list of requests. */
static void request_list_init(struct request_list *requests)
{
    *requests = (struct request_list){NULL, &requests->first};
}

/* Appends a request to the list, which then owns the request. */
static void request_list_append(struct request_list *requests, struct pending_request *pending)
{
    pending->next = NULL;
    *requests->end = pending;
    requests->end = &pending->next;
}

/* Moves the requests of `from` whose deadline is later than `deadline_ms` to the end of
 * `requests`. */
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

/* Moves all requests of `from` to the end of `requests`. */
static void request_list_move(struct request_list *requests, struct request_list *from)
{
    if (from->first != NULL) {
        *requests->end = from->first;
        requests->end = from->end;
    }
    request_list_init(from);
}

/* Frees a request, its copied member lists and its error text. */
static void pending_request_free(struct pending_request *pending)
{
    free(pending->detail);
    free(pending->lists);
    free(pending);
}

tdm_status tdm__version_request_copy_lists(struct tdm__version_request *request,
                                           struct tdm__member **lists_out)
{
    size_t count = (size_t)request->members_count + request->dead_count;
    struct tdm__member *lists = calloc(count + 1, sizeof(lists[0]));

    if (lists == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating lists of %zu members failed: out of memory",
                         count);
    }
    if (request->members_count > 0) {
        memcpy(lists, request->members, request->members_count * sizeof(lists[0]));
    }
    if (request->dead_count > 0) {
        memcpy(lists + request->members_count, request->dead,
               request->dead_count * sizeof(lists[0]));
    }
    request->members = lists;
    request->dead = lists + request->members_count;
    *lists_out = lists;
    return TDM_OK;
}

/* Creates a pending request with copies of the request and its lists. */
static tdm_status pending_request_create(const struct tdm__version_request *request,
                                         struct pending_request **pending_out)
{
    struct pending_request *pending = calloc(1, sizeof(*pending));
    tdm_status status;

    if (pending == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a request about a version failed: out of memory");
    }
    pending->request = *request;
    status = tdm__version_request_copy_lists(&pending->request, &pending->lists);
    if (status != TDM_OK) {
        pending_request_free(pending);
        return status;
    }
    *pending_out = pending;
    return TDM_OK;
}

/* Calls the callback of the request with the result and frees the request. */
static void pending_request_reply(struct pending_request *pending, tdm_status status,
                                  const char *detail)
{
    pending->fn(pending->arg, status, detail, status == TDM_OK ? &pending->record : NULL);
    pending_request_free(pending);
}

/* Replies to all requests of the list and frees them. If `status` is a failure of the transaction,
 * all requests get it; otherwise each gets its own result. */
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

/* ---- a transaction ------------------------------------------------------------------- */

/* Applies one request to the queue's version record and stores the result in the request. Sets
 * `changed` to true if the request changed the record. */
static void pending_request_apply(struct pending_request *pending, struct model_queue *queue,
                                  bool *changed)
{
    free(pending->detail);
    pending->detail = NULL;
    pending->status = tdm__version_apply_batched(&queue->record, &pending->request, changed);
    if (pending->status == TDM_OK) {
        pending->record = queue->record;
    } else {
        (void)tdm__wrap(pending->status, "record %s", queue->key);
        pending->detail = strdup(tdm_error_detail());
    }
}

/* The body of a store transaction: applies all waiting requests, also those that arrived while the
 * version record was being read, and writes the record. The store may run the body again after a
 * conflict. */
static tdm_status model_queue_transaction(void *arg, struct tdm__txn *txn)
{
    struct model_queue *queue = arg;
    const struct tdm__store_record *stored = tdm__txn_find_record(txn, queue->key);
    bool changed = false;

    request_list_move(&queue->in_transaction, &queue->waiting);
    memset(&queue->record, 0, sizeof(queue->record));
    if (stored != NULL) {
        TDM_TRY(tdm__wrap(tdm__version_record_decode(stored->bytes, &queue->record), "record %s",
                          queue->key));
    }
    for (struct pending_request *pending = queue->in_transaction.first; pending != NULL;
         pending = pending->next) {
        pending_request_apply(pending, queue, &changed);
    }
    if (!changed) {
        return TDM_OK;
    }
    /* A FORGET request has emptied the version record, so its key is deleted. */
    if (tdm__id_is_none(&queue->record.update.id)) {
        return tdm__txn_delete(txn, queue->key);
    }
    tdm_writer_clear(queue->writer);
    TDM_TRY(tdm__version_record_encode(&queue->record, queue->writer));
    return tdm__txn_put(txn, queue->key, tdm_writer_bytes(queue->writer), 0);
}

/* Callback of the store when a transaction on a model's version record has ended. Answers the
 * requests of the ended transaction and starts the next one. */
static void model_queue_done(void *arg, tdm_status status, const char *detail);

/* Starts a transaction for the queue's waiting requests. Its deadline is the latest of these
 * requests' deadlines, so that an expired request does not make newer ones fail. */
static tdm_status model_queue_start(struct model_queue *queue)
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

/* Removes a model's queue from its client, if the client is open, and frees the queue. */
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

/* Returns true if the client has more idle queues than it may keep. */
static bool has_too_many_idle_queues(const struct tdm__version_client *versions)
{
    uint32_t idle_count = 0;

    for (const struct model_queue *queue = versions->model_queues; queue != NULL;
         queue = queue->next) {
        idle_count += !queue->running;
    }
    return idle_count > IDLE_QUEUES_MAX;
}

/* Answers the requests of the ended transaction and starts the next one if requests wait. After a
 * failure the waiting requests fail, too, because the store is unavailable or the record cannot be
 * read. After a timeout, requests with a later deadline than the transaction stay in the queue. */
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
        status = model_queue_start(queue);
        if (status == TDM_OK) {
            return;
        }
        request_list_reply(&queue->waiting, status, tdm_error_detail());
        is_good = false;
    }
    queue->running = false;
    if (!is_good || queue->versions == NULL || has_too_many_idle_queues(queue->versions)) {
        model_queue_free(queue);
    }
}

/* ---- from outside -------------------------------------------------------------------- */

tdm_status tdm__version_client_open(struct tdm__loop *loop, struct tdm__store *store,
                                    struct tdm__version_client **versions_out)
{
    struct tdm__version_client *versions = calloc(1, sizeof(*versions));

    if (versions == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating the versions of models failed: out of memory");
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

struct tdm__store *tdm__version_client_store(const struct tdm__version_client *versions)
{
    return versions->store;
}

tdm_status tdm__version_record_key(const char *model, char key_out[TDM__VERSION_KEY_BYTES])
{
    size_t bytes = strnlen(model, TDM__MODEL_NAME_BYTES_MAX);

    if (bytes == 0 || bytes == TDM__MODEL_NAME_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL,
                         "finding the version record of a model failed: its name has %zu bytes, "
                         "expected 1 to %d. Choose another name",
                         strlen(model), TDM__MODEL_NAME_BYTES_MAX - 1);
    }
    for (size_t i = 0; i < bytes; i++) {
        if (model[i] <= ' ' || model[i] > '~' || model[i] == '*' || model[i] == '/') {
            return tdm__fail(
                TDM_E_INVAL,
                "finding the version record of model \"%s\" failed: byte %zu of the name is "
                "0x%02x. Use printable characters other than the space, \"*\" and \"/\"",
                model, i, (unsigned)(unsigned char)model[i]);
        }
    }
    (void)snprintf(key_out, TDM__VERSION_KEY_BYTES, "weight/%s", model);
    return TDM_OK;
}

/* Returns the client's queue for the record with this store key, or NULL. */
static struct model_queue *model_queue_find(const struct tdm__version_client *versions,
                                            const char *key)
{
    struct model_queue *queue = versions->model_queues;

    while (queue != NULL && strcmp(queue->key, key) != 0) {
        queue = queue->next;
    }
    return queue;
}

/* Creates an empty queue for the record with this store key and adds it to the client. */
static tdm_status model_queue_create(struct tdm__version_client *versions, const char *key,
                                     struct model_queue **queue_out)
{
    struct model_queue *queue = calloc(1, sizeof(*queue));
    tdm_status status;

    if (queue == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a request to %s failed: out of memory", key);
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
    *queue_out = queue;
    return TDM_OK;
}

/* Adds the request to the queue for the record `key` and starts a transaction if none is running.
 * The queue owns the request if the result is TDM_OK. */
static tdm_status model_queue_submit(struct tdm__version_client *versions, const char *key,
                                     struct pending_request *pending)
{
    struct model_queue *queue = model_queue_find(versions, key);
    tdm_status status;

    if (queue == NULL) {
        TDM_TRY(model_queue_create(versions, key, &queue));
    }
    request_list_append(&queue->waiting, pending);
    if (queue->running) {
        return TDM_OK;
    }
    status = model_queue_start(queue);
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
    char key[TDM__VERSION_KEY_BYTES];
    struct pending_request *pending;
    tdm_status status;

    TDM_TRY(tdm__version_record_key(model, key));
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
