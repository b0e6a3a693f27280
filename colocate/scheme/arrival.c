/* arrival.c - one version on its way into a receiver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/arrival.h"

#include "colocate/scheme/board.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/step.h"

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
        return tdm__fail(TDM_E_END, "the sender of %s is gone: %s", receiver->round.model,
                         tdm_error_detail());
    }
    return status;
}

/* The reference is kept while nothing comes, so that nobody asks twice. */
static tdm_status ask_for_next(tdm_weights_receiver *receiver)
{
    tdm_status status = TDM_OK;

    (void)pthread_mutex_lock(&receiver->mutex);
    if (receiver->stopping) {
        status = tdm__fail(TDM_E_CANCELED, "the receiver of %s stops", receiver->round.model);
    } else if (receiver->next == NULL) {
        status = tdm__board_wait(receiver->board, "offer/", receiver->seen, 1, &receiver->next);
    }
    (void)pthread_mutex_unlock(&receiver->mutex);
    return status;
}

static void forget_next(tdm_weights_receiver *receiver)
{
    (void)pthread_mutex_lock(&receiver->mutex);
    tdm_ref_release(receiver->next);
    receiver->next = NULL;
    (void)pthread_mutex_unlock(&receiver->mutex);
}

static uint32_t find_self(const tdm_weights_receiver *receiver, const tdm_value *members)
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
    int64_t left_ms;

    if (key == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "an offer of %s without a key", receiver->round.model);
    }
    (void)snprintf(receiver->seen, sizeof(receiver->seen), "%s", key);
    TDM_TRY(tdm_unpack(tdm_value_at(note, 1), "uuuiv", &offer->epoch, &offer->version,
                       &offer->group_epoch, &left_ms, &members));
    offer->deadline_ms = tdm__deadline_in(left_ms);
    offer->members_count = tdm_value_count(members);
    offer->self = find_self(receiver, members);
    return TDM_OK;
}

/* One that came while nobody received may be over: the sender has closed its notes. */
static tdm_status check_open(const tdm_weights_receiver *receiver, const struct offer *offer,
                             bool *open_out)
{
    char key[TDM__ROUND_KEY_BYTES];
    const tdm_value *notes;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(tdm__board_wait(receiver->board, tdm__round_key(offer->epoch, "outcome", key), "",
                            0, &ref));
    status = tdm_get_value(ref, tdm__deadline_left(offer->deadline_ms), &notes);
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
        status = ask_for_next(receiver);
        if (status == TDM_OK) {
            status = tdm_get_value(receiver->next, tdm__deadline_left(deadline_ms), &notes);
        }
        if (status == TDM_E_TIMEOUT) {
            return tdm__fail(TDM_E_TIMEOUT, "no version of %s after %llu has come in time",
                             receiver->round.model, (unsigned long long)receiver->version);
        }
        if (status == TDM_OK) {
            status = read_offer(receiver, notes, offer);
        }
        forget_next(receiver);
        if (status == TDM_OK && offer->self < offer->members_count) {
            status = check_open(receiver, offer, &open);
        }
        TDM_TRY(sender_is_gone(receiver, status));
    } while (!open);
    return TDM_OK;
}

/* ---- stage ------------------------------------------------------------------------------ */

void tdm__arrival_fini(struct tdm__arrival *arrival, const struct tdm__contents *contents)
{
    for (uint32_t i = 0; arrival->buckets != NULL && i < contents->plan->buckets_count; i++) {
        tdm__held_fini(&arrival->buckets[i]);
    }
    free(arrival->buckets);
    *arrival = (struct tdm__arrival){.buckets = NULL};
}

static tdm_status meet(tdm_weights_receiver *receiver, const struct offer *offer)
{
    char name[TDM__MODEL_NAME_BYTES_MAX + TDM__ROUND_KEY_BYTES];
    const struct tdm_group_options options = {.name = name,
                                              .rank = offer->self + 1,
                                              .ranks_count = offer->members_count + 1,
                                              .timeout_ms =
                                                  tdm__deadline_left(offer->deadline_ms)};

    if (!receiver->carrier->meets ||
        (receiver->group != NULL && receiver->group_epoch == offer->group_epoch)) {
        return TDM_OK;
    }
    tdm_group_leave(receiver->group);
    receiver->group = NULL;
    (void)snprintf(name, sizeof(name), "%s/%llu", receiver->round.record,
                   (unsigned long long)offer->group_epoch);
    TDM_TRY(tdm_group_join(receiver->round.runtime, &options, &receiver->group));
    receiver->group_epoch = offer->group_epoch;
    return TDM_OK;
}

