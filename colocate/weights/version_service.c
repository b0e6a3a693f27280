/* version_service.c - the daemon's service "version": the commit protocol for its processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/version_service.h"

#include "actors/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/step.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ATTEMPT_MS = 2000, PAUSE_MS = 20, REQUEST_VALUES = 16 };

/* ---- a request as a value --------------------------------------------------------------- */

static void write_member(tdm_writer *writer, const struct tdm__member *member)
{
    tdm_write_array(writer, 2);
    tdm_write_bytes(writer, member->actor.bytes, sizeof(member->actor.bytes));
    tdm_write_uint(writer, member->incarnation);
}

static void write_members(tdm_writer *writer, const struct tdm__member *members, uint32_t count)
{
    tdm_write_array(writer, count);
    for (uint32_t i = 0; i < count; i++) {
        write_member(writer, &members[i]);
    }
}

static void write_request(tdm_writer *writer, const char *model,
                          const struct tdm__version_request *request)
{
    tdm_write_array(writer, REQUEST_VALUES);
    tdm_write_string(writer, model);
    tdm_write_uint(writer, (uint64_t)request->kind);
    tdm_write_bytes(writer, request->update.bytes, sizeof(request->update.bytes));
    tdm_write_uint(writer, request->base);
    tdm_write_uint(writer, request->version_floor);
    write_member(writer, &request->source);
    write_members(writer, request->members, request->members_count);
    write_member(writer, &request->member);
    tdm_write_uint(writer, request->hash.high);
    tdm_write_uint(writer, request->hash.low);
    tdm_write_uint(writer, (uint64_t)request->proposal);
    write_members(writer, request->dead, request->dead_count);
    tdm_write_uint(writer, request->version);
    tdm_write_uint(writer, request->epoch);
    tdm_write_uint(writer, request->update_version);
    tdm_write_bool(writer, request->settled);
}

static tdm_status read_id(const tdm_value *value, struct tdm__id *id)
{
    struct tdm_bytes bytes = tdm_value_bytes(value);

    if (bytes.size_bytes != sizeof(id->bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "an id of %zu bytes, not %zu", bytes.size_bytes,
                         sizeof(id->bytes));
    }
    memcpy(id->bytes, bytes.data, sizeof(id->bytes));
    return TDM_OK;
}

static tdm_status read_member(const tdm_value *value, struct tdm__member *member)
{
    TDM_TRY(read_id(tdm_value_at(value, 0), &member->actor));
    member->incarnation = tdm_value_uint(tdm_value_at(value, 1), 0);
    return TDM_OK;
}

/* The caller frees `*members_out`, also on failure. */
static tdm_status read_members(const tdm_value *value, struct tdm__member **members_out,
                               uint32_t *count_out)
{
    uint32_t count = tdm_value_count(value);

    if (count > TDM__UPDATE_MEMBERS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u members of an update, at most %d", count,
                         (int)TDM__UPDATE_MEMBERS_MAX);
    }
    *members_out = calloc(count + 1, sizeof(**members_out));
    if (*members_out == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u members", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(read_member(tdm_value_at(value, i), &(*members_out)[i]));
    }
    *count_out = count;
    return TDM_OK;
}

/* A request read from a call, with what its pointers point at. */
struct asked {
    const char *model; /* borrowed from the call */
    struct tdm__version_request request;
    struct tdm__member *members; /* owned */
    struct tdm__member *dead;    /* owned */
};

static tdm_status read_request(const tdm_value *value, struct asked *asked)
{
    struct tdm__version_request *request = &asked->request;
    uint64_t kind = tdm_value_uint(tdm_value_at(value, 1), UINT64_MAX);
    uint64_t proposal = tdm_value_uint(tdm_value_at(value, 10), UINT64_MAX);

    asked->model = tdm_value_string(tdm_value_at(value, 0), "");
    if (tdm_value_count(value) != REQUEST_VALUES || kind > TDM__VERSION_RESTORE ||
        proposal > TDM__UPDATE_ABORTED) {
        return tdm__fail(TDM_E_PROTOCOL, "version.ask with %u values, kind %llu, proposal %llu",
                         tdm_value_count(value), (unsigned long long)kind,
                         (unsigned long long)proposal);
    }
    request->kind = (enum tdm__version_request_kind)kind;
    request->proposal = (enum tdm__update_outcome)proposal;
    TDM_TRY(read_id(tdm_value_at(value, 2), &request->update));
    request->base = tdm_value_uint(tdm_value_at(value, 3), 0);
    request->version_floor = tdm_value_uint(tdm_value_at(value, 4), 0);
    TDM_TRY(read_member(tdm_value_at(value, 5), &request->source));
    TDM_TRY(read_members(tdm_value_at(value, 6), &asked->members, &request->members_count));
    TDM_TRY(read_member(tdm_value_at(value, 7), &request->member));
    request->hash.high = tdm_value_uint(tdm_value_at(value, 8), 0);
    request->hash.low = tdm_value_uint(tdm_value_at(value, 9), 0);
    TDM_TRY(read_members(tdm_value_at(value, 11), &asked->dead, &request->dead_count));
    request->version = tdm_value_uint(tdm_value_at(value, 12), 0);
    request->epoch = tdm_value_uint(tdm_value_at(value, 13), 0);
    request->update_version = tdm_value_uint(tdm_value_at(value, 14), 0);
    request->settled = tdm_value_bool(tdm_value_at(value, 15), 0) != 0;
    request->members = asked->members;
    request->dead = asked->dead;
    return TDM_OK;
}

