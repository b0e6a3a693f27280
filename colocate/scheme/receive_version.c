/* receive_version.c - receives one version of the weights. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The steps of docs/protocols/commit.md from a member's side. The receiver waits for an offer
 * that lists it (version_offers.h), receives and verifies the buckets, shuts the gate and votes.
 * Then it learns the outcome, and either goes live or discards the buckets. Failures before the
 * vote are reported to the sender. After the vote the receiver serves nothing until it knows the
 * outcome. If the sender does not publish it before the deadline, the receiver proposes ABORTED to
 * the record and obeys the stored outcome.
 *
 * A set of models has a receiver for each, and each step is done for all of them before the next
 * one begins: the offers of one version, the buckets, the gates, the votes, the outcomes, the
 * flips. So one thread can receive them all. A failure before the votes is reported for every
 * model, because the sender waits for the votes of one model after the other. Each receiver obeys
 * the outcome of its own record; the records of a set have the same outcome.
 *
 * Invariants: the gate is shut from the vote until the outcome is known. A flip that the record
 * has not stored is reported again before the next offer. One thread enters: the caller's or the
 * receiver's background thread. It holds the mutex only for the members that readers and
 * shutdown use. */

#include "colocate/scheme/receive_version.h"

#include "colocate/scheme/mailbox.h"
#include "colocate/scheme/read_gate.h"
#include "colocate/scheme/version_offers.h"
#include "colocate/weights/commit_record.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Constants of a receive. */
enum {
    DECIDE_MS = 10000, /* Timeout for learning the outcome of an update, in milliseconds. */
    WORD_BYTES = 8,    /* Size in bytes of the words in which buckets travel. */
};

/* ---- stage --------------------------------------------------------------------------- */

void tdm__incoming_version_fini(struct tdm__incoming_version *incoming,
                                const struct tdm__model_buckets *model_buckets)
{
    for (uint32_t i = 0; incoming->buckets != NULL && i < model_buckets->plan->buckets_count; i++) {
        tdm__received_bucket_fini(&incoming->buckets[i]);
    }
    free(incoming->buckets);
    tdm__attachment_fini(&incoming->attached);
    *incoming = (struct tdm__incoming_version){.buckets = NULL};
}

