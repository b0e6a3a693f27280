/* send_version.c - sends one version of the weights to all receivers. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The steps of docs/protocols/commit.md from the source's side. The sender collects the
 * members, begins the update in the version record, publishes an offer in the mailbox and sends the
 * buckets. It waits for the votes, decides, publishes the outcome and waits for the flips. If a
 * step before the decision fails, the sender proposes ABORTED. The decision has its own timeout
 * (DECIDE_MS), because it must be made even when the deadline has passed.
 *
 * Invariant: `undecided` is true from before BEGIN until the outcome is known. The next send
 * first settles such an update. Everything runs in the thread that sends: the caller's or that
 * of tdm_weights_send_async(). The receiving side is receive_version.c. */

#include "colocate/scheme/send_version.h"

#include "colocate/scheme/mailbox.h"
#include "colocate/scheme/membership.h"
#include "colocate/weights/commit_record.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <string.h>

/* Constants of a send. */
enum {
    DECIDE_MS = 10000, /* Timeout of the decision about an update, in milliseconds. */
    WORD_BYTES = 8,    /* Size in bytes of the words in which buckets travel. */
};

/* ---- what is relayed ----------------------------------------------------------------- */

/* Begins a read of the version that a relay sends on, copies what is attached to it, and stores the
 * addresses of its tensors. They do not change until end_relay_read(). Sets `version_out` to 0 for
 * a sender that is not a relay.
 */
static tdm_status begin_relay_read(tdm_weights_sender *sender, uint64_t *version_out)
{
    tdm_status status;

    if (sender->relay_of == NULL) {
        *version_out = 0;
        return TDM_OK;
    }
    TDM_TRY(tdm_weights_read_begin(sender->relay_of, version_out));
    status = tdm__attachment_set(&sender->attached, tdm_weights_attached(sender->relay_of));
    if (status != TDM_OK) {
        tdm_weights_read_end(sender->relay_of);
        return status;
    }
    sender->relay_open = true;
    for (uint32_t i = 0; i < sender->model_buckets.manifest->tensors_count; i++) {
        sender->addresses[i] = tdm_weights_data(sender->relay_of, i);
    }
    return TDM_OK;
}

/* Ends the relay's read as soon as all buckets are sent, so that slow receivers of the relay do not
 * delay the versions that the relay itself receives. */
static void end_relay_read(tdm_weights_sender *sender)
{
    if (sender->relay_open) {
        sender->relay_open = false;
        tdm_weights_read_end(sender->relay_of);
    }
}

/* ---- the steps ----------------------------------------------------------------------- */

/* Begins an update in the version record. `number` is the version that a relay sends on, or 0; the
 * new version is at least that number. The update counts as begun before the request is sent,
 * because the reply may be lost. */
static tdm_status begin_update(tdm_weights_sender *sender, uint64_t number, int64_t deadline_ms)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_READ};
    const struct tdm__membership *membership = &sender->membership;
    struct tdm__version_reply reply;

    TDM_TRY(tdm__update_session_request(&sender->session, &request, deadline_ms, &reply));
    request = (struct tdm__version_request){
        .kind = TDM__VERSION_BEGIN,
        .update = tdm__update_session_update_id(&sender->session, reply.epoch + 1),
        .base = reply.version,
        .version_floor = number == 0 ? 0 : number - 1,
        .source = {.actor = membership->members[0].actor, .incarnation = 1},
        .members = membership->members,
        .members_count = membership->members_count,
        .dead = membership->dead,
        .dead_count = membership->dead_count};
    sender->epoch = reply.epoch + 1;
    sender->undecided = true;
    TDM_TRY(tdm__update_session_request(&sender->session, &request, deadline_ms, &reply));
    sender->version_begun = reply.update_version;
    tdm__membership_forget_dead(sender);
    return TDM_OK;
}

/* Returns true if the collective group consists of the current members. */
static bool group_is_current(const tdm_weights_sender *sender)
{
    const struct tdm__membership *membership = &sender->membership;

    return sender->group != NULL && sender->group_members_count == membership->members_count &&
           memcmp(sender->group_members, membership->members,
                  membership->members_count * sizeof(membership->members[0])) == 0;
}

