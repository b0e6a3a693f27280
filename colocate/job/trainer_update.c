/* trainer_update.c - a trainer rank's part of an update: by routes, or by names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/comm.h"
#include "colocate/job/targets.h"
#include "colocate/job/trainer.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKET_MS = 10000 };

void tdm__trainer_disconnect(struct trainer *trainer)
{
    tdm__mover_destroy(trainer->mover);
    tdm__route_destroy(trainer->route);
    for (uint32_t i = 0;
         trainer->engine_layouts != NULL && i < trainer->rank.context.ranks_count; i++) {
        tdm__layout_fini(&trainer->engine_layouts[i]);
    }
    free(trainer->engine_layouts);
    trainer->mover = NULL;
    trainer->route = NULL;
    trainer->engine_layouts = NULL;
}

/* ---- methods: engines and memory -------------------------------------------------------- */

static tdm_status started(const struct trainer *trainer)
{
    return trainer->sender != NULL ? TDM_OK
                                   : tdm__fail(TDM_E_STATE, "this rank has not been started");
}

static tdm_status make_mover(struct trainer *trainer, uint64_t image_bytes, bool in_place)
{
    const struct tdm__route_options route = {
        .manifest = trainer->manifest,
        .from = trainer->layouts,
        .from_count = trainer->rank.context.ranks_count,
        .to = trainer->engine_layouts,
        .to_count = trainer->rank.context.ranks_count,
        .image_bytes = image_bytes,
        .window_bytes = in_place ? 0 : trainer->rank.bucket_bytes / TDM__BUCKET_HALVES};
    struct tdm__mover_options mover = {.rank = trainer->rank.context.rank,
                                       .regions = trainer->rank.regions,
                                       .group = trainer->rank.group,
                                       .node = trainer->rank.place.node,
                                       .in_place = in_place};

    TDM_TRY(tdm__route_create(&route, &trainer->route));
    mover.route = trainer->route;
    return tdm__mover_create(&mover, &trainer->mover);
}

/* trainer_connect → update_cost */
tdm_status tdm__trainer_connect(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__trainer_connect_message message;
    uint32_t count = trainer->rank.context.ranks_count;

    TDM_TRY(started(trainer));
    TDM_TRY(tdm__trainer_connect_decode(tdm_call_arguments(call), &message));
    if (message.layouts.count != count) {
        return tdm__fail(TDM_E_PROTOCOL, "layouts of %u engine ranks for %u trainer ranks",
                         message.layouts.count, count);
    }
    tdm__trainer_disconnect(trainer);
    trainer->engine_layouts = calloc(count, sizeof(*trainer->engine_layouts));
    if (trainer->engine_layouts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "layouts of %u ranks", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct tdm_bytes layout;

        tdm__message_list_read(&message.layouts, i, &layout, sizeof(layout));
        TDM_TRY(tdm__layout_decode(layout, &trainer->engine_layouts[i]));
    }
    TDM_TRY(make_mover(trainer, message.weights_bytes, message.in_place));
    return tdm__cost_reply(call, trainer->route);
}

/* → where this rank's bucket is, for a mover */
tdm_status tdm__trainer_take_bucket(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    int64_t begin_ns = tdm__clock_ns();

    tdm__step("trainer.take_bucket");
    TDM_TRY(started(trainer));
    if (trainer->mover != NULL) {
        const tdm_region *bucket = tdm__mover_bucket(trainer->mover);

        TDM_TRY(tdm__mover_resume(trainer->mover, BUCKET_MS));
        tdm__spans_add(&trainer->rank.spans, "resume bucket", begin_ns,
                       bucket == NULL ? 0 : tdm_region_size(bucket), 0);
        return bucket == NULL ? TDM_OK
                              : tdm__target_reply(call, &trainer->rank.place, bucket, NULL);
    }
    TDM_TRY(tdm__sender_resume(trainer->sender, BUCKET_MS));
    tdm__spans_add(&trainer->rank.spans, "resume bucket", begin_ns,
                   tdm__sender_memory_bytes(trainer->sender), 0);
    return TDM_OK;
}

