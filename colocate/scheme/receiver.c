/* receiver.c - the life of weights receivers, and reads of the served version. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements the receiver's half of <tandem/weights.h>. A process has at most one receiver of a
 * model; all receivers of the process are in one list. A receiver is created, joined (it
 * announces itself in the sender's mailbox), receives versions, and is shut down. Versions are
 * received by tdm__receive_version(), in the caller's thread or in the background thread.
 *
 * Readers call tdm_weights_read_begin() and tdm_weights_read_end(). The gate (gate_is_shut,
 * readers_count) keeps them out between this receiver's vote and the outcome of the update. If
 * the outcome cannot be learned, `undecided` makes reads fail instead of wait. The lock order
 * is: process_mutex alone, or the receiver's mutex alone.
 *
 * A set of models has a receiver for each. A reader of the set passes the gates in the order in
 * which they are shut, and gives up those that it has passed before it waits at one, so that
 * readers and votes never wait for each other. While it reads, no model can vote, so that all have
 * the version with which it began. */

#include "colocate/scheme/receiver.h"

#include "colocate/scheme/mailbox.h"
#include "colocate/scheme/receive_version.h"
#include "colocate/weights/commit_record.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Constants of receivers. */
enum {
    TIMEOUT_MS = 60000, /* Default timeout of connect, in milliseconds. */
    LEAVE_MS = 1000, /* Timeout for telling the mailbox that this receiver ends, in milliseconds. */
    AFTER_FAILURE_MS = 20, /* Pause of the background thread after a failure, in milliseconds. */
};

/* ---- receivers of this process ------------------------------------------------------- */

/* Protects process_receivers and the links of its list. */
static pthread_mutex_t process_mutex = PTHREAD_MUTEX_INITIALIZER;
static tdm_weights_receiver *process_receivers; /* Receivers of this process. */

/* Returns this process's receiver of the model, or NULL. */
static tdm_weights_receiver *find_in_process(const char *model)
{
    tdm_weights_receiver *receiver;

    (void)pthread_mutex_lock(&process_mutex);
    receiver = process_receivers;
    while (receiver != NULL && strcmp(receiver->session.model, model) != 0) {
        receiver = receiver->next_in_process;
    }
    (void)pthread_mutex_unlock(&process_mutex);
    return receiver;
}

/* Adds the receiver to the list of the process. */
static void add_to_process(tdm_weights_receiver *receiver)
{
    (void)pthread_mutex_lock(&process_mutex);
    receiver->next_in_process = process_receivers;
    process_receivers = receiver;
    (void)pthread_mutex_unlock(&process_mutex);
}

/* Removes the receiver from the list of the process. */
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

/* ---- create -------------------------------------------------------------------------- */

/* Checks a wanted tensor, which may be one shard of its rows, and copies it with its name. */
static tdm_status copy_tensor(const struct tdm_weights_tensor *from, struct tdm_weights_tensor *to)
{
    bool is_sharded = from->shards_count > 1;

    if (from->info.name == NULL) {
        return tdm__fail(TDM_E_INVAL, "a tensor has no name");
    }
    if (is_sharded && (from->shard >= from->shards_count || from->info.dims_count == 0 ||
                       from->info.shape[0] % from->shards_count != 0)) {
        return tdm__fail(TDM_E_INVAL, "tensor %s: part %u of %u of its %llu rows", from->info.name,
                         from->shard, from->shards_count,
                         from->info.dims_count == 0 ? 0ULL
                                                    : (unsigned long long)from->info.shape[0]);
    }
    *to = *from;
    to->info.name = strdup(from->info.name);
    return to->info.name == NULL ? tdm__fail(TDM_E_NOMEM, "the name of a tensor") : TDM_OK;
}

/* Orders wanted tensors by name, for qsort(). */
static int compare_names(const void *left, const void *right)
{
    return strcmp(((const struct tdm__wanted_tensor *)left)->name,
                  ((const struct tdm__wanted_tensor *)right)->name);
}

