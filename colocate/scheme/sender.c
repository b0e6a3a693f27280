/* sender.c - creates and connects senders of weights, and runs their sends. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements the sender's half of <tandem/weights.h>. A sender is created, connected and shut down.
 * Connecting creates its mailbox actor "weights/MODEL", publishes the model, waits for the
 * receivers and sends the first version. Each send runs tdm__send_version(), in the caller's thread
 * or in the thread of an asynchronous send. While that thread exists (`sending`), calls of the
 * sender fail until tdm_weights_wait() has joined it. Shutdown closes the mailbox, which tells
 * receivers that the sender has ended, and deletes the version record if no receiver can still ask
 * for it.
 *
 * A set of models has a sender for each, with a mailbox and a version record of its own. The first
 * of them is the caller's handle; it has the list of all (`set`) and the thread. */

#include "colocate/scheme/sender.h"

#include "actors/process/runtime.h"
#include "colocate/scheme/mailbox.h"
#include "colocate/scheme/membership.h"
#include "colocate/scheme/receiver.h"
#include "colocate/scheme/send_version.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Constants of senders. */
enum {
    TIMEOUT_MS = 60000,      /* Default timeout of connect and send, in milliseconds. */
    BUCKET_BYTES = 16 << 20, /* Default size of a bucket in bytes. */
    ALIGNMENT = 64,          /* Alignment of the memory of a bucket in bytes. */
    CLOSE_MS = 2000,         /* Timeout of each step that closes the mailbox, in milliseconds. */
};

_Static_assert((int)TDM_WEIGHTS_SET_MAX == (int)TDM__VERSION_SET_MAX,
               "a set of models is one request about their records");

/* ---- create -------------------------------------------------------------------------- */

/* Creates the manifest and the buckets of the tensors and stores their addresses. */
static tdm_status build_manifest(tdm_weights_sender *sender,
                                 const struct tdm_weights_tensor *tensors, uint32_t count,
                                 uint64_t bucket_bytes)
{
    struct tdm_tensor_info *infos = calloc(count + 1, sizeof(*infos));
    struct tdm__manifest *manifest;
    tdm_status status;

    sender->addresses = calloc(count + 1, sizeof(*sender->addresses));
    sender->sums = calloc(count + 1, sizeof(*sender->sums));
    if (infos == NULL || sender->addresses == NULL || sender->sums == NULL) {
        free(infos);
        return tdm__fail(TDM_E_NOMEM, "a sender of %u tensors", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        infos[i] = tensors[i].info;
        sender->addresses[i] = tensors[i].address;
    }
    status = tdm__manifest_create(infos, count, &manifest);
    free(infos);
    TDM_TRY(status);
    return tdm__model_buckets_create(manifest, bucket_bytes, &sender->model_buckets);
}

/* Checks that the tensors are whole and have addresses, unless the sender is a relay. */
static tdm_status check_tensors(const tdm_weights_sender *sender,
                                const struct tdm_weights_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].shards_count > 1) {
            return tdm__fail(TDM_E_INVAL, "tensor %s: a sender has whole ones, not 1 of %u",
                             tensors[i].info.name, tensors[i].shards_count);
        }
        if (tensors[i].address == NULL && sender->relay_of == NULL) {
            return tdm__fail(TDM_E_INVAL, "tensor %s has no address", tensors[i].info.name);
        }
    }
    return TDM_OK;
}

/* Copies the handles of the module actors, which only some schemes have. */
static tdm_status copy_modules(tdm_weights_sender *sender, tdm_actor *const *modules,
                               uint32_t count)
{
    if (count > TDM_WEIGHTS_RECEIVERS_MAX || (count > 0) != sender->transport->starts_receivers) {
        return tdm__fail(TDM_E_INVAL, "%u modules for the scheme %s", count,
                         sender->transport->name);
    }
    sender->modules = calloc(count + 1, sizeof(tdm_actor *));
    sender->modules_refs = calloc(count + 1, sizeof(tdm_ref *));
    if (sender->modules == NULL || sender->modules_refs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u modules", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        sender->modules[i] = modules[i];
    }
    sender->modules_count = count;
    return TDM_OK;
}