/* Puts the offer of a version into the mailbox. */
static tdm_status publish_offer(tdm_weights_sender *sender, uint64_t version, int64_t deadline_ms)
{
    const struct tdm__membership *membership = &sender->membership;
    struct tdm__scheme_offer_message message;
    char key[TDM__UPDATE_KEY_BYTES];

    if (sender->transport->uses_group && !group_is_current(sender)) {
        tdm_collective_leave(sender->group);
        sender->group = NULL;
        sender->group_epoch = sender->epoch;
    }
    (void)snprintf(key, sizeof(key), "offer/%020llu", (unsigned long long)sender->epoch);
    message = (struct tdm__scheme_offer_message){
        .epoch = sender->epoch,
        .version = version,
        .group_epoch = sender->group_epoch,
        .sender_node = sender->node,
        .timeout_ms = tdm__deadline_remaining_ms(deadline_ms),
        .members = {.count = membership->members_count,
                    .get = tdm__member_get_message,
                    .arg = membership->members},
        .attached_sum = sender->attached.sum,
        .attached = {sender->attached.data, sender->attached.size_bytes}};
    return tdm__mailbox_put_and_wait(sender->mailbox, key, tdm__scheme_offer_table(), &message,
                                     deadline_ms);
}

/* Joins the collective group of sender and members, if the transport uses one and it does not exist
 * yet. */
static tdm_status join_group(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__membership *membership = &sender->membership;
    char name[TDM__MODEL_NAME_BYTES_MAX + TDM__UPDATE_KEY_BYTES];
    char node_id[TDM__ID_TEXT_BYTES];
    struct tdm_collective_options options = {.name = name,
                                             .rank = 0,
                                             .ranks_count = membership->members_count + 1,
                                             .node_id = tdm__id_text(&sender->node, node_id),
                                             .timeout_ms = tdm__deadline_remaining_ms(deadline_ms)};

    if (!sender->transport->uses_group || sender->group != NULL) {
        return TDM_OK;
    }
    (void)snprintf(name, sizeof(name), "%s/%llu", sender->session.record,
                   (unsigned long long)sender->group_epoch);
    TDM_TRY(tdm_collective_join(sender->session.runtime, &options, &sender->group));
    memcpy(sender->group_members, membership->members,
           membership->members_count * sizeof(membership->members[0]));
    sender->group_members_count = membership->members_count;
    return TDM_OK;
}

/* Packs a bucket and describes it. Receivers get its bytes and open no storage, so the update's ID
 * stands for the storage's GPU and key. */
static tdm_status pack_bucket(tdm_weights_sender *sender, uint32_t bucket,
                              struct tdm__outgoing_bucket *outgoing_bucket_out)
{
    const struct tdm__model_buckets *model_buckets = &sender->model_buckets;
    const struct tdm__bucket *about = &model_buckets->plan->buckets[bucket];
    uint64_t *sums = sender->sums + about->tensors_first;
    struct tdm__bucket_contents contents = {
        .manifest = model_buckets->manifest,
        .update = tdm__update_session_update_id(&sender->session, sender->epoch),
        .epoch = sender->epoch,
        .node = sender->node,
        .storage = {.size_bytes = about->size_bytes, .allocation_bytes = about->size_bytes},
        .sums = sums,
        .records = sender->records};