/* Copies the wanted tensors and allocates the arrays. */
static tdm_status receiver_init(tdm_weights_receiver *receiver,
                                const struct tdm_weights_receiver_options *options)
{
    uint32_t count = options->tensors_count;

    if (count == 0 || count > TDM__MANIFEST_TENSORS_MAX) {
        return tdm__fail(TDM_E_INVAL, "a receiver of %u tensors, 1 to %d", count,
                         TDM__MANIFEST_TENSORS_MAX);
    }
    receiver->tensors = calloc(count, sizeof(*receiver->tensors));
    receiver->wanted = calloc(count, sizeof(*receiver->wanted));
    receiver->staged_addresses = calloc(count, sizeof(*receiver->staged_addresses));
    receiver->tensor_addresses = calloc(count, sizeof(*receiver->tensor_addresses));
    if (receiver->tensors == NULL || receiver->wanted == NULL ||
        receiver->staged_addresses == NULL || receiver->tensor_addresses == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a receiver of %u tensors", count);
    }
    receiver->tensors_count = count;
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(copy_tensor(&options->tensors[i], &receiver->tensors[i]));
        receiver->wanted[i] = (struct tdm__wanted_tensor){receiver->tensors[i].info.name, i};
    }
    qsort(receiver->wanted, count, sizeof(receiver->wanted[0]), compare_names);
    return TDM_OK;
}

/* Frees the receiver. No thread of it runs any more. */
static void receiver_destroy(tdm_weights_receiver *receiver)
{
    for (uint32_t i = 0; receiver->tensors != NULL && i < receiver->tensors_count; i++) {
        free((void *)receiver->tensors[i].info.name);
    }
    tdm__incoming_version_fini(&receiver->incoming, &receiver->model_buckets);
    tdm__incoming_version_fini(&receiver->serving, &receiver->model_buckets);
    tdm__attachment_fini(&receiver->attached);
    tdm_ref_release(receiver->next);
    tdm_collective_leave(receiver->group);
    tdm_actor_destroy(receiver->mailbox);
    tdm__receiver_destroy(receiver->staging);
    tdm__model_buckets_fini(&receiver->model_buckets);
    free(receiver->tensors);
    free(receiver->wanted);
    free(receiver->staged_addresses);
    free(receiver->tensor_addresses);
    (void)pthread_mutex_destroy(&receiver->mutex);
    (void)pthread_cond_destroy(&receiver->changed);
    free(receiver);
}

/* Initializes the mutex and the condition, which uses the monotonic clock. */
static void init_locks(tdm_weights_receiver *receiver)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&receiver->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&receiver->mutex, NULL);
}

/* Creates the receiver of one model, which is a set of its own. */
static tdm_status receiver_create(tdm_runtime *runtime,
                                  const struct tdm_weights_receiver_options *options,
                                  tdm_weights_receiver **receiver_out)
{
    tdm_weights_receiver *receiver = calloc(1, sizeof(*receiver));
    tdm_status status;

    if (receiver == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a receiver of weights");
    }
    init_locks(receiver);
    receiver->set[0] = receiver;
    receiver->set_count = 1;
    receiver->head = receiver;
    receiver->timeout_ms = options->timeout_ms == 0 ? TIMEOUT_MS : options->timeout_ms;
    receiver->background = options->background != 0;
    receiver->on_version = options->on_version;
    receiver->arg = options->arg;
    status = tdm__update_session_init(&receiver->session, runtime, options->model);
    if (status == TDM_OK && find_in_process(options->model) != NULL) {
        status = tdm__fail(TDM_E_EXISTS, "this process has a receiver of %s", options->model);
    }
    if (status == TDM_OK) {
        status = tdm__update_session_self_member(&receiver->session, &receiver->self);
    }
    if (status == TDM_OK) {
        status = receiver_init(receiver, options);
    }
    if (status != TDM_OK) {
        receiver_destroy(receiver);
        return status;
    }
    add_to_process(receiver);
    *receiver_out = receiver;
    return TDM_OK;
}

