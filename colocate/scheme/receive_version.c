/* receive_version.c - one version on its way into a receiver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/receive_version.h"

#include "colocate/scheme/mailbox.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DECIDE_MS = 10000, WORD_BYTES = 8 };

/* What the sender says of a version, as far as this receiver needs it. */
struct offer {
    uint64_t epoch;
    uint64_t version;
    uint64_t group_epoch;
    int64_t deadline_ms;
    uint32_t members_count;
    uint32_t self; /* index among them, or members_count */
};

/* ---- the offer -------------------------------------------------------------------------- */

static tdm_status sender_is_gone(const tdm_weights_receiver *receiver, tdm_status status)
{
    if (status == TDM_E_ACTOR_DIED || status == TDM_E_NODE_LOST || status == TDM_E_OWNER_DIED) {
        return tdm__fail(TDM_E_END, "the sender of %s is gone: %s", receiver->session.model,
                         tdm_error_detail());
    }
    return status;
}

/* The reference is kept while nothing comes, so that nobody asks twice. */
static tdm_status request_next_offer(tdm_weights_receiver *receiver)
{
    tdm_status status = TDM_OK;

    (void)pthread_mutex_lock(&receiver->mutex);
    if (receiver->stopping) {
        status = tdm__fail(TDM_E_CANCELED, "the receiver of %s stops", receiver->session.model);
    } else if (receiver->next == NULL) {
        status = tdm__mailbox_wait_messages(receiver->mailbox, "offer/", receiver->last_offer_key,
                                            1, &receiver->next);
    }
    (void)pthread_mutex_unlock(&receiver->mutex);
    return status;
}

static void drop_next_offer(tdm_weights_receiver *receiver)
{
    (void)pthread_mutex_lock(&receiver->mutex);
    tdm_ref_release(receiver->next);
    receiver->next = NULL;
    (void)pthread_mutex_unlock(&receiver->mutex);
}

static uint32_t find_own_index(const tdm_weights_receiver *receiver, const tdm_value *members)
{
    const struct tdm__member *self = &receiver->self;
    uint32_t i;

    for (i = 0; i < tdm_value_count(members); i++) {
        const tdm_value *member = tdm_value_at(members, i);
        struct tdm_bytes id = tdm_value_bytes(tdm_value_at(member, 0));

        if (id.size_bytes == sizeof(self->actor.bytes) &&
            memcmp(id.data, self->actor.bytes, id.size_bytes) == 0 &&
            tdm_value_uint(tdm_value_at(member, 1), 0) == self->incarnation) {
            break;
        }
    }
    return i;
}

static tdm_status read_offer(tdm_weights_receiver *receiver, const tdm_value *notes,
                             struct offer *offer)
{
    const tdm_value *note = tdm_value_at(notes, tdm_value_count(notes) - 1);
    const char *key = tdm_value_string(tdm_value_at(note, 0), NULL);
    const tdm_value *members;
    int64_t remaining_ms;

    if (key == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "an offer of %s without a key", receiver->session.model);
    }
    (void)snprintf(receiver->last_offer_key, sizeof(receiver->last_offer_key), "%s", key);
    TDM_TRY(tdm_unpack(tdm_value_at(note, 1), "uuuiv", &offer->epoch, &offer->version,
                       &offer->group_epoch, &remaining_ms, &members));
    offer->deadline_ms = tdm__deadline_after(remaining_ms);
    offer->members_count = tdm_value_count(members);
    offer->self = find_own_index(receiver, members);
    return TDM_OK;
}

/* One that came while nobody received may be over: the sender has closed its notes. */
static tdm_status check_open(const tdm_weights_receiver *receiver, const struct offer *offer,
                             bool *open_out)
{
    char key[TDM__UPDATE_KEY_BYTES];
    const tdm_value *notes;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(tdm__mailbox_wait_messages(
        receiver->mailbox, tdm__update_message_key(offer->epoch, "outcome", key), "", 0, &ref));
    status = tdm_get_value(ref, tdm__deadline_remaining_ms(offer->deadline_ms), &notes);
    tdm_ref_release(ref);
    *open_out = status != TDM_E_ABORTED;
    return status == TDM_E_ABORTED ? TDM_OK : status;
}

