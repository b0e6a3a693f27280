/* version_service.c - the daemon's service "version": the commit protocol for its processes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The first half runs in the daemon, on its loop's thread. It decodes version.request or
 * version.request_set, submits it to the version client (commit.h, commit_set.h), and replies from
 * the callback with the parts of the stored records that callers need. The service's state is the
 * version client itself.
 *
 * The second half runs in workers and drivers, on any thread that may block.
 * tdm__version_service_call() repeats a request with short attempts until its deadline.
 * Repeating is safe because every request changes nothing the second time. The protocol is
 * docs/protocols/commit.md. */

#include "colocate/weights/version_service.h"

#include "colocate/weights/commit_record.h"
#include "colocate/weights/remedies.h"

#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/messages/messages.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Times of a request, in milliseconds. */
enum {
    /* Longest time that a caller waits for one reply of the daemon, in milliseconds. */
    ATTEMPT_TIMEOUT_MS = 2000,
    RETRY_PAUSE_MS = 20, /* Pause before a request is sent again, in milliseconds. */
};

/* ---- a request as a value ------------------------------------------------------------ */

/* Returns a request about a model as messages carry it. Its lists stay those of the request. */
static struct tdm__version_request_message
request_to_message(const char *model, const struct tdm__version_request *request)
{
    return (struct tdm__version_request_message){.model = model,
                                                 .kind = (uint32_t)request->kind,
                                                 .update = request->update,
                                                 .base = request->base,
                                                 .version_floor = request->version_floor,
                                                 .source = tdm__member_to_message(&request->source),
                                                 .members = {.count = request->members_count,
                                                             .get = tdm__member_get_message,
                                                             .arg = request->members},
                                                 .member = tdm__member_to_message(&request->member),
                                                 .hash_high = request->hash.high,
                                                 .hash_low = request->hash.low,
                                                 .proposal = (uint32_t)request->proposal,
                                                 .dead = {.count = request->dead_count,
                                                          .get = tdm__member_get_message,
                                                          .arg = request->dead},
                                                 .version = request->version,
                                                 .epoch = request->epoch,
                                                 .update_version = request->update_version,
                                                 .settled = request->settled,
                                                 .overwrites = request->overwrites};
}

/* Encodes a request about a model as the arguments of version.request. */
static tdm_status write_request(tdm_writer *writer, const char *model,
                                const struct tdm__version_request *request)
{
    const struct tdm__version_request_message message = request_to_message(model, request);

    return tdm__version_request_encode(&message, writer);
}

/* Getter of a message list of requests: fills `item_out`, a struct tdm__version_request_message,
 * from the array `items` of struct tdm__version_set_item. */
static void get_request_message(const void *items, uint32_t index, void *item_out)
{
    const struct tdm__version_set_item *item = (const struct tdm__version_set_item *)items + index;

    *(struct tdm__version_request_message *)item_out =
        request_to_message(item->model, &item->request);
}

/* Encodes requests about several models as the arguments of version.request_set. */
static tdm_status write_request_set(tdm_writer *writer, const struct tdm__version_set_item *items,
                                    uint32_t count)
{
    const struct tdm__version_set_request_message message = {
        .requests = {.count = count, .get = get_request_message, .arg = items}};

    return tdm__version_set_request_encode(&message, writer);
}

/* Copies a list of members out of a message. The caller frees `*members_out`, also on failure. */
static tdm_status read_members(const struct tdm__message_list *list,
                               struct tdm__member **members_out, uint32_t *count_out)
{
    if (list->count > TDM__UPDATE_MEMBERS_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "requesting a weight version failed: the message lists %u members, at "
                         "most %d are allowed. Use fewer receivers of the model",
                         list->count, (int)TDM__UPDATE_MEMBERS_MAX);
    }
    *members_out = calloc(list->count + 1, sizeof(**members_out));
    if (*members_out == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating %u members failed: out of memory", list->count);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        struct tdm__update_member_message item;

        tdm__message_list_read(list, i, &item, sizeof(item));
        (*members_out)[i] = tdm__member_from_message(&item);
    }
    *count_out = list->count;
    return TDM_OK;
}