tdm_status tdm_weights_receiver_create(tdm_runtime *runtime,
                                       const struct tdm_weights_receiver_options *options,
                                       tdm_weights_receiver **receiver_out)
{
    TDM__REQUIRE(receiver_out);
    *receiver_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    return receiver_create(runtime, options, receiver_out);
}

/* Orders receivers by the names of their models, for qsort(). Senders of a set have the same order.
 */
static int compare_models(const void *left, const void *right)
{
    return strcmp((*(tdm_weights_receiver *const *)left)->session.model,
                  (*(tdm_weights_receiver *const *)right)->session.model);
}

/* Makes the receivers in `set` one set and returns its first one, which is the caller's handle. */
static tdm_weights_receiver *join_set(tdm_weights_receiver **set, uint32_t count)
{
    tdm_weights_receiver *head;

    qsort(set, count, sizeof(set[0]), compare_models);
    head = set[0];
    for (uint32_t i = 0; i < count; i++) {
        set[i]->set_count = 0;
        set[i]->head = head;
        head->set[i] = set[i];
        head->timeout_ms =
            set[i]->timeout_ms > head->timeout_ms ? set[i]->timeout_ms : head->timeout_ms;
    }
    head->set_count = count;
    return head;
}

tdm_status tdm_weights_receiver_create_set(tdm_runtime *runtime,
                                           const struct tdm_weights_receiver_options *options,
                                           uint32_t count, tdm_weights_receiver **receiver_out)
{
    TDM__REQUIRE(receiver_out);
    *receiver_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    tdm_weights_receiver *set[TDM_WEIGHTS_SET_MAX] = {NULL};
    tdm_status status = TDM_OK;

    if (count == 0 || count > TDM_WEIGHTS_SET_MAX) {
        return tdm__fail(TDM_E_INVAL, "a set has 1 to %d models, not %u", TDM_WEIGHTS_SET_MAX,
                         count);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        if (!options[i].background != !options[0].background) {
            status = tdm__fail(TDM_E_INVAL,
                               "background differs between %s and %s: a set has one thread or none",
                               options[0].model, options[i].model);
        } else {
            status = receiver_create(runtime, &options[i], &set[i]);
        }
    }
    if (status == TDM_OK) {
        *receiver_out = join_set(set, count);
        return TDM_OK;
    }
    for (uint32_t i = 0; i < count && set[i] != NULL; i++) {
        remove_from_process(set[i]);
        receiver_destroy(set[i]);
    }
    return status;
}

const tdm_weights_receiver *tdm_weights_receiver_of(const tdm_weights_receiver *receiver,
                                                    const char *model)
{
    TDM__REQUIRE_OR(receiver, NULL);
    TDM__REQUIRE_OR(model, NULL);

    for (uint32_t i = 0; i < receiver->set_count; i++) {
        if (strcmp(receiver->set[i]->session.model, model) == 0) {
            return receiver->set[i];
        }
    }
    return NULL;
}

const struct tdm_weights_tensor *tdm__weights_receiver_tensors(const tdm_weights_receiver *receiver,
                                                               uint32_t *count_out)
{
    *count_out = receiver->tensors_count;
    return receiver->tensors;
}

/* ---- load ---------------------------------------------------------------------------- */