/* Allocates the memory of the bucket and of its description, and the list of group members. */
static tdm_status allocate_buffers(tdm_weights_sender *sender)
{
    uint64_t bytes = sender->model_buckets.plan->bucket_bytes_max;

    sender->group_members = calloc(TDM_WEIGHTS_RECEIVERS_MAX, sizeof(*sender->group_members));
    sender->records =
        calloc(tdm__bucket_tensors_max(sender->model_buckets.plan), sizeof(*sender->records));
    sender->description = malloc(tdm__bucket_description_bytes_max(sender->model_buckets.plan));
    if (posix_memalign(&sender->image, ALIGNMENT, bytes + ALIGNMENT) != 0 ||
        sender->group_members == NULL || sender->description == NULL || sender->records == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a bucket of %llu bytes", (unsigned long long)bytes);
    }
    memset(sender->image, 0, bytes + ALIGNMENT); /* The bytes between tensors are sent, too. */
    return TDM_OK;
}

/* Checks the options and builds everything that does not need the cluster. */
static tdm_status sender_init(tdm_weights_sender *sender,
                              const struct tdm_weights_sender_options *options)
{
    const struct tdm_weights_tensor *tensors = options->tensors;
    uint32_t count = options->tensors_count;

    sender->transport = tdm__weight_transport_of_scheme(options->scheme);
    if (sender->transport == NULL) {
        return tdm__fail(TDM_E_INVAL, "unknown scheme %d", (int)options->scheme);
    }
    if (options->relay_of != NULL) {
        if (options->relay_of->set_count > 1) {
            return tdm__fail(TDM_E_INVAL, "%s relays a set of models: relays send one model each",
                             sender->session.model);
        }
        if (strcmp(options->relay_of->session.model, sender->session.model) == 0) {
            return tdm__fail(TDM_E_INVAL, "a relay of %s sends it under another id",
                             sender->session.model);
        }
        tensors = tdm__weights_receiver_tensors(options->relay_of, &count);
    }
    if (options->receivers_count > TDM_WEIGHTS_RECEIVERS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u receivers, at most %d", options->receivers_count,
                         TDM_WEIGHTS_RECEIVERS_MAX);
    }
    TDM_TRY(check_tensors(sender, tensors, count));
    TDM_TRY(build_manifest(sender, tensors, count,
                           options->bucket_bytes == 0 ? BUCKET_BYTES : options->bucket_bytes));
    TDM_TRY(copy_modules(sender, options->modules, options->modules_count));
    return allocate_buffers(sender);
}

/* Frees the sender. No thread of it runs any more. */
static void sender_destroy(tdm_weights_sender *sender)
{
    for (uint32_t i = 0; i < sender->modules_count; i++) {
        tdm_ref_release(sender->modules_refs[i]);
    }
    tdm_collective_leave(sender->group);
    tdm_actor_destroy(sender->mailbox);
    tdm__model_buckets_fini(&sender->model_buckets);
    free(sender->addresses);
    free(sender->image);
    free(sender->description);
    free(sender->records);
    free(sender->sums);
    tdm__attachment_fini(&sender->attached);
    free(sender->modules);
    free(sender->modules_refs);
    free(sender->group_members);
    (void)pthread_mutex_destroy(&sender->mutex);
    (void)pthread_cond_destroy(&sender->changed);
    free(sender);
}

/* Initializes the mutex and the condition, which uses the monotonic clock. */
static void init_locks(tdm_weights_sender *sender)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&sender->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&sender->mutex, NULL);
}

/* Creates the sender of one model, which is a set of its own. */
static tdm_status sender_create(tdm_runtime *runtime,
                                const struct tdm_weights_sender_options *options,
                                tdm_weights_sender **sender_out)
{
    tdm_weights_sender *sender = calloc(1, sizeof(*sender));
    tdm_status status;

    if (sender == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a sender of weights");
    }
    init_locks(sender);
    sender->set[0] = sender;
    sender->set_count = 1;
    sender->scheme = options->scheme;
    sender->relay_of = options->relay_of;
    sender->receivers_count = options->receivers_count == 0 ? 1 : options->receivers_count;
    sender->timeout_ms = options->timeout_ms == 0 ? TIMEOUT_MS : options->timeout_ms;
    status = tdm__update_session_init(&sender->session, runtime, options->model);
    if (status == TDM_OK) {
        status = tdm__id_parse(runtime->node_id, &sender->node);
    }
    if (status == TDM_OK) {
        status = sender_init(sender, options);
    }
    if (status != TDM_OK) {
        sender_destroy(sender);
        return status;
    }
    *sender_out = sender;
    return TDM_OK;
}