/* A request that was read from a call, with the lists to which it points. */
struct service_request {
    const char *model; /* Name of the model that the request is about; borrowed from the call. */
    /* Decoded request; its lists point to `members` and `dead`. */
    struct tdm__version_request request;
    struct tdm__member *members; /* Members of the update that the request lists; owned. */
    struct tdm__member *dead;    /* Members that the request says are dead; owned. */
};

/* Frees the lists of a request. */
static void service_request_fini(struct service_request *asked)
{
    free(asked->members);
    free(asked->dead);
}

/* Checks a decoded message and copies it to `asked`. The caller frees the lists in `asked`, also on
 * failure. */
static tdm_status read_request(const struct tdm__version_request_message *message,
                               struct service_request *asked)
{
    struct tdm__version_request *request = &asked->request;

    if (message->kind > TDM__VERSION_RESTORE || message->proposal > TDM__UPDATE_ABORTED) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "requesting a weight version failed: the message has kind %u and proposal "
                         "%u, at most %d and %d are known. " TDM__REMEDY_DEFECT,
                         message->kind, message->proposal, (int)TDM__VERSION_RESTORE,
                         (int)TDM__UPDATE_ABORTED);
    }
    asked->model = message->model;
    *request = (struct tdm__version_request){
        .kind = (enum tdm__version_request_kind)message->kind,
        .update = message->update,
        .base = message->base,
        .version_floor = message->version_floor,
        .source = tdm__member_from_message(&message->source),
        .member = tdm__member_from_message(&message->member),
        .hash = {.high = message->hash_high, .low = message->hash_low},
        .proposal = (enum tdm__update_outcome)message->proposal,
        .version = message->version,
        .epoch = message->epoch,
        .update_version = message->update_version,
        .settled = message->settled,
        .overwrites = message->overwrites};
    TDM_TRY(read_members(&message->members, &asked->members, &request->members_count));
    TDM_TRY(read_members(&message->dead, &asked->dead, &request->dead_count));
    request->members = asked->members;
    request->dead = asked->dead;
    return TDM_OK;
}

/* ---- the service --------------------------------------------------------------------- */

/* A call of version.request that waits for the store. */
struct version_call {
    /* Incoming call of version.request; it is answered exactly once. */
    struct tdm__incoming_call *incoming;
    struct tdm__id update; /* ID of the update that the request is about. */
    bool lists_living;     /* True if the reply lists the living members of the latest update. */
};

/* Copies the members of the latest update that nobody has named dead. Returns their number. */
static uint32_t list_living(const struct tdm__update *update,
                            struct tdm__member living[TDM__UPDATE_MEMBERS_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < update->members_count; i++) {
        if (update->members[i].phase != TDM__MEMBER_DEAD) {
            living[count++] = update->members[i].member;
        }
    }
    return count;
}

/* Returns the epoch, version and outcome of the update `id` if the record remembers that update.
 * Otherwise returns the epoch and version of the latest update, with the outcome 0. */
static struct tdm__past_update find_update(const struct tdm__version_record *record,
                                           const struct tdm__id *id)
{
    for (uint32_t i = 0; i < record->past_updates_count; i++) {
        if (tdm__id_equal(&record->past_updates[i].id, id)) {
            return record->past_updates[i];
        }
    }
    return (struct tdm__past_update){
        .epoch = record->update.epoch,
        .version = record->update.version,
        .outcome = tdm__id_equal(&record->update.id, id) ? record->update.outcome : 0};
}

/* Returns what callers need of a record after a request about the update `id`. */
static struct tdm__version_reply_message reply_of(const struct tdm__version_record *record,
                                                  const struct tdm__id *id)
{
    struct tdm__past_update update = find_update(record, id);

    return (struct tdm__version_reply_message){.version = record->version,
                                               .epoch = update.epoch,
                                               .update_version = update.version,
                                               .outcome = (uint32_t)update.outcome,
                                               .bytes = (uint32_t)record->bytes,
                                               .hash_high = record->hash.high,
                                               .hash_low = record->hash.low,
                                               .version_highest = record->version_highest,
                                               .latest = record->update.id,
                                               .latest_outcome = (uint32_t)record->update.outcome};
}