/* Returns the index in `wanted` of the first tensor whose name is not less than `name`. */
static uint32_t find_wanted(const tdm_weights_receiver *receiver, const char *name)
{
    uint32_t first = 0;
    uint32_t end = receiver->tensors_count;

    while (first < end) {
        uint32_t middle = first + (end - first) / 2;

        if (strcmp(receiver->wanted[middle].name, name) < 0) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

/* Callback of the staging: notes where the wanted ones of the verified tensors lie. They stay there
 * until the version goes live or is discarded. */
static tdm_status load_tensors(void *state, void *weights, const struct tdm_tensor_view *tensors,
                               uint32_t tensors_count)
{
    tdm_weights_receiver *receiver = state;

    (void)weights;
    for (uint32_t i = 0; i < tensors_count; i++) {
        const char *name = tensors[i].info.name;

        for (uint32_t k = find_wanted(receiver, name);
             k < receiver->tensors_count && strcmp(receiver->wanted[k].name, name) == 0; k++) {
            receiver->staged_addresses[receiver->wanted[k].index] = tensors[i].data;
        }
    }
    return TDM_OK;
}

/* Callback of the staging, which itself knows that all tensors of the model have come. */
static tdm_status complete_load(void *state)
{
    (void)state;
    return TDM_OK;
}

/* Callback of the staging: forgets the tensors of the version before. */
static void begin_load(void *state)
{
    tdm_weights_receiver *receiver = state;

    memset(receiver->staged_addresses, 0,
           receiver->tensors_count * sizeof(*receiver->staged_addresses));
}

/* What the staging calls. The tensors stay in their buckets, so nothing is copied here. */
static const struct tdm_engine_ops staging_ops = {.size_bytes = sizeof(struct tdm_engine_ops),
                                                  .load = load_tensors,
                                                  .complete = complete_load,
                                                  .begin = begin_load};

/* ---- join ---------------------------------------------------------------------------- */

/* Returns true if both tensors have the same dtype and shape. */
static bool same_shape(const struct tdm_tensor_info *a, const struct tdm_tensor_info *b)
{
    return a->dtype == b->dtype && a->dims_count == b->dims_count &&
           memcmp(a->shape, b->shape, a->dims_count * sizeof(a->shape[0])) == 0;
}

/* Writes the dtype and the shape of a tensor, such as "float32 [4, 16]", into `text`; returns it.
 */
static const char *shape_text(const struct tdm_tensor_info *info, char *text, size_t text_bytes)
{
    struct tdm__text words = tdm__text_init(text, text_bytes);

    tdm__text_add(&words, "%s [", tdm_dtype_name(info->dtype));
    for (uint32_t i = 0; i < info->dims_count; i++) {
        tdm__text_add(&words, "%s%llu", i == 0 ? "" : ", ", (unsigned long long)info->shape[i]);
    }
    tdm__text_add(&words, "]");
    return text;
}

/* Returns TDM_E_INVAL if the sender does not have a wanted tensor, or has it with another dtype or
 * shape. */
static tdm_status check_tensor(const tdm_weights_receiver *receiver,
                               const struct tdm_tensor_info *info)
{
    const struct tdm__manifest *manifest = receiver->model_buckets.manifest;
    char own[192];
    char theirs[192];
    uint32_t i = 0;

    while (i < manifest->tensors_count && strcmp(manifest->tensors[i].name, info->name) != 0) {
        i++;
    }
    if (i == manifest->tensors_count) {
        return tdm__fail(TDM_E_INVAL, "tensor %s: the sender of %s does not have it", info->name,
                         receiver->session.model);
    }
    return same_shape(info, &manifest->tensors[i])
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL, "tensor %s: %s here, %s at the sender", info->name,
                           shape_text(info, own, sizeof(own)),
                           shape_text(&manifest->tensors[i], theirs, sizeof(theirs)));
}

/* Returns TDM_E_INVAL if a model of this receiver's set is not in the sender's set, whose names are
 * `names`. */
static tdm_status check_set(const tdm_weights_receiver *receiver,
                            const struct tdm__message_list *names)
{
    for (uint32_t i = 0; i < receiver->head->set_count; i++) {
        const char *wanted = receiver->head->set[i]->session.model;
        bool found = false;

        for (uint32_t k = 0; k < names->count && !found; k++) {
            const char *name;

            tdm__message_list_read(names, k, &name, sizeof(name));
            found = strcmp(name, wanted) == 0;
        }
        if (!found) {
            return tdm__fail(TDM_E_INVAL,
                             "%s is not sent together with %s: their sender needs to be that of a "
                             "set with both, or each needs a receiver of its own",
                             receiver->session.model, wanted);
        }
    }
    return TDM_OK;
}

/* Reads the message of the model, checks the wanted tensors, and creates what stages versions. */
static tdm_status read_model(tdm_weights_receiver *receiver, const tdm_value *value)
{
    struct tdm__receiver_options options = {
        .ops = &staging_ops, .state = receiver, .verify = TDM__VERIFY_FULL};
    const struct tdm__weight_transport *transport;
    struct tdm__scheme_model_message message;
    struct tdm__manifest *manifest;

    TDM_TRY(tdm__scheme_model_decode(value, &message));
    transport = tdm__weight_transport_of_scheme((enum tdm_weights_scheme)message.scheme);
    if (transport == NULL || message.bucket_bytes == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "%s has an unknown scheme or a bucket size of 0",
                         receiver->session.model);
    }
    TDM_TRY(check_set(receiver, &message.set));
    TDM_TRY(tdm__manifest_from_message(&message.manifest, &manifest));
    TDM_TRY(tdm__model_buckets_create(manifest, message.bucket_bytes, &receiver->model_buckets));
    for (uint32_t i = 0; i < receiver->tensors_count; i++) {
        TDM_TRY(check_tensor(receiver, &receiver->tensors[i].info));
    }
    options.manifest = receiver->model_buckets.manifest;
    TDM_TRY(tdm__receiver_create(&options, &receiver->staging));
    receiver->transport = transport;
    return TDM_OK;
}

