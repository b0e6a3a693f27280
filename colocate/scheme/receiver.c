/* receiver.c - the receiving end of a scheme: its life, its gate, and who may read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/receiver.h"

#include "colocate/scheme/arrival.h"
#include "colocate/scheme/board.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMEOUT_MS = 60000, LEAVE_MS = 1000, AFTER_FAILURE_MS = 20 };

/* ---- all of this process ---------------------------------------------------------------- */

static pthread_mutex_t process_mutex = PTHREAD_MUTEX_INITIALIZER;
static tdm_weights_receiver *process_receivers; /* guarded by it */

static tdm_weights_receiver *find_in_process(const char *model)
{
    tdm_weights_receiver *receiver;

    (void)pthread_mutex_lock(&process_mutex);
    receiver = process_receivers;
    while (receiver != NULL && strcmp(receiver->round.model, model) != 0) {
        receiver = receiver->next_in_process;
    }
    (void)pthread_mutex_unlock(&process_mutex);
    return receiver;
}

static void add_to_process(tdm_weights_receiver *receiver)
{
    (void)pthread_mutex_lock(&process_mutex);
    receiver->next_in_process = process_receivers;
    process_receivers = receiver;
    (void)pthread_mutex_unlock(&process_mutex);
}

static void remove_from_process(const tdm_weights_receiver *receiver)
{
    (void)pthread_mutex_lock(&process_mutex);
    for (tdm_weights_receiver **place = &process_receivers; *place != NULL;
         place = &(*place)->next_in_process) {
        if (*place == receiver) {
            *place = receiver->next_in_process;
            break;
        }
    }
    (void)pthread_mutex_unlock(&process_mutex);
}

/* ---- create ----------------------------------------------------------------------------- */

static tdm_status copy_tensor(const struct tdm_weights_tensor *from,
                              struct tdm_weights_tensor *to)
{
    bool parted = from->shards_count > 1;

    if (from->info.name == NULL) {
        return tdm__fail(TDM_E_INVAL, "a tensor has no name");
    }
    if (parted && (from->shard >= from->shards_count || from->info.dims_count == 0 ||
                   from->info.shape[0] % from->shards_count != 0)) {
        return tdm__fail(TDM_E_INVAL, "tensor %s: part %u of %u of its %llu rows",
                         from->info.name, from->shard, from->shards_count,
                         from->info.dims_count == 0 ? 0ULL
                                                    : (unsigned long long)from->info.shape[0]);
    }
    *to = *from;
    to->info.name = strdup(from->info.name);
    return to->info.name == NULL ? tdm__fail(TDM_E_NOMEM, "the name of a tensor") : TDM_OK;
}

static tdm_status make(tdm_weights_receiver *receiver,
                       const struct tdm_weights_receiver_options *options)
{
    uint32_t count = options->tensors_count;

    if (count == 0 || count > TDM__MANIFEST_TENSORS_MAX) {
        return tdm__fail(TDM_E_INVAL, "a receiver of %u tensors, 1 to %d", count,
                         TDM__MANIFEST_TENSORS_MAX);
    }
    receiver->tensors = calloc(count, sizeof(*receiver->tensors));
    receiver->places = calloc(count, sizeof(*receiver->places));
    receiver->current = calloc(count, sizeof(*receiver->current));
    if (receiver->tensors == NULL || receiver->places == NULL || receiver->current == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a receiver of %u tensors", count);
    }
    receiver->tensors_count = count;
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(copy_tensor(&options->tensors[i], &receiver->tensors[i]));
    }
    return TDM_OK;
}

static void destroy(tdm_weights_receiver *receiver)
{
    for (uint32_t i = 0; receiver->tensors != NULL && i < receiver->tensors_count; i++) {
        free((void *)receiver->tensors[i].info.name);
    }
    tdm__arrival_fini(&receiver->arrival, &receiver->contents);
    tdm__arrival_fini(&receiver->serving, &receiver->contents);
    tdm_ref_release(receiver->next);
    tdm_group_leave(receiver->group);
    tdm_actor_destroy(receiver->board);
    tdm__contents_fini(&receiver->contents);
    free(receiver->tensors);
    free(receiver->places);
    free(receiver->current);
    (void)pthread_mutex_destroy(&receiver->mutex);
    (void)pthread_cond_destroy(&receiver->changed);
    free(receiver);
}

static void init_locks(tdm_weights_receiver *receiver)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&receiver->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&receiver->mutex, NULL);
}