tdm_status tdm__trainer_give_bucket(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    int64_t begin_ns = tdm__clock_ns();

    (void)call;
    tdm__step("trainer.give_bucket");
    TDM_TRY(started(trainer));
    if (trainer->mover != NULL) {
        const tdm_region *bucket = tdm__mover_bucket(trainer->mover);

        TDM_TRY(tdm__mover_pause(trainer->mover));
        tdm__spans_add(&trainer->rank.spans, "pause bucket", begin_ns,
                       bucket == NULL ? 0 : tdm_region_size(bucket), 0);
        return TDM_OK;
    }
    TDM_TRY(tdm__sender_pause(trainer->sender));
    tdm__spans_add(&trainer->rank.spans, "pause bucket", begin_ns,
                   tdm__sender_memory_bytes(trainer->sender), 0);
    return TDM_OK;
}

static tdm_status find_engine(struct trainer *trainer)
{
    uint32_t rank = trainer->rank.context.rank;
    uint32_t per_engine = trainer->rank.per_engine;
    char name[TDM__RANK_NAME_BYTES];

    if (trainer->engine != NULL) {
        return TDM_OK;
    }
    tdm__rank_name(name, trainer->rank.model, "engine/%u/%u", rank / per_engine,
                   trainer->line.group != NULL ? rank % per_engine : 0);
    return tdm_actor_find(trainer->rank.runtime, name, trainer->rank.timeout_ms,
                          &trainer->engine);
}

/* Another one has come by that name. */
tdm_status tdm__trainer_forget_engine(tdm_call *call, void *self)
{
    struct trainer *trainer = self;

    (void)call;
    tdm_actor_destroy(trainer->engine);
    trainer->engine = NULL;
    return TDM_OK;
}

static tdm_status call_stage(struct trainer *trainer, const tdm_writer *lists,
                             tdm_ref **told_out)
{
    TDM_TRY(tdm_writer_status(lists));
    TDM_TRY(find_engine(trainer));
    tdm__step("trainer.tell");
    return tdm_actor_call_packed(trainer->engine, "stage", tdm_writer_bytes(lists), told_out);
}

static tdm_status await_stage(const struct trainer *trainer, tdm_ref *told)
{
    const tdm_value *nothing;
    tdm_status status = tdm_get_value(told, trainer->rank.timeout_ms, &nothing);

    tdm__step("trainer.told");
    tdm_ref_release(told);
    return status;
}

/* The one call per bucket: the engine's first rank gets every rank's list. */
static tdm_status call_engine(struct trainer *trainer, size_t list_bytes)
{
    tdm_writer *writer;
    tdm_ref *told;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, trainer->rank.per_engine);
    for (uint32_t i = 0; i < trainer->rank.per_engine; i++) {
        tdm_write_bytes(writer, trainer->lists + i * list_bytes, list_bytes);
    }
    status = call_stage(trainer, writer, &told);
    tdm_writer_destroy(writer);
    return status == TDM_OK ? await_stage(trainer, told) : status;
}

/* The first rank of the group does, if the engine is there. */
static bool tells_engine(const struct trainer *trainer)
{
    return trainer->rank.context.rank % trainer->rank.per_engine == 0 &&
           !trainer->engine_absent;
}

static tdm_status gather_lists(struct trainer *trainer, struct tdm_bytes list)
{
    size_t wanted = list.size_bytes * trainer->rank.per_engine;

    if (trainer->lists_bytes < wanted) {
        char *lists = realloc(trainer->lists, wanted);

        if (lists == NULL) {
            return tdm__fail(TDM_E_NOMEM, "lists of %zu bytes", wanted);
        }
        trainer->lists = lists;
        trainer->lists_bytes = wanted;
    }
    return tdm_group_gather(trainer->gather, list.data, list.size_bytes, trainer->lists, 0);
}

/* No rank writes where an engine may still read, nor tells of what another could not write; and
 * if one was refused, every rank stops.  The group lives on. */
static tdm_status agree(struct trainer *trainer, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    double worst = status == TDM_OK ? 0 : (double)(trainer->rank.context.rank + 1);
    tdm_status told;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    told = tdm_group_all_reduce_double(trainer->rank.group, &worst, 1, TDM_MAX);
    if (status != TDM_OK) {
        return tdm__fail(status, "%s", detail);
    }
    TDM_TRY(told);
    if (worst > 0) {
        return tdm__fail(TDM_E_ABORTED, "the bucket of trainer rank %d was refused",
                         (int)worst - 1);
    }
    return TDM_OK;
}