static tdm_status take_bucket(const tdm_weights_receiver *receiver, const struct tdm__way *way,
                              uint32_t index, uint64_t *sums, struct tdm__held *held)
{
    const struct tdm__bucket *bucket = &receiver->contents.plan->buckets[index];
    const struct tdm__parcel wanted = {.bucket = index,
                                       .size_bytes = (bucket->size_bytes + WORD_BYTES - 1) /
                                                     WORD_BYTES * WORD_BYTES,
                                       .sums_count = bucket->tensors_count};

    TDM_TRY(receiver->carrier->take(way, &wanted, held));
    memcpy(sums + bucket->tensors_first, held->sums, bucket->tensors_count * sizeof(*sums));
    return TDM_OK;
}

/* Wrong bytes are told only in the end: until then others may count on this rank. */
static tdm_status take_buckets(tdm_weights_receiver *receiver, const struct offer *offer,
                               uint64_t *sums, struct tdm__arrival *arrival)
{
    const struct tdm__way way = {.runtime = receiver->round.runtime,
                                 .board = receiver->board,
                                 .group = receiver->group,
                                 .epoch = offer->epoch,
                                 .deadline_ms = offer->deadline_ms};
    char detail[sizeof(receiver->detail)] = "";
    tdm_status wrong = TDM_OK;

    for (uint32_t i = 0; i < receiver->contents.plan->buckets_count; i++) {
        struct tdm__held *held = &arrival->buckets[i];
        tdm_status status;

        TDM_TRY(take_bucket(receiver, &way, i, sums, held));
        tdm__step("weights.bucket_taken");
        status = tdm__contents_verify(&receiver->contents, i, held->data, held->sums);
        if (status != TDM_OK && wrong == TDM_OK) {
            wrong = status;
            (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        }
    }
    return wrong == TDM_OK ? TDM_OK : tdm__fail(wrong, "%s", detail);
}

static tdm_status stage(tdm_weights_receiver *receiver, const struct offer *offer,
                        struct tdm__arrival *arrival, struct tdm__hash *hash_out)
{
    const struct tdm__contents *contents = &receiver->contents;
    uint32_t count = contents->manifest->tensors_count;
    uint64_t *sums;
    tdm_status status;

    *arrival = (struct tdm__arrival){
        .epoch = offer->epoch, .version = offer->version, .deadline_ms = offer->deadline_ms};
    sums = calloc(count, sizeof(*sums));
    arrival->buckets = calloc(contents->plan->buckets_count, sizeof(*arrival->buckets));
    if (sums == NULL || arrival->buckets == NULL) {
        status = tdm__fail(TDM_E_NOMEM, "%u tensors to receive", count);
    } else if (receiver->carrier->take == NULL) {
        status = TDM_OK;
    } else {
        status = meet(receiver, offer);
    }
    if (status == TDM_OK && receiver->carrier->take != NULL) {
        status = take_buckets(receiver, offer, sums, arrival);
    }
    if (status == TDM_OK) {
        *hash_out = tdm__checksum_contents(&contents->manifest->hash, sums, count);
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
    receiver->shut = true;
    while (receiver->readers_count > 0 && tdm__clock_ms() < deadline_ms) {
        (void)pthread_cond_timedwait(&receiver->changed, &receiver->mutex, &until);
    }
    readers_count = receiver->readers_count;
    receiver->shut = readers_count == 0;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
    return readers_count == 0 ? TDM_OK
                              : tdm__fail(TDM_E_TIMEOUT, "%u readers of %s have not ended",
                                          readers_count, receiver->round.model);
}

/* Readers may go on, with `version`, or read that the outcome is unknown. */
static void open_gate(tdm_weights_receiver *receiver, uint64_t version, bool undecided)
{
    (void)pthread_mutex_lock(&receiver->mutex);
    receiver->shut = undecided;
    receiver->undecided = undecided;
    receiver->version = version;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
}

/* ---- go live ---------------------------------------------------------------------------- */

static void place_tensor(tdm_weights_receiver *receiver, uint32_t index,
                         const struct tdm__arrival *arrival)
{
    const struct tdm_weights_tensor *tensor = &receiver->tensors[index];
    const struct tdm__place_in *place = &receiver->places[index];
    uint32_t shards_count = tensor->shards_count > 1 ? tensor->shards_count : 1;
    size_t bytes = tdm_tensor_bytes(&tensor->info) / shards_count;
    const char *from = arrival->buckets[place->bucket].data;

    receiver->current[index] = tensor->address;
    if (from == NULL) {
        return; /* no bytes moved */
    }
    from += place->offset + (shards_count > 1 ? tensor->shard * bytes : 0);
    if (tensor->address != NULL) {
        memcpy(tensor->address, from, bytes);
    } else {
        receiver->current[index] = from;
    }
}

static bool keeps_bytes(const tdm_weights_receiver *receiver)
{
    for (uint32_t i = 0; i < receiver->tensors_count; i++) {
        if (receiver->tensors[i].address == NULL) {
            return true;
        }
    }
    return false;
}

static void go_live(tdm_weights_receiver *receiver)
{
    struct tdm__arrival *arrival = &receiver->arrival;

    for (uint32_t i = 0; i < receiver->tensors_count; i++) {
        place_tensor(receiver, i, arrival);
    }
    tdm__arrival_fini(&receiver->serving, &receiver->contents);
    receiver->unreported = arrival->epoch;
    open_gate(receiver, arrival->version, false);
    if (keeps_bytes(receiver)) {
        receiver->serving = *arrival;
        *arrival = (struct tdm__arrival){.buckets = NULL};
    } else {
        tdm__arrival_fini(arrival, &receiver->contents);
    }
}

/* A note for the sender, and nobody waits until it has it. */
static void report(tdm_weights_receiver *receiver, uint64_t epoch, const char *what,
                   tdm_status status)
{
    const struct tdm__member *self = &receiver->self;
    char id[TDM__ID_TEXT_BYTES];
    char text[TDM__ROUND_KEY_BYTES];
    char key[2 * TDM__ROUND_KEY_BYTES];

    (void)snprintf(key, sizeof(key), "%s%s", tdm__round_key(epoch, what, text),
                   tdm__id_text(&self->actor, id));
    (void)tdm_actor_call(receiver->board, "put", NULL, "s(buis)", key,
                         (const void *)self->actor.bytes, sizeof(self->actor.bytes),
                         self->incarnation, (int64_t)status,
                         status == TDM_OK ? "" : tdm_error_detail());
}

/* The record first: the sender's next update counts on it. */
static void report_flip(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_FLIPPED,
        .update = tdm__round_update(&receiver->round, receiver->unreported),
        .member = receiver->self};
    struct tdm__version_answer answer;

    if (receiver->unreported == 0) {
        return;
    }
    if (tdm__round_ask(&receiver->round, &request, deadline_ms, &answer) != TDM_OK) {
        tdm__log(TDM__WARN, "weights", "version %llu of %s is live and not reported: %s",
                 (unsigned long long)receiver->version, receiver->round.model,
                 tdm_error_detail());
        return; /* again before the next one */
    }
    report(receiver, receiver->unreported, "flip/", TDM_OK);
    receiver->unreported = 0;
}

/* ---- vote, and what comes of it --------------------------------------------------------- */

/* An answer that was lost may have counted: only a refusal is none. */
static bool is_refused(tdm_status status)
{
    return status == TDM_E_ABORTED || status == TDM_E_CONFLICT || status == TDM_E_NOT_FOUND ||
           status == TDM_E_ACTOR_DIED || status == TDM_E_STATE || status == TDM_E_INVAL;
}

static tdm_status vote(tdm_weights_receiver *receiver, const struct tdm__hash *hash)
{
    const struct tdm__arrival *arrival = &receiver->arrival;
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_PREPARED,
        .update = tdm__round_update(&receiver->round, arrival->epoch),
        .member = receiver->self,
        .hash = *hash};
    struct tdm__version_answer answer;
    tdm_status status;

    TDM_TRY(shut_gate(receiver, arrival->deadline_ms));
    tdm__step("weights.vote");
    status = tdm__round_ask(&receiver->round, &request, arrival->deadline_ms, &answer);
    if (is_refused(status)) {
        open_gate(receiver, receiver->version, false);
        return status;
    }
    tdm__step("weights.voted");
    report(receiver, arrival->epoch, "vote/", TDM_OK);
    return TDM_OK;
}