tdm_status tdm_weights_sender_create(tdm_runtime *runtime,
                                     const struct tdm_weights_sender_options *options,
                                     tdm_weights_sender **sender_out)
{
    TDM__REQUIRE(sender_out);
    *sender_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    return sender_create(runtime, options, sender_out);
}

/* Orders senders by the names of their models, for qsort(). Receivers of a set have the same order,
 * so that both sides are in the same broadcast. */
static int compare_models(const void *left, const void *right)
{
    return strcmp((*(tdm_weights_sender *const *)left)->session.model,
                  (*(tdm_weights_sender *const *)right)->session.model);
}

/* Refuses options of one model of a set that only a single sender may have. */
static tdm_status check_set_options(const struct tdm_weights_sender_options *options,
                                    uint32_t count)
{
    if (count > 1 && options->relay_of != NULL) {
        return tdm__fail(TDM_E_INVAL,
                         "a set of models with the relay %s: relays send one model each",
                         options->model);
    }
    if (count > 1 && options->scheme == TDM_WEIGHTS_MODULE) {
        return tdm__fail(TDM_E_INVAL,
                         "the scheme module of %s receives one model in a call: choose another "
                         "scheme for a set of models",
                         options->model);
    }
    return TDM_OK;
}

/* Makes the senders in `set` one set, whose first sender is the caller's handle. */
static tdm_status join_set(tdm_weights_sender **set, uint32_t count, tdm_weights_sender **head_out)
{
    int64_t timeout_ms = 0;
    tdm_weights_sender *head;

    qsort(set, count, sizeof(set[0]), compare_models);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(set[i - 1]->session.model, set[i]->session.model) == 0) {
            return tdm__fail(TDM_E_INVAL, "the model %s is in the set twice",
                             set[i]->session.model);
        }
        timeout_ms = set[i]->timeout_ms > timeout_ms ? set[i]->timeout_ms : timeout_ms;
        set[i]->set_count = 0;
    }
    head = set[0];
    head->timeout_ms = timeout_ms;
    head->set_count = count;
    for (uint32_t i = 0; i < count; i++) {
        head->set[i] = set[i];
    }
    *head_out = head;
    return TDM_OK;
}

tdm_status tdm_weights_sender_create_set(tdm_runtime *runtime,
                                         const struct tdm_weights_sender_options *options,
                                         uint32_t count, tdm_weights_sender **sender_out)
{
    TDM__REQUIRE(sender_out);
    *sender_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    tdm_weights_sender *set[TDM_WEIGHTS_SET_MAX] = {NULL};
    tdm_status status = TDM_OK;

    if (count == 0 || count > TDM_WEIGHTS_SET_MAX) {
        return tdm__fail(TDM_E_INVAL, "a set has 1 to %d models, not %u", TDM_WEIGHTS_SET_MAX,
                         count);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status = check_set_options(&options[i], count);
        if (status == TDM_OK) {
            status = sender_create(runtime, &options[i], &set[i]);
        }
    }
    if (status == TDM_OK) {
        status = join_set(set, count, sender_out);
    }
    for (uint32_t i = 0; i < count && status != TDM_OK && set[i] != NULL; i++) {
        sender_destroy(set[i]);
    }
    return status;
}

/* ---- connect ------------------------------------------------------------------------- */

/* Puts the message of the model into the mailbox. `names` are the models of the sender's set. */
static tdm_status publish_model(tdm_weights_sender *sender, const struct tdm__message_list *names,
                                tdm_actor *mailbox, int64_t deadline_ms)
{
    const struct tdm__scheme_model_message message = {
        .manifest = tdm__manifest_to_message(sender->model_buckets.manifest),
        .scheme = (uint32_t)sender->scheme,
        .bucket_bytes = sender->model_buckets.bucket_bytes,
        .set = *names};

    return tdm__mailbox_put_and_wait(mailbox, "model", tdm__scheme_model_table(), &message,
                                     deadline_ms);
}