/* The next one that asks for this receiver. */
static tdm_status await_offer(tdm_weights_receiver *receiver, int64_t deadline_ms,
                              struct offer *offer)
{
    const tdm_value *notes;
    bool open = false;
    tdm_status status;

    do {
        status = request_next_offer(receiver);
        if (status == TDM_OK) {
            status = tdm_get_value(receiver->next, tdm__deadline_remaining_ms(deadline_ms), &notes);
        }
        if (status == TDM_E_TIMEOUT) {
            return tdm__fail(TDM_E_TIMEOUT, "no version of %s after %llu has come in time",
                             receiver->session.model, (unsigned long long)receiver->version);
        }
        if (status == TDM_OK) {
            status = read_offer(receiver, notes, offer);
        }
        drop_next_offer(receiver);
        if (status == TDM_OK && offer->self < offer->members_count) {
            status = check_open(receiver, offer, &open);
        }
        TDM_TRY(sender_is_gone(receiver, status));
    } while (!open);
    return TDM_OK;
}

/* ---- stage ------------------------------------------------------------------------------ */

void tdm__incoming_version_fini(struct tdm__incoming_version *incoming,
                                const struct tdm__model_buckets *model_buckets)
{
    for (uint32_t i = 0; incoming->buckets != NULL && i < model_buckets->plan->buckets_count; i++) {
        tdm__received_bucket_fini(&incoming->buckets[i]);
    }
    free(incoming->buckets);
    *incoming = (struct tdm__incoming_version){.buckets = NULL};
}

static tdm_status join_group(tdm_weights_receiver *receiver, const struct offer *offer)
{
    char name[TDM__MODEL_NAME_BYTES_MAX + TDM__UPDATE_KEY_BYTES];
    const struct tdm_collective_options options = {
        .name = name,
        .rank = offer->self + 1,
        .ranks_count = offer->members_count + 1,
        .timeout_ms = tdm__deadline_remaining_ms(offer->deadline_ms)};

    if (!receiver->transport->uses_group ||
        (receiver->group != NULL && receiver->group_epoch == offer->group_epoch)) {
        return TDM_OK;
    }
    tdm_collective_leave(receiver->group);
    receiver->group = NULL;
    (void)snprintf(name, sizeof(name), "%s/%llu", receiver->session.record,
                   (unsigned long long)offer->group_epoch);
    TDM_TRY(tdm_collective_join(receiver->session.runtime, &options, &receiver->group));
    receiver->group_epoch = offer->group_epoch;
    return TDM_OK;
}