/* Puts a message into the mailbox that says whether this receiver exists, and waits for its
 * confirmation. */
static tdm_status announce_receiver(tdm_weights_receiver *receiver, bool present,
                                    int64_t deadline_ms)
{
    const struct tdm__scheme_join_message message = {
        .receiver = tdm__member_to_message(&receiver->self), .is_present = present};
    char key[TDM__UPDATE_KEY_BYTES];

    return tdm__mailbox_put_and_wait(receiver->mailbox, tdm__update_join_key(&receiver->self, key),
                                     tdm__scheme_join_table(), &message, deadline_ms);
}

/* Finds the sender's mailbox, reads the model and announces this receiver. After a failure it
 * continues where it stopped. */
static tdm_status receiver_join(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    char name[TDM_WEIGHTS_MODEL_BYTES_MAX + 16];
    const tdm_value *message;
    tdm_ref *ref;
    tdm_status status;

    if (receiver->joined) {
        return TDM_OK;
    }
    if (receiver->mailbox == NULL) {
        (void)snprintf(name, sizeof(name), "weights/%s", receiver->session.model);
        TDM_TRY(
            tdm__mailbox_find(receiver->session.runtime, name, deadline_ms, &receiver->mailbox));
        TDM_TRY(tdm_actor_wait_ready(receiver->mailbox, tdm__deadline_remaining_ms(deadline_ms)));
        tdm__update_session_set_record(&receiver->session, receiver->mailbox);
    }
    if (receiver->transport == NULL) {
        /* The staging and the buckets belong to an earlier, failed attempt. */
        tdm__receiver_destroy(receiver->staging);
        receiver->staging = NULL;
        tdm__model_buckets_fini(&receiver->model_buckets);
        TDM_TRY(tdm__mailbox_read_message(receiver->mailbox, "model", deadline_ms, &ref, &message));
        status = read_model(receiver, message);
        tdm_ref_release(ref);
        TDM_TRY(status);
    }
    receiver->announced = true; /* The message may count although no reply arrives. */
    TDM_TRY(announce_receiver(receiver, true, deadline_ms));
    receiver->joined = true;
    return TDM_OK;
}

/* ---- the background thread ----------------------------------------------------------- */

/* Stores the result of one background receive and wakes waiting callers. Returns false if the
 * thread must end. */