    contents.storage.gpu = contents.update;
    contents.storage.key = contents.update;
    tdm__model_buckets_pack(model_buckets, bucket, sender->addresses, sender->image, sums);
    *outgoing_bucket_out = (struct tdm__outgoing_bucket){
        .bucket = bucket,
        .image = sender->image,
        .size_bytes = (about->size_bytes + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES};
    return tdm__bucket_describe(model_buckets->plan, bucket, &contents, sender->description,
                                &outgoing_bucket_out->description);
}

/* Packs, describes and sends all buckets. */
static tdm_status send_buckets(tdm_weights_sender *sender, int64_t deadline_ms)
{
    struct tdm__transport_context context = {.runtime = sender->session.runtime,
                                             .mailbox = sender->mailbox,
                                             .epoch = sender->epoch,
                                             .deadline_ms = deadline_ms};

    if (sender->transport->send_bucket == NULL) {
        return TDM_OK;
    }
    TDM_TRY(join_group(sender, deadline_ms));
    context.group = sender->group;
    for (uint32_t i = 0; i < sender->model_buckets.plan->buckets_count; i++) {
        struct tdm__outgoing_bucket outgoing_bucket;

        TDM_TRY(pack_bucket(sender, i, &outgoing_bucket));
        TDM_TRY(sender->transport->send_bucket(&context, &outgoing_bucket));
        tdm__failpoint_hit("weights.bucket_sent");
    }
    return TDM_OK;
}

/* Calls the module so that it receives the version that is offered next. A failure shows in the
 * votes. */
static void start_module_receive(tdm_weights_sender *sender, uint32_t index)
{
    const struct tdm__scheme_receive_message message = {sender->session.model, sender->timeout_ms};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    if (tdm__scheme_receive_encode(&message, writer) == TDM_OK) {
        (void)tdm_actor_call_packed(sender->modules[index], TDM_WEIGHTS_METHOD,
                                    tdm_writer_bytes(writer), &sender->modules_refs[index]);
    }
    tdm_writer_destroy(writer);
}

void tdm__start_module_receives(tdm_weights_sender *sender)
{
    for (uint32_t i = 0; i < sender->modules_count; i++) {
        uint8_t done = 1;

        if (sender->modules_refs[i] != NULL) {
            (void)tdm_wait(&sender->modules_refs[i], 1, 1, 0, &done);
        }
        if (done) {
            tdm_ref_release(sender->modules_refs[i]);
            sender->modules_refs[i] = NULL;
            start_module_receive(sender, i);
        }
    }
}

/* ---- the outcome --------------------------------------------------------------------- */

/* Stores the outcome of the update. The deadline of the send may be over, so this has its own
 * timeout. */
static tdm_status decide_outcome(tdm_weights_sender *sender, tdm_status staged, bool *committed)
{
    const struct tdm__version_request proposal = {
        .proposal = staged == TDM_OK ? TDM__UPDATE_COMMITTED : TDM__UPDATE_ABORTED,
        .dead = sender->membership.dead,
        .dead_count = sender->membership.dead_count};

    TDM_TRY(tdm__update_session_decide(&sender->session, sender->epoch, &proposal,
                                       tdm__deadline_after(DECIDE_MS), committed));
    sender->undecided = false;
    return TDM_OK;
}

/* Waits until all members report that they serve the committed version. Members that died after the
 * commit are reported to the record, and the others continue. */
static tdm_status await_flips(tdm_weights_sender *sender, int64_t deadline_ms)
{
    struct tdm__version_request request = {
        .kind = TDM__VERSION_DEAD,
        .update = tdm__update_session_update_id(&sender->session, sender->epoch)};
    struct tdm__version_reply reply;
    tdm_status status = tdm__membership_await(sender, "flip/", "gone live with", deadline_ms);

    while (status == TDM_E_ACTOR_DIED) {
        tdm__log(TDM__WARN, "weights", "version %llu of %s is committed: %s",
                 (unsigned long long)sender->version_begun, sender->session.model,
                 tdm_error_detail());
        tdm__membership_drop_dead(sender);
        request.dead = sender->membership.dead;
        request.dead_count = sender->membership.dead_count;
        status = tdm__update_session_request(&sender->session, &request, deadline_ms, &reply);
        if (status == TDM_OK) {
            status = tdm__membership_await(sender, "flip/", "gone live with", deadline_ms);
        }
    }
    return status == TDM_OK
               ? TDM_OK
               : tdm__wrap(status, "version %llu of %s is committed",
                           (unsigned long long)sender->version_begun, sender->session.model);
}

/* Removes the offer and the messages of its update; waits for them fail with TDM_E_ABORTED. */
static void remove_offer(tdm_weights_sender *sender, const char *why)
{
    char key[TDM__UPDATE_KEY_BYTES];

    (void)tdm__mailbox_close(sender->mailbox, "offer/", TDM_OK, "", NULL);
    (void)tdm__mailbox_close(sender->mailbox, tdm__update_message_key(sender->epoch, "", key),
                             TDM_E_ABORTED, why, NULL);
}

/* Cleans up after an aborted update and returns `status` with the text `detail`. */
static tdm_status abort_update(tdm_weights_sender *sender, tdm_status status, const char *detail)
{
    /* The group may have failed; leaving it ends the calls that wait in it. */
    tdm_collective_leave(sender->group);
    sender->group = NULL;
    remove_offer(sender, detail);
    return tdm__fail(status, "%s", detail);
}

/* Publishes the commit and waits for the flips. */
static tdm_status finish_update(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__scheme_outcome_message message = {.committed = true};
    char key[TDM__UPDATE_KEY_BYTES];
    tdm_status status;

    status = tdm__mailbox_put_and_wait(sender->mailbox,
                                       tdm__update_message_key(sender->epoch, "outcome", key),
                                       tdm__scheme_outcome_table(), &message, deadline_ms);
    if (status == TDM_OK) {
        status = await_flips(sender, deadline_ms);
    }
    remove_offer(sender, "the update is over");
    return status;
}

/* Ends an update whose outcome this sender could not store or did not learn. */
static tdm_status settle_undecided(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__version_request proposal = {.proposal = TDM__UPDATE_ABORTED};
    bool committed = false;
    tdm_status status;

    if (!sender->undecided) {
        return TDM_OK;
    }
    status = tdm__update_session_decide(&sender->session, sender->epoch, &proposal, deadline_ms,
                                        &committed);
    sender->undecided = status != TDM_OK && status != TDM_E_NOT_FOUND;
    if (status == TDM_E_NOT_FOUND) {
        return TDM_OK; /* The update never began, so nothing was offered and its epoch is free. */
    }
    TDM_TRY(status);
    if (committed) {
        return finish_update(sender, deadline_ms);
    }
    remove_offer(sender, "the update is over");
    return TDM_OK;
}

/* Copies the failure's text to `detail` and returns its status. If a member has died, that is the
 * cause and replaces both, because a group or a receiver reports only that it was aborted. */
static tdm_status append_failure_cause(tdm_weights_sender *sender, tdm_status failed,
                                       char detail[TDM__SENDER_DETAIL_BYTES])
{
    (void)snprintf(detail, TDM__SENDER_DETAIL_BYTES, "%s", tdm_error_detail());
    if (failed == TDM_E_CHECKSUM || failed == TDM_E_ACTOR_DIED ||
        tdm__membership_find_dead(sender) == TDM_OK) {
        return failed;
    }
    (void)snprintf(detail, TDM__SENDER_DETAIL_BYTES, "%s", tdm_error_detail());
    return TDM_E_ACTOR_DIED;
}

/* Runs an update after its BEGIN: offer, buckets, votes, decision, flips. */
static tdm_status send_update(tdm_weights_sender *sender, uint64_t version, int64_t deadline_ms)
{
    char detail[TDM__SENDER_DETAIL_BYTES] = "a receiver gave up before the decision";
    tdm_status staged = publish_offer(sender, version, deadline_ms);
    bool committed = false;

    if (staged == TDM_OK) {
        tdm__start_module_receives(sender);
        staged = send_buckets(sender, deadline_ms);
    }
    end_relay_read(sender);
    if (staged == TDM_OK) {
        staged = tdm__membership_await(sender, "vote/", "voted in", deadline_ms);
    }
    if (staged != TDM_OK) {
        staged = append_failure_cause(sender, staged, detail);
    }
    tdm__failpoint_hit("weights.decide");
    TDM_TRY(decide_outcome(sender, staged, &committed));
    tdm__failpoint_hit("weights.decided");
    if (committed) {
        return finish_update(sender, deadline_ms);
    }
    return abort_update(sender, staged != TDM_OK ? staged : TDM_E_ABORTED, detail);
}

tdm_status tdm__send_version(tdm_weights_sender *sender, uint64_t *version_out)
{
    int64_t deadline_ms = tdm__deadline_after(sender->timeout_ms);
    uint64_t version;
    tdm_status status;

    if (sender->mailbox == NULL) {
        return tdm__fail(TDM_E_STATE, "a sender of %s is to be connected first",
                         sender->session.model);
    }
    TDM_TRY(settle_undecided(sender, deadline_ms));
    TDM_TRY(tdm__membership_collect(sender, deadline_ms));
    TDM_TRY(begin_relay_read(sender, &version));
    status = begin_update(sender, version, deadline_ms);
    if (status == TDM_OK) {
        version = sender->relay_of == NULL ? sender->version_begun : version;
        status = send_update(sender, version, deadline_ms);
    }
    end_relay_read(sender);
    TDM_TRY(status);
    *version_out = version;
    return TDM_OK;
}