static tdm_status receive_one_bucket(const tdm_weights_receiver *receiver,
                                     const struct tdm__transport_context *context, uint32_t index,
                                     uint64_t *sums, struct tdm__received_bucket *held)
{
    const struct tdm__bucket *bucket = &receiver->model_buckets.plan->buckets[index];
    const struct tdm__outgoing_bucket wanted = {
        .bucket = index,
        .size_bytes = (bucket->size_bytes + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES,
        .sums_count = bucket->tensors_count};

    TDM_TRY(receiver->transport->receive_bucket(context, &wanted, held));
    memcpy(sums + bucket->tensors_first, held->sums, bucket->tensors_count * sizeof(*sums));
    return TDM_OK;
}

/* Wrong bytes are told only in the end: until then others may count on this rank. */
static tdm_status receive_all_buckets(tdm_weights_receiver *receiver, const struct offer *offer,
                                      uint64_t *sums, struct tdm__incoming_version *incoming)
{
    const struct tdm__transport_context context = {.runtime = receiver->session.runtime,
                                                   .mailbox = receiver->mailbox,
                                                   .group = receiver->group,
                                                   .epoch = offer->epoch,
                                                   .deadline_ms = offer->deadline_ms};
    char detail[sizeof(receiver->detail)] = "";
    tdm_status wrong = TDM_OK;

    for (uint32_t i = 0; i < receiver->model_buckets.plan->buckets_count; i++) {
        struct tdm__received_bucket *held = &incoming->buckets[i];
        tdm_status status;

        TDM_TRY(receive_one_bucket(receiver, &context, i, sums, held));
        tdm__failpoint_hit("weights.bucket_received");
        status = tdm__model_buckets_verify(&receiver->model_buckets, i, held->data, held->sums);
        if (status != TDM_OK && wrong == TDM_OK) {
            wrong = status;
            (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        }
    }
    return wrong == TDM_OK ? TDM_OK : tdm__fail(wrong, "%s", detail);
}

static tdm_status stage_version(tdm_weights_receiver *receiver, const struct offer *offer,
                                struct tdm__incoming_version *incoming, struct tdm__hash *hash_out)
{
    const struct tdm__model_buckets *model_buckets = &receiver->model_buckets;
    uint32_t count = model_buckets->manifest->tensors_count;
    uint64_t *sums;
    tdm_status status;

    *incoming = (struct tdm__incoming_version){
        .epoch = offer->epoch, .version = offer->version, .deadline_ms = offer->deadline_ms};
    sums = calloc(count, sizeof(*sums));
    incoming->buckets = calloc(model_buckets->plan->buckets_count, sizeof(*incoming->buckets));
    if (sums == NULL || incoming->buckets == NULL) {
        status = tdm__fail(TDM_E_NOMEM, "%u tensors to receive", count);
    } else if (receiver->transport->receive_bucket == NULL) {
        status = TDM_OK;
    } else {
        status = join_group(receiver, offer);
    }
    if (status == TDM_OK && receiver->transport->receive_bucket != NULL) {
        status = receive_all_buckets(receiver, offer, sums, incoming);
    }
    if (status == TDM_OK) {
        *hash_out = tdm__checksum_contents_hash(&model_buckets->manifest->hash, sums, count);
    }
    free(sums);
    return status;
}

/* ---- the gate --------------------------------------------------------------------------- */

/* Who has voted serves nothing until the outcome is known: so readers are waited for first. */
static tdm_status shut_gate(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    const struct timespec until = {.tv_sec = deadline_ms / 1000,
                                   .tv_nsec = deadline_ms % 1000 * 1000000};
    uint32_t readers_count;

    (void)pthread_mutex_lock(&receiver->mutex);
    receiver->gate_is_shut = true;
    while (receiver->readers_count > 0 && tdm__clock_ms() < deadline_ms) {
        (void)pthread_cond_timedwait(&receiver->changed, &receiver->mutex, &until);
    }
    readers_count = receiver->readers_count;
    receiver->gate_is_shut = readers_count == 0;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
    return readers_count == 0 ? TDM_OK
                              : tdm__fail(TDM_E_TIMEOUT, "%u readers of %s have not ended",
                                          readers_count, receiver->session.model);
}

/* Readers may go on, with `version`, or read that the outcome is unknown. */
static void open_gate(tdm_weights_receiver *receiver, uint64_t version, bool undecided)
{
    (void)pthread_mutex_lock(&receiver->mutex);
    receiver->gate_is_shut = undecided;
    receiver->undecided = undecided;
    receiver->version = version;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
}

/* ---- go live ---------------------------------------------------------------------------- */

static void place_tensor(tdm_weights_receiver *receiver, uint32_t index,
                         const struct tdm__incoming_version *incoming)
{
    const struct tdm_weights_tensor *tensor = &receiver->tensors[index];
    const struct tdm__bucket_location *place = &receiver->tensor_locations[index];
    uint32_t shards_count = tensor->shards_count > 1 ? tensor->shards_count : 1;
    size_t bytes = tdm_tensor_bytes(&tensor->info) / shards_count;
    const char *from = incoming->buckets[place->bucket].data;

    receiver->tensor_addresses[index] = tensor->address;
    if (from == NULL) {
        return; /* no bytes moved */
    }
    from += place->offset + (shards_count > 1 ? tensor->shard * bytes : 0);
    if (tensor->address != NULL) {
        memcpy(tensor->address, from, bytes);
    } else {
        receiver->tensor_addresses[index] = from;
    }
}

static bool receiver_keeps_buckets(const tdm_weights_receiver *receiver)
{
    for (uint32_t i = 0; i < receiver->tensors_count; i++) {
        if (receiver->tensors[i].address == NULL) {
            return true;
        }
    }
    return false;
}

static void version_go_live(tdm_weights_receiver *receiver)
{
    struct tdm__incoming_version *incoming = &receiver->incoming;

    for (uint32_t i = 0; i < receiver->tensors_count; i++) {
        place_tensor(receiver, i, incoming);
    }
    tdm__incoming_version_fini(&receiver->serving, &receiver->model_buckets);
    receiver->unreported_epoch = incoming->epoch;
    open_gate(receiver, incoming->version, false);
    if (receiver_keeps_buckets(receiver)) {
        receiver->serving = *incoming;
        *incoming = (struct tdm__incoming_version){.buckets = NULL};
    } else {
        tdm__incoming_version_fini(incoming, &receiver->model_buckets);
    }
}

/* A note for the sender, and nobody waits until it has it. */
static void send_report(tdm_weights_receiver *receiver, uint64_t epoch, const char *what,
                        tdm_status status)
{
    const struct tdm__member *self = &receiver->self;
    char id[TDM__ID_TEXT_BYTES];
    char text[TDM__UPDATE_KEY_BYTES];
    char key[2 * TDM__UPDATE_KEY_BYTES];

    (void)snprintf(key, sizeof(key), "%s%s", tdm__update_message_key(epoch, what, text),
                   tdm__id_text(&self->actor, id));
    (void)tdm_actor_call(receiver->mailbox, "put", NULL, "s(buis)", key,
                         (const void *)self->actor.bytes, sizeof(self->actor.bytes),
                         self->incarnation, (int64_t)status,
                         status == TDM_OK ? "" : tdm_error_detail());
}

/* The record first: the sender's next update counts on it. */
static void report_flip(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_FLIPPED,
        .update = tdm__update_session_update_id(&receiver->session, receiver->unreported_epoch),
        .member = receiver->self};
    struct tdm__version_reply answer;

    if (receiver->unreported_epoch == 0) {
        return;
    }
    if (tdm__update_session_request(&receiver->session, &request, deadline_ms, &answer) != TDM_OK) {
        tdm__log(TDM__WARN, "weights", "version %llu of %s is live and not reported: %s",
                 (unsigned long long)receiver->version, receiver->session.model,
                 tdm_error_detail());
        return; /* again before the next one */
    }
    send_report(receiver, receiver->unreported_epoch, "flip/", TDM_OK);
    receiver->unreported_epoch = 0;
}

/* ---- vote, and what comes of it --------------------------------------------------------- */

/* An answer that was lost may have counted: only a refusal is none. */
static bool is_refused(tdm_status status)
{
    return status == TDM_E_ABORTED || status == TDM_E_CONFLICT || status == TDM_E_NOT_FOUND ||
           status == TDM_E_ACTOR_DIED || status == TDM_E_STATE || status == TDM_E_INVAL;
}

static tdm_status send_vote(tdm_weights_receiver *receiver, const struct tdm__hash *hash)
{
    const struct tdm__incoming_version *incoming = &receiver->incoming;
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_PREPARED,
        .update = tdm__update_session_update_id(&receiver->session, incoming->epoch),
        .member = receiver->self,
        .hash = *hash};
    struct tdm__version_reply answer;
    tdm_status status;

    TDM_TRY(shut_gate(receiver, incoming->deadline_ms));
    tdm__failpoint_hit("weights.vote");
    status =
        tdm__update_session_request(&receiver->session, &request, incoming->deadline_ms, &answer);
    if (is_refused(status)) {
        open_gate(receiver, receiver->version, false);
        return status;
    }
    tdm__failpoint_hit("weights.voted");
    send_report(receiver, incoming->epoch, "vote/", TDM_OK);
    return TDM_OK;
}