static bool record_background_outcome(tdm_weights_receiver *receiver, tdm_status status)
{
    bool continues;

    (void)pthread_mutex_lock(&receiver->mutex);
    if (status != TDM_OK && !receiver->stopping) {
        receiver->failed = status;
        (void)snprintf(receiver->detail, sizeof(receiver->detail), "%s", tdm_error_detail());
    }
    continues = status != TDM_E_END && !receiver->stopping;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
    return continues;
}

/* The background thread: receives versions until the sender ends or the receiver stops. */
static void *receiver_thread_main(void *arg)
{
    const struct timespec pause = {.tv_nsec = AFTER_FAILURE_MS * 1000000L};
    tdm_weights_receiver *receiver = arg;
    tdm_status status;

    do {
        status = tdm__receive_version(receiver, TDM__NEVER);
        if (status != TDM_OK) {
            (void)nanosleep(&pause, NULL);
        }
    } while (record_background_outcome(receiver, status));
    return NULL;
}

/* Starts the background thread, if the options ask for one and it does not run. */
static tdm_status start_background(tdm_weights_receiver *receiver)
{
    if (!receiver->background || receiver->running) {
        return TDM_OK;
    }
    if (pthread_create(&receiver->thread, NULL, receiver_thread_main, receiver) != 0) {
        return tdm__fail(TDM_E_IO, "pthread_create: the thread that receives %s",
                         receiver->session.model);
    }
    receiver->running = true;
    return TDM_OK;
}

/* ---- connect, receive ---------------------------------------------------------------- */

/* Returns true if each model of the set has a version. */
static bool has_version(const tdm_weights_receiver *receiver)
{
    for (uint32_t i = 0; i < receiver->set_count; i++) {
        if (receiver->set[i]->version == 0) {
            return false;
        }
    }
    return true;
}

tdm_status tdm_weights_receiver_connect(tdm_weights_receiver *receiver)
{
    TDM__REQUIRE(receiver);

    int64_t deadline_ms = tdm__deadline_after(receiver->timeout_ms);

    for (uint32_t i = 0; i < receiver->set_count; i++) {
        TDM_TRY(receiver_join(receiver->set[i], deadline_ms));
    }
    while (!receiver->running && !has_version(receiver)) {
        TDM_TRY(tdm__receive_version(receiver, deadline_ms));
        receiver->reported_version = receiver->version;
    }
    return start_background(receiver);
}

/* Returns true if the background thread has a version or a failure that was not returned yet. The
 * caller holds the mutex. */
static bool has_background_result(const tdm_weights_receiver *receiver)
{
    return receiver->version > receiver->reported_version || receiver->failed != TDM_OK;
}

/* Returns the new version or the failure of the background thread, or TDM_E_TIMEOUT. The caller
 * holds the mutex. */
static tdm_status return_background_result(tdm_weights_receiver *receiver, int64_t timeout_ms,
                                           uint64_t *version_out)
{
    tdm_status failed = receiver->failed;

    if (receiver->version > receiver->reported_version) {
        receiver->reported_version = receiver->version;
        *version_out = receiver->version;
        return TDM_OK;
    }
    if (failed == TDM_OK) {
        return tdm__fail(TDM_E_TIMEOUT, "no version of %s after %llu came in %lld ms",
                         receiver->session.model, (unsigned long long)receiver->version,
                         (long long)timeout_ms);
    }
    if (failed != TDM_E_END) {
        receiver->failed = TDM_OK; /* A failure is returned only once. */
    }
    return tdm__fail(failed, "%s", receiver->detail);
}

/* Waits until the background thread has a result. */
static tdm_status await_background(tdm_weights_receiver *receiver, int64_t timeout_ms,
                                   uint64_t *version_out)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    const struct timespec until = {.tv_sec = deadline_ms / 1000,
                                   .tv_nsec = deadline_ms % 1000 * 1000000};
    tdm_status status;

    (void)pthread_mutex_lock(&receiver->mutex);
    while (!has_background_result(receiver) && tdm__clock_ms() < deadline_ms) {
        if (deadline_ms == TDM__NEVER) {
            (void)pthread_cond_wait(&receiver->changed, &receiver->mutex);
        } else {
            (void)pthread_cond_timedwait(&receiver->changed, &receiver->mutex, &until);
        }
    }
    status = return_background_result(receiver, timeout_ms, version_out);
    (void)pthread_mutex_unlock(&receiver->mutex);
    return status;
}