/* The sender tells; one that does not is gone or silent, and then the record is asked, with a
 * proposal that settles it. */
static tdm_status learn_outcome(tdm_weights_receiver *receiver, bool *committed)
{
    const struct tdm__version_request proposal = {.proposal = TDM__UPDATE_ABORTED};
    const struct tdm__arrival *arrival = &receiver->arrival;
    char key[TDM__ROUND_KEY_BYTES];
    const tdm_value *note;
    tdm_ref *ref;

    if (!receiver->undecided &&
        tdm__board_read(receiver->board, tdm__round_key(arrival->epoch, "outcome", key),
                        arrival->deadline_ms, &ref, &note) == TDM_OK) {
        *committed = tdm_value_bool(tdm_value_at(note, 0), 0) != 0;
        tdm_ref_release(ref);
        return TDM_OK;
    }
    return tdm__round_decide(&receiver->round, arrival->epoch, &proposal,
                             tdm__deadline_in(DECIDE_MS), committed);
}

static tdm_status obey(tdm_weights_receiver *receiver)
{
    bool committed = false;
    tdm_status status = learn_outcome(receiver, &committed);

    if (status != TDM_OK) {
        open_gate(receiver, receiver->version, true);
        return status;
    }
    if (!committed) {
        uint64_t version = receiver->arrival.version;

        tdm__arrival_fini(&receiver->arrival, &receiver->contents);
        open_gate(receiver, receiver->version, false);
        return tdm__fail(TDM_E_ABORTED, "version %llu of %s was aborted; %llu is still served",
                         (unsigned long long)version, receiver->round.model,
                         (unsigned long long)receiver->version);
    }
    tdm__step("weights.flip");
    go_live(receiver);
    report_flip(receiver, tdm__deadline_in(DECIDE_MS));
    if (receiver->on_version != NULL) {
        receiver->on_version(receiver->arg, receiver->version);
    }
    return TDM_OK;
}