/* Creates the mailbox of one model and publishes the model in it, unless that was done before.
 * `names` are the models of the sender's set. */
static tdm_status open_mailbox(tdm_weights_sender *sender, const struct tdm__message_list *names,
                               int64_t deadline_ms)
{
    char name[TDM_WEIGHTS_MODEL_BYTES_MAX + 16];
    tdm_actor *mailbox;
    tdm_status status;

    if (sender->mailbox != NULL) {
        return TDM_OK;
    }
    (void)snprintf(name, sizeof(name), "weights/%s", sender->session.model);
    TDM_TRY(tdm__mailbox_create(sender->session.runtime, name,
                                tdm__deadline_remaining_ms(deadline_ms), &mailbox));
    status = publish_model(sender, names, mailbox, deadline_ms);
    if (status != TDM_OK) {
        tdm_actor_destroy(mailbox);
        return status;
    }
    sender->mailbox = mailbox;
    tdm__update_session_set_record(&sender->session, mailbox);
    return TDM_OK;
}

/* Returns TDM_E_STATE while an asynchronous send has not been waited for. */
static tdm_status check_not_sending(const tdm_weights_sender *sender)
{
    return sender->sending
               ? tdm__fail(TDM_E_STATE, "%s is being sent: wait for it", sender->session.model)
               : TDM_OK;
}

tdm_status tdm_weights_sender_connect(tdm_weights_sender *sender)
{
    TDM__REQUIRE(sender);

    int64_t deadline_ms = tdm__deadline_after(sender->timeout_ms);
    const char *models[TDM__VERSION_SET_MAX];
    const struct tdm__message_list names = {.count = sender->set_count, .items = models};
    uint64_t version;

    TDM_TRY(check_not_sending(sender));
    for (uint32_t i = 0; i < sender->set_count; i++) {
        models[i] = sender->set[i]->session.model;
    }
    for (uint32_t i = 0; i < sender->set_count; i++) {
        TDM_TRY(open_mailbox(sender->set[i], &names, deadline_ms));
    }
    for (uint32_t i = 0; i < sender->set_count; i++) {
        tdm__start_module_receives(sender->set[i]);
        TDM_TRY(tdm__membership_await_receivers(sender->set[i], deadline_ms));
    }
    return tdm__send_version(sender, &version);
}

/* ---- send ---------------------------------------------------------------------------- */

tdm_status tdm_weights_attach(tdm_weights_sender *sender, struct tdm_bytes bytes)
{
    TDM__REQUIRE(sender);

    TDM_TRY(check_not_sending(sender));
    if (sender->relay_of != NULL) {
        return tdm__fail(TDM_E_INVAL,
                         "the relay %s sends on what is attached to the versions of %s",
                         sender->session.model, sender->relay_of->session.model);
    }
    for (uint32_t i = 0; i < sender->set_count; i++) {
        TDM_TRY(tdm__attachment_set(&sender->set[i]->attached, bytes));
    }
    return TDM_OK;
}

tdm_status tdm_weights_send(tdm_weights_sender *sender, uint64_t *version_out)
{
    TDM__REQUIRE(sender);

    uint64_t version;

    TDM_TRY(check_not_sending(sender));
    TDM_TRY(tdm__send_version(sender, &version));
    if (version_out != NULL) {
        *version_out = version;
    }
    return TDM_OK;
}

/* Thread of an asynchronous send: sends one version and stores the result. */
static void *sender_thread_main(void *arg)
{
    tdm_weights_sender *sender = arg;
    uint64_t version = 0;
    tdm_status status = tdm__send_version(sender, &version);

    (void)pthread_mutex_lock(&sender->mutex);
    sender->sent = true;
    sender->outcome = status;
    sender->version = version;
    (void)snprintf(sender->detail, sizeof(sender->detail), "%s", tdm_error_detail());
    (void)pthread_cond_broadcast(&sender->changed);
    (void)pthread_mutex_unlock(&sender->mutex);
    return NULL;
}