tdm_status tdm_weights_receive(tdm_weights_receiver *receiver, int64_t timeout_ms,
                               uint64_t *version_out)
{
    TDM__REQUIRE(receiver);

    uint64_t version = 0;

    for (uint32_t i = 0; i < receiver->set_count; i++) {
        if (!receiver->set[i]->joined) {
            return tdm__fail(TDM_E_STATE, "a receiver of %s is to be connected first",
                             receiver->set[i]->session.model);
        }
    }
    if (receiver->running) {
        TDM_TRY(await_background(receiver, timeout_ms, &version));
    } else {
        TDM_TRY(tdm__receive_version(receiver, tdm__deadline_after(timeout_ms)));
        version = receiver->version;
        receiver->reported_version = version;
    }
    if (version_out != NULL) {
        *version_out = version;
    }
    return TDM_OK;
}

/* ---- served weights ---------------------------------------------------------------------- */

const void *tdm_weights_data(const tdm_weights_receiver *receiver, uint32_t index)
{
    TDM__REQUIRE_OR(receiver, NULL);

    return index < receiver->tensors_count ? receiver->tensor_addresses[index] : NULL;
}

struct tdm_bytes tdm_weights_attached(const tdm_weights_receiver *receiver)
{
    TDM__REQUIRE_OR(receiver, (struct tdm_bytes){.data = NULL});

    return (struct tdm_bytes){receiver->attached.data, receiver->attached.size_bytes};
}

/* ---- the end ------------------------------------------------------------------------- */

/* Asks the background thread to stop and cancels its wait for an offer of one model. */
static void cancel_wait(tdm_weights_receiver *receiver)
{
    (void)pthread_mutex_lock(&receiver->mutex);
    receiver->stopping = true;
    if (receiver->next != NULL) {
        (void)tdm_cancel(receiver->next, 0);
    }
    (void)pthread_mutex_unlock(&receiver->mutex);
}

/* Ends the background thread. */
static void stop_background(const tdm_weights_receiver *head)
{
    for (uint32_t i = 0; i < head->set_count; i++) {
        cancel_wait(head->set[i]);
    }
    if (head->running) {
        (void)pthread_join(head->thread, NULL);
    }
}

void tdm_weights_receiver_shutdown(tdm_weights_receiver *receiver)
{
    if (receiver == NULL) {
        return;
    }
    stop_background(receiver);
    for (uint32_t i = receiver->set_count; i-- > 0;) { /* The first one has the list and is last. */
        tdm_weights_receiver *member = receiver->set[i];

        if (member->announced) {
            (void)announce_receiver(member, false, tdm__deadline_after(LEAVE_MS));
        }
        remove_from_process(member);
        receiver_destroy(member);
    }
}

/* ---- modules ------------------------------------------------------------------------- */

tdm_status tdm_weights_serve(tdm_call *call, void *self)
{
    TDM__REQUIRE(call);

    tdm_weights_receiver *receiver;
    struct tdm__scheme_receive_message message;
    uint64_t version;

    (void)self;
    TDM_TRY(tdm__scheme_receive_decode(tdm_call_arguments(call), &message));
    receiver = find_in_process(message.model);
    if (receiver == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "this actor has no receiver of %s", message.model);
    }
    if (receiver->set_count != 1) {
        return tdm__fail(TDM_E_STATE, "%s is received together with other models", message.model);
    }
    TDM_TRY(receiver_join(receiver, tdm__deadline_after(message.timeout_ms)));
    TDM_TRY(tdm_weights_receive(receiver, message.timeout_ms, &version));
    return tdm_call_reply(call, "u", version);
}
