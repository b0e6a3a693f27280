/* far.c - engines on other GPUs or nodes than the trainers: what they have in place of shared
 * memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/far.h"

#include "actors/runtime.h"
#include "colocate/comm/comm.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/step.h"

#include <stdio.h>
#include <stdlib.h>

enum { TRAINER = 0, ENGINE = 1, ENDS = 2 };
enum { OFF_MS = 5000 };

/* ---- one end ---------------------------------------------------------------------------- */

static tdm_status make_bucket(struct tdm__line *line, uint64_t size_bytes)
{
    const struct tdm_region_options bucket = {
        .tag = "bucket", .size_bytes = size_bytes, .policy = TDM_REGION_DROP, .paused = 1};

    if (line->bucket != NULL && tdm_region_size(line->bucket) >= size_bytes) {
        return TDM_OK;
    }
    tdm_region_destroy(line->bucket);
    line->bucket = NULL;
    return tdm__region_create(line->regions, &bucket, &line->bucket);
}

tdm_status tdm__line_open(struct tdm__line *line, tdm_runtime *runtime, uint32_t rank,
                          tdm_call *call)
{
    struct tdm_group_options options = {.rank = rank, .ranks_count = ENDS, .on_gpu = 1};
    uint64_t bucket_bytes;

    TDM_TRY(tdm_call_unpack(call, "ssiu", &options.name, &options.node_id, &options.timeout_ms,
                            &bucket_bytes));
    tdm_group_leave(line->group);
    line->group = NULL;
    if (rank == ENGINE) {
        TDM_TRY(make_bucket(line, bucket_bytes));
    }
    return tdm_group_join(runtime, &options, &line->group);
}

void tdm__line_close(struct tdm__line *line)
{
    tdm_group_leave(line->group);
    tdm_region_destroy(line->bucket);
    *line = (struct tdm__line){.group = NULL};
}

tdm_status tdm__line_resume(struct tdm__line *line, int64_t timeout_ms)
{
    return line->bucket == NULL || tdm_region_is_resident(line->bucket)
               ? TDM_OK
               : tdm_region_resume(line->bucket, timeout_ms);
}

tdm_status tdm__line_pause(struct tdm__line *line)
{
    return line->bucket != NULL && tdm_region_is_resident(line->bucket)
               ? tdm_region_pause(line->bucket)
               : TDM_OK;
}

tdm_status tdm__line_send(struct tdm__line *line, const void *data, uint64_t size_bytes)
{
    TDM_TRY(tdm_group_broadcast(line->group, &size_bytes, sizeof(size_bytes), TRAINER));
    /* Only read: the root's data is what the others get. */
    return tdm_group_broadcast(line->group, (void *)(uintptr_t)data, size_bytes, TRAINER);
}

static void note_sent(const struct tdm__line_load *load, int64_t begin_ns,
                      struct tdm__rank *trainer)
{
    struct tdm__span span = {.begin_ns = begin_ns, .bytes = load->size_bytes};
    uint32_t rank = trainer->context.rank;

    (void)snprintf(span.name, sizeof(span.name), "send bucket %u", load->window);
    (void)snprintf(span.from, sizeof(span.from), "trainer/%u", rank);
    (void)snprintf(span.to, sizeof(span.to), "engine/%u/%u", rank / trainer->per_engine,
                   rank % trainer->per_engine);
    tdm__spans_add_move(&trainer->spans, &span);
}

tdm_status tdm__line_tell(tdm_actor *engine, const struct tdm__line_load *load,
                          tdm_ref **told_out)
{
    tdm__step("trainer.tell");
    return tdm_actor_call(engine, "stage_part", told_out, "b", load->description.data,
                          load->description.size_bytes);
}

tdm_status tdm__line_deliver(struct tdm__line *line, const struct tdm__line_load *load,
                             struct tdm__rank *trainer)
{
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(tdm__line_send(line, load->data, load->size_bytes));
    note_sent(load, begin_ns, trainer);
    return TDM_OK;
}

/* The other end must not wait for what will not be taken. */
static void cut(struct tdm__line *line)
{
    struct tdm__comm *comm = tdm__group_comm(line->group);

    comm->ops->abort(comm);
}