tdm_status tdm_weights_send_async(tdm_weights_sender *sender)
{
    TDM__REQUIRE(sender);

    TDM_TRY(check_not_sending(sender));
    sender->sent = false;
    if (pthread_create(&sender->thread, NULL, sender_thread_main, sender) != 0) {
        return tdm__fail(TDM_E_IO, "pthread_create: the thread that sends %s",
                         sender->session.model);
    }
    sender->sending = true;
    return TDM_OK;
}

/* Waits until the deadline for the asynchronous send to end. Returns true if it has. */
static bool await_sent(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct timespec until = {.tv_sec = deadline_ms / 1000,
                                   .tv_nsec = deadline_ms % 1000 * 1000000};
    bool sent;

    (void)pthread_mutex_lock(&sender->mutex);
    while (!sender->sent && tdm__clock_ms() < deadline_ms) {
        if (deadline_ms == TDM__NEVER) {
            (void)pthread_cond_wait(&sender->changed, &sender->mutex);
        } else {
            (void)pthread_cond_timedwait(&sender->changed, &sender->mutex, &until);
        }
    }
    sent = sender->sent;
    (void)pthread_mutex_unlock(&sender->mutex);
    return sent;
}

tdm_status tdm_weights_wait(tdm_weights_sender *sender, int64_t timeout_ms, uint64_t *version_out)
{
    TDM__REQUIRE(sender);

    if (!sender->sending) {
        return tdm__fail(TDM_E_STATE, "nothing of %s is being sent", sender->session.model);
    }
    if (!await_sent(sender, tdm__deadline_after(timeout_ms))) {
        return tdm__fail(TDM_E_TIMEOUT, "%s is still being sent after %lld ms",
                         sender->session.model, (long long)timeout_ms);
    }
    (void)pthread_join(sender->thread, NULL);
    sender->sending = false;
    if (sender->outcome != TDM_OK) {
        return tdm__fail(sender->outcome, "%s", sender->detail);
    }
    if (version_out != NULL) {
        *version_out = sender->version;
    }
    return TDM_OK;
}

uint32_t tdm_weights_receivers_count(const tdm_weights_sender *sender)
{
    TDM__REQUIRE_OR(sender, 0);

    uint32_t count = 0;

    for (uint32_t i = 0; i < sender->set_count; i++) {
        count += sender->set[i]->membership.members_count;
    }
    return count;
}

/* Closes the mailbox, so that receivers which wait read TDM_E_END. The name is free when this
 * returns, so that the next sender can use it. */
static void close_mailbox(tdm_weights_sender *sender)
{
    tdm_ref *done;

    if (tdm__mailbox_close(sender->mailbox, "", TDM_E_END, "the sender has shut down", &done) ==
        TDM_OK) {
        (void)tdm__mailbox_await_done(done, tdm__deadline_after(CLOSE_MS));
    }
    (void)tdm_actor_kill(sender->mailbox, CLOSE_MS);
}

/* Deletes the version record, whose name is never used again. The record stays if a receiver may
 * still ask for it or the store is unavailable. */
static void forget_record(const tdm_weights_sender *sender)
{
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_FORGET,
        .update = tdm__update_session_update_id(&sender->session, sender->epoch)};
    struct tdm__version_reply reply;

    if (sender->epoch != 0 &&
        tdm__update_session_request(&sender->session, &request, tdm__deadline_after(CLOSE_MS),
                                    &reply) != TDM_OK) {
        tdm__log(TDM__INFO, "weights", "the record of %s stays: %s", sender->session.record,
                 tdm_error_detail());
    }
}

void tdm_weights_sender_shutdown(tdm_weights_sender *sender)
{
    if (sender == NULL) {
        return;
    }
    if (sender->sending) {
        (void)pthread_join(sender->thread, NULL);
    }
    for (uint32_t i = sender->set_count; i-- > 0;) { /* The first one has the list and is last. */
        tdm_weights_sender *member = sender->set[i];

        if (member->mailbox != NULL) {
            close_mailbox(member);
            forget_record(member);
        }
        sender_destroy(member);
    }
}