tdm_status tdm_weights_receiver_create(tdm_runtime *runtime,
                                       const struct tdm_weights_receiver_options *options,
                                       tdm_weights_receiver **receiver_out)
{
    TDM__REQUIRE(receiver_out);
    *receiver_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    tdm_weights_receiver *receiver = calloc(1, sizeof(*receiver));
    tdm_status status;

    if (receiver == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a receiver of weights");
    }
    init_locks(receiver);
    receiver->timeout_ms = options->timeout_ms == 0 ? TIMEOUT_MS : options->timeout_ms;
    receiver->background = options->background != 0;
    receiver->on_version = options->on_version;
    receiver->arg = options->arg;
    status = tdm__round_init(&receiver->round, runtime, options->model);
    if (status == TDM_OK && find_in_process(options->model) != NULL) {
        status = tdm__fail(TDM_E_EXISTS, "this process has a receiver of %s", options->model);
    }
    if (status == TDM_OK) {
        status = tdm__round_self(&receiver->round, &receiver->self);
    }
    if (status == TDM_OK) {
        status = make(receiver, options);
    }
    if (status != TDM_OK) {
        destroy(receiver);
        return status;
    }
    add_to_process(receiver);
    *receiver_out = receiver;
    return TDM_OK;
}

const struct tdm_weights_tensor *tdm__receiver_tensors(const tdm_weights_receiver *receiver,
                                                       uint32_t *count_out)
{
    *count_out = receiver->tensors_count;
    return receiver->tensors;
}

/* ---- join ------------------------------------------------------------------------------- */

static bool same_shape(const struct tdm_tensor_info *a, const struct tdm_tensor_info *b)
{
    return a->dtype == b->dtype && a->dims_count == b->dims_count &&
           memcmp(a->shape, b->shape, a->dims_count * sizeof(a->shape[0])) == 0;
}

static tdm_status find_place(const tdm_weights_receiver *receiver,
                             const struct tdm_tensor_info *info, struct tdm__place_in *place)
{
    const struct tdm__manifest *manifest = receiver->contents.manifest;
    const struct tdm__bucket_plan *plan = receiver->contents.plan;
    uint32_t i = 0;

    while (i < manifest->tensors_count && strcmp(manifest->tensors[i].name, info->name) != 0) {
        i++;
    }
    if (i == manifest->tensors_count) {
        return tdm__fail(TDM_E_INVAL, "tensor %s: the sender of %s does not have it",
                         info->name, receiver->round.model);
    }
    if (!same_shape(info, &manifest->tensors[i])) {
        return tdm__fail(TDM_E_INVAL,
                         "tensor %s: %s of %llu bytes here, %s of %llu bytes at the sender, or "
                         "another shape",
                         info->name, tdm_dtype_name(info->dtype),
                         (unsigned long long)tdm_tensor_bytes(info),
                         tdm_dtype_name(manifest->tensors[i].dtype),
                         (unsigned long long)tdm_tensor_bytes(&manifest->tensors[i]));
    }
    place->bucket = 0;
    while (plan->buckets[place->bucket].tensors_first +
               plan->buckets[place->bucket].tensors_count <=
           i) {
        place->bucket++;
    }
    place->offset = plan->tensor_offsets[i];
    return TDM_OK;
}

/* The note of a model is (manifest v, scheme u, bytes of a bucket u). */
static tdm_status read_model(tdm_weights_receiver *receiver, const tdm_value *note)
{
    const struct tdm__carrier *carrier = tdm__carrier_of(
        (enum tdm_weights_scheme)tdm_value_uint(tdm_value_at(note, 1), UINT16_MAX));
    uint64_t bucket_bytes = tdm_value_uint(tdm_value_at(note, 2), 0);
    struct tdm__manifest *manifest;
    tdm_writer *writer;
    tdm_status status;

    if (carrier == NULL || bucket_bytes == 0) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "%s comes by no known scheme, or in buckets of nothing",
                         receiver->round.model);
    }
    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_value(writer, tdm_value_at(note, 0));
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm__manifest_decode(tdm_writer_bytes(writer), &manifest);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    TDM_TRY(tdm__contents_create(manifest, bucket_bytes, &receiver->contents));
    for (uint32_t i = 0; i < receiver->tensors_count; i++) {
        TDM_TRY(find_place(receiver, &receiver->tensors[i].info, &receiver->places[i]));
    }
    receiver->carrier = carrier;
    return TDM_OK;
}