/* Joins the group of the offer, if the transport uses one and this receiver is not in it. */
static tdm_status join_group(tdm_weights_receiver *receiver, const struct tdm__version_offer *offer)
{
    char name[TDM__MODEL_NAME_BYTES_MAX + TDM__UPDATE_KEY_BYTES];
    char node_id[TDM__ID_TEXT_BYTES];
    const struct tdm_collective_options options = {
        .name = name,
        .rank = offer->self + 1,
        .ranks_count = offer->members_count + 1,
        .node_id = tdm__id_text(&offer->sender_node, node_id),
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

/* Receives and stages all buckets. A wrong checksum is reported only after the last bucket, because
 * other ranks of a group may depend on this one until then. */
static tdm_status receive_all_buckets(tdm_weights_receiver *receiver,
                                      const struct tdm__version_offer *offer,
                                      struct tdm__incoming_version *incoming)
{
    const struct tdm__transport_context context = {.runtime = receiver->session.runtime,
                                                   .mailbox = receiver->mailbox,
                                                   .group = receiver->group,
                                                   .epoch = offer->epoch,
                                                   .deadline_ms = offer->deadline_ms};
    char detail[sizeof(receiver->detail)] = "";
    tdm_status wrong = TDM_OK;

    for (uint32_t i = 0; i < receiver->model_buckets.plan->buckets_count; i++) {
        struct tdm__received_bucket *received = &incoming->buckets[i];
        size_t bucket_bytes = receiver->model_buckets.plan->buckets[i].size_bytes;
        const struct tdm__wanted_bucket wanted = {
            .bucket = i, .size_bytes = (bucket_bytes + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES};
        tdm_status status;

        TDM_TRY(receiver->transport->receive_bucket(&context, &wanted, received));
        tdm__failpoint_hit("weights.bucket_received");
        status = tdm__receiver_stage_bucket_from(receiver->staging, received->description,
                                                 received->data, wanted.size_bytes);
        if (status != TDM_OK && wrong == TDM_OK) {
            wrong = status;
            (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        }
    }
    return wrong == TDM_OK ? TDM_OK : tdm__fail(wrong, "%s", detail);
}

/* Receives a version into `incoming`, which has the attached bytes of its offer. `hash_out` is the
 * hash for which to vote; where the scheme sends no bytes, it is that of the model's tensors. */
static tdm_status stage_version(tdm_weights_receiver *receiver, struct tdm__hash *hash_out)
{
    const struct tdm__version_offer *offer = &receiver->offer;
    struct tdm__incoming_version *incoming = &receiver->incoming;
    uint32_t buckets_count = receiver->model_buckets.plan->buckets_count;
    struct tdm__id update = tdm__update_session_update_id(&receiver->session, offer->epoch);

    incoming->epoch = offer->epoch;
    incoming->version = offer->version;
    incoming->deadline_ms = offer->deadline_ms;
    if (receiver->transport->receive_bucket == NULL) {
        *hash_out = receiver->model_buckets.manifest->hash;
        return tdm__attachment_verify(&incoming->attached);
    }
    incoming->buckets = calloc(buckets_count, sizeof(*incoming->buckets));
    if (incoming->buckets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u buckets to receive", buckets_count);
    }
    TDM_TRY(join_group(receiver, offer));
    TDM_TRY(receive_all_buckets(receiver, offer, incoming));
    TDM_TRY(tdm__attachment_verify(&incoming->attached));
    return tdm__receiver_prepare(receiver->staging, &update, hash_out);
}

/* Discards the version that was being received, or that was voted for. */
static void drop_incoming(tdm_weights_receiver *receiver)
{
    /* Without regions this frees no memory, so it cannot fail. */
    (void)tdm__receiver_drop_shadow(receiver->staging, receiver->incoming.epoch);
    tdm__incoming_version_fini(&receiver->incoming, &receiver->model_buckets);
}

/* ---- go live ------------------------------------------------------------------------- */

/* Copies one tensor to its address. A tensor without an address is served from its bucket. */
static void install_tensor(tdm_weights_receiver *receiver, uint32_t index)
{
    const struct tdm_weights_tensor *tensor = &receiver->tensors[index];
    uint32_t shards_count = tensor->shards_count > 1 ? tensor->shards_count : 1;
    size_t bytes = tdm_tensor_bytes(&tensor->info) / shards_count;
    const char *from = receiver->staged_addresses[index];

    receiver->tensor_addresses[index] = tensor->address;
    if (from == NULL) {
        return; /* The scheme sends no bytes. */
    }
    from += shards_count > 1 ? tensor->shard * bytes : 0;
    if (tensor->address != NULL) {
        memcpy(tensor->address, from, bytes);
    } else {
        receiver->tensor_addresses[index] = from;
    }
}

/* Returns true if some tensor is served from its bucket. */
static bool receiver_keeps_buckets(const tdm_weights_receiver *receiver)
{
    for (uint32_t i = 0; i < receiver->tensors_count; i++) {
        if (receiver->tensors[i].address == NULL) {
            return true;
        }
    }
    return false;
}

/* Makes the received version the served one and opens the gate. */
static void version_go_live(tdm_weights_receiver *receiver)
{
    struct tdm__incoming_version *incoming = &receiver->incoming;

    for (uint32_t i = 0; i < receiver->tensors_count; i++) {
        install_tensor(receiver, i);
    }
    tdm__incoming_version_fini(&receiver->serving, &receiver->model_buckets);
    tdm__attachment_move(&receiver->attached, &incoming->attached);
    receiver->unreported_epoch = incoming->epoch;
    tdm__read_gate_open(receiver, incoming->version, false);
    if (receiver_keeps_buckets(receiver)) {
        receiver->serving = *incoming;
        *incoming = (struct tdm__incoming_version){.buckets = NULL};
    } else {
        tdm__incoming_version_fini(incoming, &receiver->model_buckets);
    }
}

/* Sends a report to the mailbox. Does not wait for its confirmation. */
static void send_report(tdm_weights_receiver *receiver, uint64_t epoch, const char *what,
                        tdm_status status)
{
    const struct tdm__member *self = &receiver->self;
    const struct tdm__scheme_report_message message = {
        .receiver = tdm__member_to_message(self),
        .status = (int64_t)status,
        .text = status == TDM_OK ? "" : tdm_error_detail()};
    char id[TDM__ID_TEXT_BYTES];
    char text[TDM__UPDATE_KEY_BYTES];
    char key[2 * TDM__UPDATE_KEY_BYTES];

    (void)snprintf(key, sizeof(key), "%s%s", tdm__update_message_key(epoch, what, text),
                   tdm__id_text(&self->actor, id));
    (void)tdm__mailbox_put(receiver->mailbox, key, tdm__scheme_report_table(), &message, NULL);
}

/* Reports that this receiver serves a version, to the record first, because the sender's next
 * update depends on that. Does nothing if there is nothing to report. */
static void report_flip(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_FLIPPED,
        .update = tdm__update_session_update_id(&receiver->session, receiver->unreported_epoch),
        .member = receiver->self};
    struct tdm__version_reply reply;

    if (receiver->unreported_epoch == 0) {
        return;
    }
    if (tdm__update_session_request(&receiver->session, &request, deadline_ms, &reply) != TDM_OK) {
        tdm__log(TDM__WARN, "weights", "version %llu of %s is live and not reported: %s",
                 (unsigned long long)receiver->version, receiver->session.model,
                 tdm_error_detail());
        return; /* The report is repeated before the next offer. */
    }
    send_report(receiver, receiver->unreported_epoch, "flip/", TDM_OK);
    receiver->unreported_epoch = 0;
}

/* ---- vote, and what comes of it ------------------------------------------------------ */

/* Returns true if the record has certainly not stored the vote. Any other failure may be a lost
 * reply to a stored vote. */
static bool is_refused(tdm_status status)
{
    return status == TDM_E_ABORTED || status == TDM_E_CONFLICT || status == TDM_E_NOT_FOUND ||
           status == TDM_E_ACTOR_DIED || status == TDM_E_STATE || status == TDM_E_INVAL;
}

/* Votes; the gate is shut. Opens the gate again if the record refuses the vote. */
static tdm_status send_vote(tdm_weights_receiver *receiver, const struct tdm__hash *hash)
{
    struct tdm__incoming_version *incoming = &receiver->incoming;
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_PREPARED,
        .update = tdm__update_session_update_id(&receiver->session, incoming->epoch),
        .member = receiver->self,
        .hash = *hash};
    struct tdm__version_reply reply;
    tdm_status status;

    tdm__failpoint_hit("weights.vote");
    status =
        tdm__update_session_request(&receiver->session, &request, incoming->deadline_ms, &reply);
    if (is_refused(status)) {
        tdm__read_gate_open(receiver, receiver->version, false);
        return status;
    }
    tdm__failpoint_hit("weights.voted");
    incoming->voted = true;
    send_report(receiver, incoming->epoch, "vote/", TDM_OK);
    return TDM_OK;
}

/* Reads the outcome that the sender publishes. If the sender does not publish it before the
 * deadline, proposes ABORTED to the record, which settles the update. */
static tdm_status learn_outcome(tdm_weights_receiver *receiver, bool *committed)
{
    const struct tdm__version_request proposal = {.proposal = TDM__UPDATE_ABORTED};
    const struct tdm__incoming_version *incoming = &receiver->incoming;
    struct tdm__scheme_outcome_message message;
    char key[TDM__UPDATE_KEY_BYTES];
    const tdm_value *value;
    tdm_ref *ref;

    if (!receiver->undecided &&
        tdm__mailbox_read_message(receiver->mailbox,
                                  tdm__update_message_key(incoming->epoch, "outcome", key),
                                  incoming->deadline_ms, &ref, &value) == TDM_OK) {
        tdm_status status = tdm__scheme_outcome_decode(value, &message);

        tdm_ref_release(ref);
        if (status == TDM_OK) {
            *committed = message.committed;
            return TDM_OK;
        }
    }
    return tdm__update_session_decide(&receiver->session, incoming->epoch, &proposal,
                                      tdm__deadline_after(DECIDE_MS), committed);
}

/* Obeys the outcome of the version that was voted for: goes live with it or discards it. */
static tdm_status obey_outcome(tdm_weights_receiver *receiver, bool committed)
{
    struct tdm__id update =
        tdm__update_session_update_id(&receiver->session, receiver->incoming.epoch);

    if (!committed) {
        uint64_t version = receiver->incoming.version;

        drop_incoming(receiver);
        tdm__read_gate_open(receiver, receiver->version, false);
        return tdm__fail(TDM_E_ABORTED, "version %llu of %s was aborted; %llu is still served",
                         (unsigned long long)version, receiver->session.model,
                         (unsigned long long)receiver->version);
    }
    tdm__failpoint_hit("weights.flip");
    if (receiver->transport->receive_bucket != NULL) {
        TDM_TRY(tdm__receiver_flip_shadow(receiver->staging, &update));
    }
    version_go_live(receiver);
    return TDM_OK;
}

/* Returns true if a receiver of the set has voted and has not obeyed the outcome. */
static bool has_voted(const tdm_weights_receiver *head)
{
    for (uint32_t i = 0; i < head->set_count; i++) {
        if (head->set[i]->incoming.voted) {
            return true;
        }
    }
    return false;
}

/* Learns the outcomes of the versions that were voted for, goes live with them or discards them,
 * and reports the flips. The first receiver, for whose version callers wait, is the last to go
 * live. The user's functions run when all models are live. */
static tdm_status apply_outcomes(tdm_weights_receiver *head)
{
    bool learned[TDM__VERSION_SET_MAX] = {false};
    bool committed[TDM__VERSION_SET_MAX] = {false};
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < head->set_count; i++) {
        tdm_weights_receiver *receiver = head->set[i];

        if (receiver->incoming.voted) {
            tdm_status asked = learn_outcome(receiver, &committed[i]);

            learned[i] = asked == TDM_OK;
            status = status == TDM_OK ? asked : status;
            if (!learned[i]) {
                tdm__read_gate_open(receiver, receiver->version, true);
            }
        }
    }
    for (uint32_t i = head->set_count; i-- > 0;) {
        if (learned[i]) {
            tdm_status obeyed = obey_outcome(head->set[i], committed[i]);

            learned[i] = obeyed == TDM_OK;
            status = status == TDM_OK ? obeyed : status;
        }
    }
    for (uint32_t i = 0; i < head->set_count; i++) {
        report_flip(head->set[i], tdm__deadline_after(DECIDE_MS));
    }
    for (uint32_t i = 0; i < head->set_count; i++) {
        const tdm_weights_receiver *receiver = head->set[i];

        if (learned[i] && receiver->on_version != NULL) {
            receiver->on_version(receiver->arg, receiver->version);
        }
    }
    return status;
}

/* ---- accept -------------------------------------------------------------------------- */

/* Stages the offered version of all models that list this receiver. After a failure the others are
 * staged nevertheless, because a broadcast waits for all receivers. */
static void stage_all(tdm_weights_receiver *head, struct tdm__hash *hashes,
                      struct tdm__first_failure *failure)
{
    for (uint32_t i = 0; i < head->set_count; i++) {
        if (tdm__version_offers_is_listed(head->set[i])) {
            tdm__first_failure_note(failure, stage_version(head->set[i], &hashes[i]));
        }
    }
}

/* Shuts all gates and then sends all votes, up to the first failure. Opens the gates again of the
 * models that have not voted. */
static void vote_all(tdm_weights_receiver *head, const struct tdm__hash *hashes,
                     struct tdm__first_failure *failure)
{
    uint32_t shut_count = 0;

    while (shut_count < head->set_count && failure->status == TDM_OK) {
        tdm_weights_receiver *receiver = head->set[shut_count];

        if (tdm__version_offers_is_listed(receiver)) {
            tdm__first_failure_note(failure,
                                    tdm__read_gate_shut(receiver, receiver->incoming.deadline_ms));
        }
        shut_count += failure->status == TDM_OK;
    }
    for (uint32_t i = 0; i < shut_count; i++) {
        if (!tdm__version_offers_is_listed(head->set[i])) {
            continue;
        }
        if (failure->status == TDM_OK) {
            tdm__first_failure_note(failure, send_vote(head->set[i], &hashes[i]));
        } else {
            tdm__read_gate_open(head->set[i], head->set[i]->version, false);
        }
    }
}

/* Discards what was staged of a model that has not voted, and reports the failure to the sender,
 * unless the sender itself has given up. */
static void abandon_model(tdm_weights_receiver *receiver, const struct tdm__first_failure *failure)
{
    drop_incoming(receiver);
    if (failure->status != TDM_E_CHECKSUM) {
        /* This rank's calls in the group may be out of step with those of the others. */
        tdm_collective_leave(receiver->group);
        receiver->group = NULL;
    }
    if (failure->status != TDM_E_ABORTED && failure->status != TDM_E_END) {
        send_report(receiver, receiver->offer.epoch, "vote/", tdm__first_failure_return(failure));
    }
}

/* Receives the offered version of all models and votes. After a failure some may have voted
 * nevertheless, see has_voted(). */
static tdm_status accept_offers(tdm_weights_receiver *head)
{
    struct tdm__hash hashes[TDM__VERSION_SET_MAX] = {{0, 0}};
    struct tdm__first_failure failure = {.status = TDM_OK};

    stage_all(head, hashes, &failure);
    if (failure.status == TDM_OK) {
        vote_all(head, hashes, &failure);
    }
    for (uint32_t i = 0; i < head->set_count && failure.status != TDM_OK; i++) {
        if (tdm__version_offers_is_listed(head->set[i]) && !head->set[i]->incoming.voted) {
            abandon_model(head->set[i], &failure);
        }
    }
    tdm__version_offers_forget(head);
    return tdm__version_offers_sender_gone(head, tdm__first_failure_return(&failure));
}

/* Receives one version, or settles the one whose outcome is unknown. */
static tdm_status receive_or_settle_version(tdm_weights_receiver *head, int64_t deadline_ms)
{
    struct tdm__first_failure failure = {.status = TDM_OK};

    for (uint32_t i = 0; i < head->set_count; i++) {
        report_flip(head->set[i], tdm__deadline_after(DECIDE_MS));
    }
    if (!has_voted(head)) {
        TDM_TRY(tdm__version_offers_await(head, deadline_ms));
        tdm__first_failure_note(&failure, accept_offers(head));
    }
    if (has_voted(head)) {
        tdm__first_failure_note(&failure, apply_outcomes(head));
    }
    return tdm__first_failure_return(&failure);
}

/* The wait for the next offer is started before this returns, so that a caller that does not block
 * finds an offer that exists. */
tdm_status tdm__receive_version(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    TDM_TRY(receive_or_settle_version(receiver, deadline_ms));
    for (uint32_t i = 0; i < receiver->set_count; i++) {
        (void)tdm__version_offers_request_next(receiver->set[i]);
    }
    return TDM_OK;
}