/* The sender tells; one that does not is gone or silent, and then the record is asked, with a
 * proposal that settles it. */
static tdm_status learn_outcome(tdm_weights_receiver *receiver, bool *committed)
{
    const struct tdm__version_request proposal = {.proposal = TDM__UPDATE_ABORTED};
    const struct tdm__incoming_version *incoming = &receiver->incoming;
    char key[TDM__UPDATE_KEY_BYTES];
    const tdm_value *note;
    tdm_ref *ref;

    if (!receiver->undecided &&
        tdm__mailbox_read_message(receiver->mailbox,
                                  tdm__update_message_key(incoming->epoch, "outcome", key),
                                  incoming->deadline_ms, &ref, &note) == TDM_OK) {
        *committed = tdm_value_bool(tdm_value_at(note, 0), 0) != 0;
        tdm_ref_release(ref);
        return TDM_OK;
    }
    return tdm__update_session_decide(&receiver->session, incoming->epoch, &proposal,
                                      tdm__deadline_after(DECIDE_MS), committed);
}

static tdm_status apply_outcome(tdm_weights_receiver *receiver)
{
    bool committed = false;
    tdm_status status = learn_outcome(receiver, &committed);

    if (status != TDM_OK) {
        open_gate(receiver, receiver->version, true);
        return status;
    }
    if (!committed) {
        uint64_t version = receiver->incoming.version;

        tdm__incoming_version_fini(&receiver->incoming, &receiver->model_buckets);
        open_gate(receiver, receiver->version, false);
        return tdm__fail(TDM_E_ABORTED, "version %llu of %s was aborted; %llu is still served",
                         (unsigned long long)version, receiver->session.model,
                         (unsigned long long)receiver->version);
    }
    tdm__failpoint_hit("weights.flip");
    version_go_live(receiver);
    report_flip(receiver, tdm__deadline_after(DECIDE_MS));
    if (receiver->on_version != NULL) {
        receiver->on_version(receiver->arg, receiver->version);
    }
    return TDM_OK;
}