/* Says that this receiver is there, or is no more. */
static tdm_status tell_presence(tdm_weights_receiver *receiver, bool present,
                                int64_t deadline_ms)
{
    const struct tdm__member *self = &receiver->self;
    char key[TDM__ROUND_KEY_BYTES];
    tdm_ref *done;

    (void)tdm__round_join_key(self, key);
    TDM_TRY(tdm_actor_call(receiver->board, "put", &done, "s(bu?)", key,
                           (const void *)self->actor.bytes, sizeof(self->actor.bytes),
                           self->incarnation, present ? 1 : 0));
    return tdm__board_done(done, deadline_ms);
}

static tdm_status join(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    char name[TDM_WEIGHTS_MODEL_BYTES_MAX + 16];
    const tdm_value *note;
    tdm_ref *ref;
    tdm_status status;

    if (receiver->board == NULL) {
        (void)snprintf(name, sizeof(name), "weights/%s", receiver->round.model);
        TDM_TRY(tdm__board_find(receiver->round.runtime, name, deadline_ms, &receiver->board));
        TDM_TRY(tdm_actor_wait_ready(receiver->board, tdm__deadline_left(deadline_ms)));
        tdm__round_open(&receiver->round, receiver->board);
    }
    if (receiver->carrier == NULL) {
        tdm__contents_fini(&receiver->contents); /* of an attempt before */
        TDM_TRY(tdm__board_read(receiver->board, "model", deadline_ms, &ref, &note));
        status = read_model(receiver, note);
        tdm_ref_release(ref);
        TDM_TRY(status);
    }
    receiver->announced = true; /* it may count, though no answer comes */
    TDM_TRY(tell_presence(receiver, true, deadline_ms));
    receiver->joined = true;
    return TDM_OK;
}

/* ---- the background thread -------------------------------------------------------------- */

/* False when the thread is to end. */
static bool tell_outcome(tdm_weights_receiver *receiver, tdm_status status)
{
    bool goes_on;

    (void)pthread_mutex_lock(&receiver->mutex);
    if (status != TDM_OK && !receiver->stopping) {
        receiver->failed = status;
        (void)snprintf(receiver->detail, sizeof(receiver->detail), "%s", tdm_error_detail());
    }
    goes_on = status != TDM_E_END && !receiver->stopping;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
    return goes_on;
}

static void *background_main(void *arg)
{
    const struct timespec pause = {.tv_nsec = AFTER_FAILURE_MS * 1000000L};
    tdm_weights_receiver *receiver = arg;
    tdm_status status;

    do {
        status = tdm__receive_version(receiver, TDM__NEVER);
        if (status != TDM_OK) {
            (void)nanosleep(&pause, NULL);
        }
    } while (tell_outcome(receiver, status));
    return NULL;
}

static tdm_status start_background(tdm_weights_receiver *receiver)
{
    if (!receiver->background || receiver->running) {
        return TDM_OK;
    }
    if (pthread_create(&receiver->thread, NULL, background_main, receiver) != 0) {
        return tdm__fail(TDM_E_IO, "pthread_create: the thread that receives %s",
                         receiver->round.model);
    }
    receiver->running = true;
    return TDM_OK;
}

/* ---- connect, receive ------------------------------------------------------------------- */

tdm_status tdm_weights_receiver_connect(tdm_weights_receiver *receiver)
{
    TDM__REQUIRE(receiver);

    int64_t deadline_ms = tdm__deadline_in(receiver->timeout_ms);

    if (!receiver->joined) {
        TDM_TRY(join(receiver, deadline_ms));
    }
    if (receiver->version == 0) {
        TDM_TRY(tdm__receive_version(receiver, deadline_ms));
        receiver->told = receiver->version;
    }
    return start_background(receiver);
}

static bool is_news(const tdm_weights_receiver *receiver)
{
    return receiver->version > receiver->told || receiver->failed != TDM_OK;
}

static tdm_status tell_news(tdm_weights_receiver *receiver, int64_t timeout_ms,
                            uint64_t *version_out)
{
    tdm_status failed = receiver->failed;

    if (receiver->version > receiver->told) {
        receiver->told = receiver->version;
        *version_out = receiver->version;
        return TDM_OK;
    }
    if (failed == TDM_OK) {
        return tdm__fail(TDM_E_TIMEOUT, "no version of %s after %llu came in %lld ms",
                         receiver->round.model, (unsigned long long)receiver->version,
                         (long long)timeout_ms);
    }
    if (failed != TDM_E_END) {
        receiver->failed = TDM_OK; /* told once */
    }
    return tdm__fail(failed, "%s", receiver->detail);
}