/* Everything before the vote.  What fails is told to the sender, unless it is the sender that
 * has given up. */
static tdm_status take_up(tdm_weights_receiver *receiver, const struct offer *offer)
{
    struct tdm__hash hash = {0, 0};
    tdm_status status = stage(receiver, offer, &receiver->arrival, &hash);

    if (status == TDM_OK) {
        status = vote(receiver, &hash);
    }
    if (status == TDM_OK) {
        return TDM_OK;
    }
    tdm__arrival_fini(&receiver->arrival, &receiver->contents);
    if (status != TDM_E_CHECKSUM) {
        tdm_group_leave(receiver->group); /* its calls may be out of step */
        receiver->group = NULL;
    }
    if (status != TDM_E_ABORTED && status != TDM_E_END) {
        report(receiver, offer->epoch, "vote/", status);
    }
    return sender_is_gone(receiver, status);
}

static tdm_status receive_version(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    struct offer offer;

    report_flip(receiver, tdm__deadline_in(DECIDE_MS));
    if (!receiver->undecided) {
        TDM_TRY(await_offer(receiver, deadline_ms, &offer));
        TDM_TRY(take_up(receiver, &offer));
    }
    return obey(receiver);
}

/* The next offer is asked for beforehand, so that one who looks without waiting finds it. */
tdm_status tdm__receive_version(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    TDM_TRY(receive_version(receiver, deadline_ms));
    (void)ask_for_next(receiver);
    return TDM_OK;
}