/* Everything before the vote.  What fails is told to the sender, unless it is the sender that
 * has given up. */
static tdm_status take_up_offer(tdm_weights_receiver *receiver, const struct offer *offer)
{
    struct tdm__hash hash = {0, 0};
    tdm_status status = stage_version(receiver, offer, &receiver->incoming, &hash);

    if (status == TDM_OK) {
        status = send_vote(receiver, &hash);
    }
    if (status == TDM_OK) {
        return TDM_OK;
    }
    tdm__incoming_version_fini(&receiver->incoming, &receiver->model_buckets);
    if (status != TDM_E_CHECKSUM) {
        tdm_collective_leave(receiver->group); /* its calls may be out of step */
        receiver->group = NULL;
    }
    if (status != TDM_E_ABORTED && status != TDM_E_END) {
        send_report(receiver, offer->epoch, "vote/", status);
    }
    return sender_is_gone(receiver, status);
}

static tdm_status receive_version(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    struct offer offer;

    report_flip(receiver, tdm__deadline_after(DECIDE_MS));
    if (!receiver->undecided) {
        TDM_TRY(await_offer(receiver, deadline_ms, &offer));
        TDM_TRY(take_up_offer(receiver, &offer));
    }
    return apply_outcome(receiver);
}

/* The next offer is asked for beforehand, so that one who looks without waiting finds it. */
tdm_status tdm__receive_version(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    TDM_TRY(receive_version(receiver, deadline_ms));
    (void)request_next_offer(receiver);
    return TDM_OK;
}