/* Something broke on this rank alone: the others must not wait for it. */
static tdm_status give_up(struct trainer *trainer, tdm_status status)
{
    struct tdm__comm *all = tdm__group_comm(trainer->rank.group);
    struct tdm__comm *gather = tdm__group_comm(trainer->gather);

    all->ops->abort(all);
    gather->ops->abort(gather);
    return status;
}

static tdm_status send_bucket(struct trainer *trainer, const struct tdm__id *update,
                              uint64_t epoch, uint32_t bucket)
{
    int64_t begin_ns = tdm__clock_ns();
    struct tdm_bytes list;
    char name[TDM__SPAN_NAME_BYTES];
    tdm_status status;

    tdm__step("trainer.write");
    status = tdm__sender_fill(trainer->sender, bucket);
    tdm__step("trainer.written");
    if (status == TDM_OK) {
        status = tdm__sender_describe(trainer->sender, update, epoch, bucket, &list);
    }
    if (status != TDM_OK) {
        return give_up(trainer, status);
    }
    TDM_TRY(gather_lists(trainer, list));
    status = tells_engine(trainer) ? call_engine(trainer, list.size_bytes) : TDM_OK;
    (void)snprintf(name, sizeof(name), "send bucket %u", bucket);
    tdm__spans_add(&trainer->rank.spans, name, begin_ns,
                   tdm__sender_bucket_bytes(trainer->sender, bucket),
                   tdm__checksum_tensor(list.data, list.size_bytes));
    return agree(trainer, status);
}

/* ---- methods: an update by routes ------------------------------------------------------- */

static tdm_status read_targets(struct trainer *trainer, const struct tdm__message_list *list,
                               const struct tdm__message_list *journals, bool *go_on_out)
{
    uint32_t count = trainer->rank.context.ranks_count;
    struct tdm__target *targets;
    tdm_status status = TDM_OK;

    if (list->count != count || journals->count != count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "targets of %u engine ranks and %u journals, there are %u ranks",
                         list->count, journals->count, count);
    }
    targets = calloc(count, sizeof(*targets));
    if (targets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "targets of %u engine ranks", count);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        struct tdm__message_value target;
        struct tdm__journal_message journal;

        tdm__message_list_read(list, i, &target, sizeof(target));
        tdm__message_list_read(journals, i, &journal, sizeof(journal));
        status = tdm__target_read(target.value, &targets[i]);
        targets[i].journal = tdm__journal_of_message(&journal);
        *go_on_out = *go_on_out || targets[i].journal.next > 0;
    }
    if (status == TDM_OK) {
        trainer->engine_absent = targets[trainer->rank.context.rank].absent;
        status = tdm__mover_open(trainer->mover, targets);
    }
    free(targets);
    return status;
}

/* (far.h): to the engine rank of this rank's number */
tdm_status tdm__trainer_make_line(tdm_call *call, void *self)
{
    return tdm__line_open(&((struct trainer *)self)->line, tdm_runtime_current(), 0, call);
}

/* An update as it goes.  One window may be told of and not be read yet, while the next one is
 * written. */
struct moving {
    struct trainer *trainer;
    const struct tdm__id *update;
    uint64_t epoch;
    tdm_ref *told; /* owned; the engine's answer to come; NULL: none is */
    uint32_t told_window;
    tdm_status telling; /* whether this rank could; the others are yet to learn */
};

static tdm_status of_window(const struct moving *moving, tdm_status status, uint32_t window)
{
    return tdm__wrap(status, "bucket %u of %u", window, moving->trainer->route->windows_count);
}