static tdm_status await_background(tdm_weights_receiver *receiver, int64_t timeout_ms,
                                   uint64_t *version_out)
{
    int64_t deadline_ms = tdm__deadline_in(timeout_ms);
    const struct timespec until = {.tv_sec = deadline_ms / 1000,
                                   .tv_nsec = deadline_ms % 1000 * 1000000};
    tdm_status status;

    (void)pthread_mutex_lock(&receiver->mutex);
    while (!is_news(receiver) && tdm__clock_ms() < deadline_ms) {
        if (deadline_ms == TDM__NEVER) {
            (void)pthread_cond_wait(&receiver->changed, &receiver->mutex);
        } else {
            (void)pthread_cond_timedwait(&receiver->changed, &receiver->mutex, &until);
        }
    }
    status = tell_news(receiver, timeout_ms, version_out);
    (void)pthread_mutex_unlock(&receiver->mutex);
    return status;
}

tdm_status tdm_weights_receive(tdm_weights_receiver *receiver, int64_t timeout_ms,
                               uint64_t *version_out)
{
    TDM__REQUIRE(receiver);

    uint64_t version = 0;

    if (!receiver->joined) {
        return tdm__fail(TDM_E_STATE, "a receiver of %s is to be connected first",
                         receiver->round.model);
    }
    if (receiver->running) {
        TDM_TRY(await_background(receiver, timeout_ms, &version));
    } else {
        TDM_TRY(tdm__receive_version(receiver, tdm__deadline_in(timeout_ms)));
        version = receiver->version;
        receiver->told = version;
    }
    if (version_out != NULL) {
        *version_out = version;
    }
    return TDM_OK;
}

/* ---- read ------------------------------------------------------------------------------- */

tdm_status tdm_weights_read_begin(tdm_weights_receiver *receiver, uint64_t *version_out)
{
    TDM__REQUIRE(receiver);

    bool undecided;
    uint64_t version;

    (void)pthread_mutex_lock(&receiver->mutex);
    while (receiver->shut && !receiver->undecided) { /* as long as the update's deadline */
        (void)pthread_cond_wait(&receiver->changed, &receiver->mutex);
    }
    undecided = receiver->undecided;
    version = receiver->version;
    receiver->readers_count += !undecided && version != 0 ? 1 : 0;
    (void)pthread_mutex_unlock(&receiver->mutex);
    if (undecided) {
        return tdm__fail(TDM_E_STATE,
                         "this receiver of %s has voted and does not know the outcome",
                         receiver->round.model);
    }
    if (version == 0) {
        return tdm__fail(TDM_E_STATE, "no version of %s has come yet", receiver->round.model);
    }
    if (version_out != NULL) {
        *version_out = version;
    }
    return TDM_OK;
}

void tdm_weights_read_end(tdm_weights_receiver *receiver)
{
    TDM__REQUIRE_OR(receiver, );

    (void)pthread_mutex_lock(&receiver->mutex);
    receiver->readers_count--;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
}

const void *tdm_weights_data(const tdm_weights_receiver *receiver, uint32_t index)
{
    TDM__REQUIRE_OR(receiver, NULL);

    return index < receiver->tensors_count ? receiver->current[index] : NULL;
}

/* ---- the end ---------------------------------------------------------------------------- */

static void stop_background(tdm_weights_receiver *receiver)
{
    (void)pthread_mutex_lock(&receiver->mutex);
    receiver->stopping = true;
    if (receiver->next != NULL) {
        (void)tdm_cancel(receiver->next, 0);
    }
    (void)pthread_mutex_unlock(&receiver->mutex);
    if (receiver->running) {
        (void)pthread_join(receiver->thread, NULL);
    }
}

void tdm_weights_receiver_shutdown(tdm_weights_receiver *receiver)
{
    if (receiver == NULL) {
        return;
    }
    stop_background(receiver);
    if (receiver->announced) {
        (void)tell_presence(receiver, false, tdm__deadline_in(LEAVE_MS));
    }
    remove_from_process(receiver);
    destroy(receiver);
}

/* ---- modules ---------------------------------------------------------------------------- */

tdm_status tdm_weights_serve(tdm_call *call, void *self)
{
    TDM__REQUIRE(call);

    tdm_weights_receiver *receiver;
    const char *model;
    int64_t timeout_ms;
    uint64_t version;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "si", &model, &timeout_ms));
    receiver = find_in_process(model);
    if (receiver == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "this actor has no receiver of %s", model);
    }
    if (!receiver->joined) {
        TDM_TRY(join(receiver, tdm__deadline_in(timeout_ms)));
    }
    TDM_TRY(tdm_weights_receive(receiver, timeout_ms, &version));
    return tdm_call_reply(call, "u", version);
}