/* Callback of the version client: replies to a waiting call of version.request with the result. */
static void on_record_reply(void *arg, tdm_status status, const char *detail,
                            const struct tdm__version_record *record)
{
    struct version_call *pending = arg;

    if (status != TDM_OK) {
        tdm__incoming_fail(pending->incoming, status, detail);
    } else {
        struct tdm__member living[TDM__UPDATE_MEMBERS_MAX];
        struct tdm__version_reply_message reply;

        tdm__failpoint_hit("daemon.version_stored");
        reply = reply_of(record, &pending->update);
        if (pending->lists_living) {
            reply.living = (struct tdm__message_list){.count = list_living(&record->update, living),
                                                      .get = tdm__member_get_message,
                                                      .arg = living};
        }
        tdm__incoming_reply_message(pending->incoming, tdm__version_reply_table(), &reply);
    }
    free(pending);
}

/* Submits a decoded request to the version client. On TDM_OK on_record_reply() answers the call. */
static tdm_status submit_to_store(struct tdm__version_client *versions,
                                  struct tdm__incoming_call *incoming,
                                  const struct service_request *asked)
{
    struct version_call *pending = calloc(1, sizeof(*pending));
    tdm_status status;

    if (pending == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a call of version.request failed: out of memory");
    }
    *pending = (struct version_call){incoming, asked->request.update,
                                     asked->request.kind == TDM__VERSION_READ};
    tdm__failpoint_hit("daemon.version_request");
    status = tdm__version_client_submit(versions, asked->model, tdm__incoming_deadline(incoming),
                                        &asked->request, on_record_reply, pending);
    if (status != TDM_OK) {
        free(pending);
    }
    return status;
}

/* Handles a call of version.request. */
static tdm_status serve_request(struct tdm__version_client *versions,
                                struct tdm__incoming_call *incoming)
{
    struct service_request asked = {.model = NULL};
    struct tdm__version_request_message message;
    tdm_status status;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__version_request_table(), &message));
    status = read_request(&message, &asked);
    if (status == TDM_OK) {
        status = submit_to_store(versions, incoming, &asked);
    }
    service_request_fini(&asked);
    return status;
}

/* ---- sets of requests ---------------------------------------------------------------- */

/* A call of version.request_set that waits for the store. */
struct version_set_call {
    /* Incoming call of version.request_set; it is answered exactly once. */
    struct tdm__incoming_call *incoming;
    struct tdm__id updates[TDM__VERSION_SET_MAX]; /* IDs of the updates of the requests. */
};

/* What the getter of a list of replies needs. */
struct reply_source {
    const struct tdm__version_record *records; /* Records after the requests. */
    const struct tdm__id *updates;             /* ID of the update of each request. */
};

/* Getter of a message list of replies: fills `item_out`, a struct tdm__version_reply_message. */
static void get_reply_message(const void *arg, uint32_t index, void *item_out)
{
    const struct reply_source *source = arg;

    *(struct tdm__version_reply_message *)item_out =
        reply_of(&source->records[index], &source->updates[index]);
}

/* Callback of the version client: replies to a waiting call of version.request_set. */
static void on_records_reply(void *arg, tdm_status status, const char *detail,
                             const struct tdm__version_record *records, uint32_t count)
{
    struct version_set_call *pending = arg;

    if (status != TDM_OK) {
        tdm__incoming_fail(pending->incoming, status, detail);
    } else {
        const struct reply_source source = {records, pending->updates};
        const struct tdm__version_set_reply_message reply = {
            .replies = {.count = count, .get = get_reply_message, .arg = &source}};

        tdm__failpoint_hit("daemon.version_stored");
        tdm__incoming_reply_message(pending->incoming, tdm__version_set_reply_table(), &reply);
    }
    free(pending);
}

/* Submits a set of requests. On TDM_OK on_records_reply() answers the call. */
static tdm_status submit_set(struct tdm__version_client *versions,
                             struct tdm__incoming_call *incoming,
                             const struct tdm__version_set_item *items, uint32_t count)
{
    struct version_set_call *pending = calloc(1, sizeof(*pending));
    tdm_status status;

    if (pending == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating a call of version.request_set failed: out of memory");
    }
    pending->incoming = incoming;
    for (uint32_t i = 0; i < count; i++) {
        pending->updates[i] = items[i].request.update;
    }
    tdm__failpoint_hit("daemon.version_request");
    status = tdm__version_client_submit_set(
        versions, items, count, tdm__incoming_deadline(incoming), on_records_reply, pending);
    if (status != TDM_OK) {
        free(pending);
    }
    return status;
}