/* Each rank sees to the engine rank of its number, and waits for no other's. */
static tdm_status tell_far(struct moving *moving, uint32_t window)
{
    struct trainer *trainer = moving->trainer;
    uint32_t rank = trainer->rank.context.rank;
    const struct tdm__route_window *about = &trainer->route->images[rank].windows[window];
    const char *bucket = tdm_region_address(tdm__mover_bucket(trainer->mover));
    struct tdm__line_load load = {.data = bucket + tdm__mover_place(trainer->mover, window),
                                  .size_bytes = about->end - about->begin,
                                  .window = window};

    TDM_TRY(find_engine(trainer));
    TDM_TRY(tdm__mover_describe(trainer->mover, moving->update, moving->epoch, window, rank,
                                &load.description));
    if (load.description.size_bytes == 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__line_tell(trainer->engine, &load, &moving->told));
    return tdm__line_deliver(&trainer->line, &load, &trainer->rank);
}

/* Every rank knows all sums: the engine's source writes all of its ranks' lists. */
static tdm_status tell_engine(struct moving *moving, uint32_t window)
{
    struct trainer *trainer = moving->trainer;
    size_t lists_bytes = 0;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, trainer->rank.per_engine);
    status = tdm_writer_status(writer);
    for (uint32_t i = 0; i < trainer->rank.per_engine && status == TDM_OK; i++) {
        struct tdm_bytes list = {.size_bytes = 0};

        status = tdm__mover_describe(trainer->mover, moving->update, moving->epoch, window,
                                     trainer->rank.context.rank + i, &list);
        if (status == TDM_OK) {
            tdm_write_bytes(writer, list.data, list.size_bytes);
        }
        lists_bytes += list.size_bytes;
    }
    if (status == TDM_OK && lists_bytes > 0) {
        status = call_stage(trainer, writer, &moving->told);
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status tell(struct moving *moving, uint32_t window)
{
    const struct trainer *trainer = moving->trainer;
    tdm_status status = TDM_OK;

    moving->told_window = window;
    if (trainer->line.group != NULL) {
        status = trainer->engine_absent ? TDM_OK : tell_far(moving, window);
    } else if (tells_engine(trainer)) {
        status = tell_engine(moving, window);
    }
    return of_window(moving, status, window);
}

/* Nobody reads, where this rank told of a window, once this returns.  The first error stays. */
static tdm_status await_told(struct moving *moving, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_ref *told = moving->told;

    moving->told = NULL;
    if (told == NULL) {
        return status;
    }
    if (status == TDM_OK) {
        return of_window(moving, await_stage(moving->trainer, told), moving->told_window);
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    (void)await_stage(moving->trainer, told);
    return tdm__fail(status, "%s", detail);
}

/* A line for the engine ranks on this rank's GPU, and one for all others. */
static void note_written(struct trainer *trainer, uint32_t window, int64_t begin_ns)
{
    static const char *const ends[TDM__EDGES_COUNT] = {"same GPU", "other GPUs", "other nodes"};
    const struct tdm__moved *moved = tdm__mover_moved(trainer->mover);
    struct tdm__span span = {.begin_ns = begin_ns};

    (void)snprintf(span.name, sizeof(span.name), "write bucket %u", window);
    (void)snprintf(span.from, sizeof(span.from), "trainer/%u", trainer->rank.context.rank);
    for (uint32_t edge = 0; edge < TDM__EDGES_COUNT; edge++) {
        if (moved->bytes[edge] > 0) {
            (void)snprintf(span.to, sizeof(span.to), "%s", ends[edge]);
            span.bytes = moved->bytes[edge];
            span.checksum = moved->sums[edge];
            tdm__spans_add_move(&trainer->rank.spans, &span);
        }
    }
}

static tdm_status write_window(struct moving *moving, uint32_t window)
{
    struct trainer *trainer = moving->trainer;
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(of_window(moving, tdm__mover_write(trainer->mover, window), window));
    note_written(trainer, window, begin_ns);
    return TDM_OK;
}

/* Counts its sums, and no more.  Who still reads another window has no part of this one. */
static tdm_status skip_window(struct moving *moving, uint32_t window)
{
    struct tdm__mover *mover = moving->trainer->mover;

    tdm__step("trainer.skip");
    TDM_TRY(of_window(moving, tdm__mover_write(mover, window), window));
    return of_window(moving, tdm__mover_share(mover, window), window);
}

/* While engines read the window before, which lies in the other half of their buckets.  When
 * all ranks agree they have, and that half may be written next. */
static tdm_status move_window(struct moving *moving, uint32_t window)
{
    struct trainer *trainer = moving->trainer;
    tdm_status status = moving->telling;

    if (tdm__mover_is_held(trainer->mover, window)) {
        return skip_window(moving, window);
    }
    tdm__step("trainer.write");
    status = status == TDM_OK ? write_window(moving, window) : status;
    TDM_TRY(agree(trainer, await_told(moving, status)));
    status = tdm__mover_share(trainer->mover, window);
    tdm__step("trainer.written");
    if (status != TDM_OK) {
        return give_up(trainer, of_window(moving, status, window));
    }
    moving->telling = tell(moving, window);
    return TDM_OK;
}

/* An engine that just died may have taken its target along: no reason to end the group. */
static tdm_status open_targets(struct trainer *trainer, const struct tdm__message_list *targets,
                               const struct tdm__message_list *journals)
{
    bool go_on = false; /* the same on all ranks: they are told the same */

    TDM_TRY(agree(trainer, read_targets(trainer, targets, journals, &go_on)));
    if (!go_on) {
        return TDM_OK;
    }
    tdm__step("trainer.go_on");
    return tdm__mover_go_on(trainer->mover);
}

/* Where blocks that become FP8 are shared, what each rank converts depends on all of them. */
static tdm_status share_scales(struct trainer *trainer)
{
    tdm_status status;

    if (!tdm__mover_shares_blocks(trainer->mover)) {
        return TDM_OK;
    }
    TDM_TRY(agree(trainer, tdm__mover_measure(trainer->mover)));
    status = tdm__mover_share_scales(trainer->mover);
    return status == TDM_OK ? TDM_OK : give_up(trainer, status);
}

/* However it ends, no engine reads what this rank told of, and nothing of it stays mapped. */
static tdm_status move(struct trainer *trainer, const struct tdm__id *update, uint64_t epoch,
                       const struct tdm__update_parts_message *message)
{
    struct moving moving = {.trainer = trainer, .update = update, .epoch = epoch};
    tdm_status status = open_targets(trainer, &message->targets, &message->journals);

    status = status == TDM_OK ? share_scales(trainer) : status;
    for (uint32_t i = 0; i < trainer->route->windows_count && status == TDM_OK; i++) {
        status = move_window(&moving, i);
    }
    status = status == TDM_OK ? agree(trainer, await_told(&moving, moving.telling))
                              : await_told(&moving, status);
    tdm__mover_close(trainer->mover);
    return status;
}

/* update_parts → parts_sent, by the first rank */
tdm_status tdm__trainer_update_parts(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__update_parts_message message;

    TDM_TRY(started(trainer));
    TDM_TRY(tdm__update_parts_decode(tdm_call_arguments(call), &message));
    if (trainer->mover == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "an update by parts without a route");
    }
    TDM_TRY(move(trainer, &message.update, message.epoch, &message));
    return trainer->rank.context.rank == 0
               ? tdm__sent_reply(call, trainer->mover, trainer->rank.context.ranks_count)
               : TDM_OK;
}

/* ---- methods: an update by names -------------------------------------------------------- */

/* update_names → bytes, buckets */
tdm_status tdm__trainer_update(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__update_names_message message;
    uint32_t engine = trainer->rank.context.rank / trainer->rank.per_engine;
    bool present;
    uint32_t count;

    TDM_TRY(started(trainer));
    count = tdm__sender_buckets_count(trainer->sender);
    TDM_TRY(tdm__update_names_decode(tdm_call_arguments(call), &message));
    if (engine >= message.present.count) {
        return tdm__fail(TDM_E_PROTOCOL, "an update of %u engines for engine %u",
                         message.present.count, engine);
    }
    tdm__message_list_read(&message.present, engine, &present, sizeof(present));
    trainer->engine_absent = !present;
    for (uint32_t bucket = 0; bucket < count; bucket++) {
        TDM_TRY(tdm__wrap(send_bucket(trainer, &message.update, message.epoch, bucket),
                          "bucket %u of %u", bucket, count));
    }
    return tdm_call_reply(call, "uu", trainer->manifest->size_bytes, (uint64_t)count);
}