/* ---- the service ------------------------------------------------------------------------ */

struct question {
    struct tdm__incoming *incoming;
    struct tdm__id update;
};

/* Epoch and version of the update asked about where it is remembered, else of the latest. */
static struct tdm__update_past find_update(const struct tdm__version_record *record,
                                           const struct tdm__id *id)
{
    for (uint32_t i = 0; i < record->past_count; i++) {
        if (tdm__id_equal(&record->past[i].id, id)) {
            return record->past[i];
        }
    }
    return (struct tdm__update_past){
        .epoch = record->update.epoch,
        .version = record->update.version,
        .outcome = tdm__id_equal(&record->update.id, id) ? record->update.outcome : 0};
}

static void on_record(void *arg, tdm_status status, const char *detail,
                      const struct tdm__version_record *record)
{
    struct question *question = arg;

    if (status != TDM_OK) {
        tdm__incoming_fail(question->incoming, status, detail);
    } else {
        struct tdm__update_past update;

        tdm__step("daemon.version_stored");
        update = find_update(record, &question->update);
        tdm__incoming_reply_pack(question->incoming, "uuuu?uu", record->version, update.epoch,
                                 update.version, (uint64_t)update.outcome, record->lost ? 1 : 0,
                                 record->hash.high, record->hash.low);
    }
    free(question);
}

static tdm_status ask_store(struct tdm__versions *versions, struct tdm__incoming *incoming,
                            const struct asked *asked)
{
    struct question *question = calloc(1, sizeof(*question));
    tdm_status status;

    if (question == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a question about versions");
    }
    *question = (struct question){incoming, asked->request.update};
    tdm__step("daemon.version_ask");
    status = tdm__versions_ask(versions, asked->model, tdm__incoming_deadline(incoming),
                               &asked->request, on_record, question);
    if (status != TDM_OK) {
        free(question);
    }
    return status;
}

static void serve(void *self, struct tdm__incoming *incoming)
{
    struct asked asked = {.model = NULL};
    const tdm_value *value;
    tdm_status status;

    if (strcmp(tdm__incoming_method(incoming), "version.ask") != 0) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, tdm__incoming_method(incoming));
        return;
    }
    status = tdm__incoming_value(incoming, &value);
    if (status == TDM_OK) {
        status = read_request(value, &asked);
    }
    if (status == TDM_OK) {
        status = ask_store(self, incoming, &asked);
    }
    free(asked.members);
    free(asked.dead);
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

static void destroy(void *self)
{
    tdm__versions_close(self);
}

const struct tdm__service_ops tdm__version_service = {
    .prefix = "version", .serve = serve, .destroy = destroy};

tdm_status tdm__version_service_create(struct tdm__loop *loop, struct tdm__store *store,
                                       void **self_out)
{
    struct tdm__versions *versions;

    TDM_TRY(tdm__versions_open(loop, store, &versions));
    *self_out = versions;
    return TDM_OK;
}

/* ---- the other end ---------------------------------------------------------------------- */

static tdm_status read_answer(const tdm_value *value, struct tdm__version_answer *answer)
{
    uint64_t outcome;
    int lost;

    TDM_TRY(tdm_unpack(value, "uuuu?uu", &answer->version, &answer->epoch,
                       &answer->update_version, &outcome, &lost, &answer->hash.high,
                       &answer->hash.low));
    answer->outcome = (enum tdm__update_outcome)outcome;
    answer->lost = lost != 0;
    return TDM_OK;
}

/* The same question changes nothing the second time; but a store that is away is not to be
 * asked without a breath.  False when the time is over. */
static bool may_ask_again(tdm_status status, int64_t deadline_ms)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};

    if ((status != TDM_E_STORE && status != TDM_E_TIMEOUT) ||
        tdm__deadline_left(deadline_ms) == 0) {
        return false;
    }
    (void)nanosleep(&pause, NULL);
    return true;
}

static int64_t attempt_ms(int64_t deadline_ms)
{
    int64_t left_ms = tdm__deadline_left(deadline_ms);

    return left_ms < 0 || left_ms > ATTEMPT_MS ? ATTEMPT_MS : left_ms;
}

tdm_status tdm__version_call(tdm_runtime *runtime, const char *model,
                             const struct tdm__version_request *request, int64_t timeout_ms,
                             struct tdm__version_answer *answer_out)
{
    int64_t deadline_ms = tdm__deadline_in(timeout_ms);
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    write_request(writer, model, request);
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        do {
            status = tdm__runtime_ask(runtime, "version.ask", tdm_writer_bytes(writer),
                                      attempt_ms(deadline_ms), &document);
        } while (may_ask_again(status, deadline_ms));
    }
    if (status == TDM_OK) {
        status = read_answer(tdm_document_root(document), answer_out);
        tdm_document_destroy(document);
    }
    tdm_writer_destroy(writer);
    return status;
}