/* Handles a call of version.request_set. */
static tdm_status serve_request_set(struct tdm__version_client *versions,
                                    struct tdm__incoming_call *incoming)
{
    struct service_request asked[TDM__VERSION_SET_MAX] = {{.model = NULL}};
    struct tdm__version_set_item items[TDM__VERSION_SET_MAX];
    struct tdm__version_set_request_message message;
    tdm_status status = TDM_OK;
    uint32_t read_count = 0;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__version_set_request_table(), &message));
    if (message.requests.count == 0 || message.requests.count > TDM__VERSION_SET_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "requesting a version of several models failed: the message names %u "
                         "models, expected 1 to %d. Commit at most %d models together",
                         message.requests.count, TDM__VERSION_SET_MAX, TDM__VERSION_SET_MAX);
    }
    while (read_count < message.requests.count && status == TDM_OK) {
        struct tdm__version_request_message request;

        tdm__message_list_read(&message.requests, read_count, &request, sizeof(request));
        status = read_request(&request, &asked[read_count]);
        items[read_count] =
            (struct tdm__version_set_item){asked[read_count].model, asked[read_count].request};
        read_count++;
    }
    if (status == TDM_OK) {
        status = submit_set(versions, incoming, items, read_count);
    }
    for (uint32_t i = 0; i < read_count; i++) {
        service_request_fini(&asked[i]);
    }
    return status;
}

/* Handles one call of a method of the service "version", on the loop's thread. */
static void version_serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    tdm_status status;

    if (strcmp(method, "version.request") == 0) {
        status = serve_request(self, incoming);
    } else if (strcmp(method, "version.request_set") == 0) {
        status = serve_request_set(self, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
        return;
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Closes the service's version client; requests that wait fail. */
static void version_service_destroy(void *self)
{
    tdm__version_client_close(self);
}

const struct tdm__service_ops tdm__version_service = {
    .prefix = "version", .serve = version_serve, .destroy = version_service_destroy};

tdm_status tdm__version_service_create(struct tdm__loop *loop, struct tdm__store *store,
                                       void **self_out)
{
    struct tdm__version_client *versions;

    TDM_TRY(tdm__version_client_open(loop, store, &versions));
    *self_out = versions;
    return TDM_OK;
}

/* ---- the other end ------------------------------------------------------------------- */

/* Returns what callers need of a reply of version.request. */
static struct tdm__version_reply reply_from_message(const struct tdm__version_reply_message *reply)
{
    return (struct tdm__version_reply){.version = reply->version,
                                       .epoch = reply->epoch,
                                       .update_version = reply->update_version,
                                       .outcome = (enum tdm__update_outcome)reply->outcome,
                                       .bytes = (enum tdm__version_bytes)reply->bytes,
                                       .hash = {.high = reply->hash_high, .low = reply->hash_low}};
}

/* Decodes the reply of version.request. */
static tdm_status read_reply(const tdm_value *value, struct tdm__version_reply *result)
{
    struct tdm__version_reply_message reply;

    TDM_TRY(tdm__version_reply_decode(value, &reply));
    *result = reply_from_message(&reply);
    return TDM_OK;
}

/* Decodes the reply of version.request_set, which must have `count` parts. */
static tdm_status read_replies(const tdm_value *value, uint32_t count,
                               struct tdm__version_reply *results)
{
    struct tdm__version_set_reply_message message;

    TDM_TRY(tdm__version_set_reply_decode(value, &message));
    if (message.replies.count != count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "requesting a version of several models failed: the daemon replied about "
                         "%u models, expected %u. " TDM__REMEDY_DEFECT,
                         message.replies.count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct tdm__version_reply_message reply;

        tdm__message_list_read(&message.replies, i, &reply, sizeof(reply));
        results[i] = reply_from_message(&reply);
    }
    return TDM_OK;
}

/* Decides whether to send a request again: the store or the daemon did not reply and the deadline
 * has not passed. Sleeps RETRY_PAUSE_MS before it returns true, which keeps callers from polling an
 * unavailable store. */
static bool should_retry(tdm_status status, int64_t deadline_ms)
{
    const struct timespec pause = {.tv_nsec = RETRY_PAUSE_MS * 1000000L};

    if ((status != TDM_E_STORE && status != TDM_E_TIMEOUT) ||
        tdm__deadline_remaining_ms(deadline_ms) == 0) {
        return false;
    }
    (void)nanosleep(&pause, NULL);
    return true;
}

/* Returns how long the next attempt may wait for a reply, in milliseconds, limited by the time left
 * until `deadline_ms`. */
static int64_t attempt_timeout_ms(int64_t deadline_ms)
{
    int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);

    return remaining_ms < 0 || remaining_ms > ATTEMPT_TIMEOUT_MS ? ATTEMPT_TIMEOUT_MS
                                                                 : remaining_ms;
}

/* Calls a method of the daemon, again if the store or the daemon does not reply, and blocks until
 * the reply or the end of `timeout_ms` milliseconds. The caller destroys the document with the
 * reply. */
static tdm_status call_daemon(tdm_runtime *runtime, const char *method, struct tdm_bytes arguments,
                              int64_t timeout_ms, tdm_document **document_out)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    char trouble[TDM__ERROR_DETAIL_BYTES] = ""; /* Last failure of the store. */
    tdm_status status;

    do {
        status = tdm__runtime_call_daemon(runtime, method, arguments,
                                          attempt_timeout_ms(deadline_ms), document_out);
        if (status == TDM_E_STORE) {
            (void)snprintf(trouble, sizeof(trouble), "%s", tdm_error_detail());
        }
    } while (should_retry(status, deadline_ms));
    /* The last attempt has little time. What the store said before explains more. */
    return status == TDM_E_TIMEOUT && trouble[0] != '\0'
               ? tdm__fail(TDM_E_STORE,
                           "requesting a weight version failed: no reply within %lld ms, and "
                           "before that: %s. Check that the store runs",
                           (long long)timeout_ms, trouble)
               : status;
}