tdm_status tdm__line_receive(struct tdm__line *line, uint64_t *size_bytes_out)
{
    uint64_t size_bytes;

    if (line->bucket == NULL || !tdm_region_is_resident(line->bucket)) {
        cut(line);
        return tdm__fail(TDM_E_STATE, "a bucket is sent to a rank whose own has no memory");
    }
    TDM_TRY(tdm_group_broadcast(line->group, &size_bytes, sizeof(size_bytes), TRAINER));
    if (size_bytes > tdm_region_size(line->bucket)) {
        cut(line);
        return tdm__fail(TDM_E_PROTOCOL, "%llu bytes for a bucket of %zu",
                         (unsigned long long)size_bytes, tdm_region_size(line->bucket));
    }
    *size_bytes_out = size_bytes;
    return tdm_group_broadcast(line->group, tdm_region_address(line->bucket), size_bytes,
                               TRAINER);
}

/* ---- all lines -------------------------------------------------------------------------- */

static tdm_status call_end(tdm_actor *actor, const char *name, const char *node_id,
                           const struct tdm__crew *crew, tdm_ref **ref_out)
{
    return tdm_actor_call(actor, "line", ref_out, "ssiu", name, node_id,
                          (int64_t)crew->spec->update_timeout_ms, crew->window_bytes);
}

static tdm_status call_ends(struct tdm__crew *crew, const struct tdm__id *update,
                            tdm_ref **refs)
{
    struct tdm_actor_info info;
    char id[TDM__ID_TEXT_BYTES];
    char name[TDM__ID_TEXT_BYTES + 16];

    tdm_actor_describe(crew->trainers[0], &info);
    (void)tdm__id_text(update, id);
    for (uint32_t i = 0; i < crew->engines_count; i++) {
        if (crew->engines[i] == NULL) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "line/%s/%u", id, i);
        TDM_TRY(call_end(crew->trainers[i], name, info.node_id, crew, &refs[i]));
        TDM_TRY(call_end(crew->engines[i], name, info.node_id, crew,
                         &refs[crew->engines_count + i]));
    }
    return TDM_OK;
}

static tdm_status ask_to_call_off(struct tdm__crew *crew, const struct tdm__id *update)
{
    struct tdm_actor_info info;
    struct tdm__meet_off_message message;
    char id[TDM__ID_TEXT_BYTES];
    char name[TDM__ID_TEXT_BYTES + 16];
    tdm_writer *writer;
    tdm_status status;

    tdm_actor_describe(crew->trainers[0], &info);
    TDM_TRY(tdm__id_parse(info.node_id, &message.node));
    (void)snprintf(name, sizeof(name), "line/%s", tdm__id_text(update, id));
    message.name = name;
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__meet_off_encode(&message, writer);
    if (status == TDM_OK) {
        status =
            tdm__runtime_ask(crew->runtime, "meet.off", tdm_writer_bytes(writer), OFF_MS, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* A rank that will not come is dead, or is killed for its silence, and that shows here: the
 * rank at the other end of its line must not wait for it.  Where nobody can be told it waits
 * for as long as an update may take.  `status` comes back. */
static tdm_status call_off(struct tdm__crew *crew, const struct tdm__id *update,
                           tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (ask_to_call_off(crew, update) != TDM_OK) {
        tdm__log(TDM__WARN, "job", "lines to the engines are not called off: %s",
                 tdm_error_detail());
    }
    return tdm__fail(status, "%s", detail);
}

tdm_status tdm__lines_make(struct tdm__crew *crew, const struct tdm__id *update)
{
    uint32_t count = ENDS * crew->engines_count;
    tdm_ref **refs;
    tdm_status status;

    if (crew->lines_stand) {
        return TDM_OK;
    }
    refs = calloc((size_t)count + 1, sizeof(*refs));
    if (refs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "calls to %u ranks", count);
    }
    status = call_ends(crew, update, refs);
    if (status == TDM_OK) {
        status = tdm__crew_await(crew, refs, count, (int64_t)crew->spec->update_timeout_ms);
    }
    tdm__crew_release(refs, count);
    free(refs);
    crew->lines_stand = status == TDM_OK;
    if (status != TDM_OK) {
        status = call_off(crew, update, status);
    }
    return tdm__wrap(status, "lines to the engines");
}