/* Sends a request about one model. The caller destroys the document with the reply. */
static tdm_status call_request(tdm_runtime *runtime, const char *model,
                               const struct tdm__version_request *request, int64_t timeout_ms,
                               tdm_document **document_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = write_request(writer, model, request);
    if (status == TDM_OK) {
        status = call_daemon(runtime, "version.request", tdm_writer_bytes(writer), timeout_ms,
                             document_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__version_service_call(tdm_runtime *runtime, const char *model,
                                     const struct tdm__version_request *request, int64_t timeout_ms,
                                     struct tdm__version_reply *reply_out)
{
    tdm_document *document;
    tdm_status status;

    TDM_TRY(call_request(runtime, model, request, timeout_ms, &document));
    status = read_reply(tdm_document_root(document), reply_out);
    tdm_document_destroy(document);
    return status;
}

tdm_status tdm__version_service_call_set(tdm_runtime *runtime,
                                         const struct tdm__version_set_item *items, uint32_t count,
                                         int64_t timeout_ms, struct tdm__version_reply *replies_out)
{
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = write_request_set(writer, items, count);
    if (status == TDM_OK) {
        status = call_daemon(runtime, "version.request_set", tdm_writer_bytes(writer), timeout_ms,
                             &document);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    status = read_replies(tdm_document_root(document), count, replies_out);
    tdm_document_destroy(document);
    return status;
}

/* Decodes the reply of a READ request. */
static tdm_status read_summary(const tdm_value *value, struct tdm__version_summary *summary_out)
{
    struct tdm__version_reply_message reply;

    TDM_TRY(tdm__version_reply_decode(value, &reply));
    *summary_out =
        (struct tdm__version_summary){.version = reply.version,
                                      .version_highest = reply.version_highest,
                                      .latest = reply.latest,
                                      .outcome = (enum tdm__update_outcome)reply.latest_outcome};
    return read_members(&reply.living, &summary_out->living, &summary_out->living_count);
}

tdm_status tdm__version_service_read(tdm_runtime *runtime, const char *model, int64_t timeout_ms,
                                     struct tdm__version_summary *summary_out)
{
    const struct tdm__version_request read = {.kind = TDM__VERSION_READ};
    struct tdm__version_summary summary = {.living = NULL};
    tdm_document *document;
    tdm_status status;

    TDM_TRY(call_request(runtime, model, &read, timeout_ms, &document));
    status = read_summary(tdm_document_root(document), &summary);
    tdm_document_destroy(document);
    if (status != TDM_OK) {
        free(summary.living);
        return status;
    }
    *summary_out = summary;
    return TDM_OK;
}
