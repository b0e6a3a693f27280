/* send_version.c - sends one version of the weights to all receivers. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The steps of docs/protocols/commit.md from the source's side. The sender collects the
 * members, begins the update in the version record, publishes an offer in the mailbox and sends the
 * buckets. It waits for the votes, decides, publishes the outcome and waits for the flips. If a
 * step before the decision fails, the sender proposes ABORTED. The decision has its own timeout
 * (DECIDE_MS), because it must be made even when the deadline has passed.
 *
 * Models that are committed together have a sender each (`set`), and each step is done for all of
 * them before the next one begins. Only two steps are one request about all: the begin, which gives
 * all updates the same version, and the decision.
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

/* Sends a request about each model of the set, which take effect for all of them or for none. One
 * model alone needs no set: its request shares transactions with those of its receivers. */
static tdm_status request_all(const tdm_weights_sender *head,
                              const struct tdm__version_request *requests, int64_t deadline_ms,
                              struct tdm__version_reply *replies_out)
{
    struct tdm__version_set_item items[TDM__VERSION_SET_MAX];

    if (head->set_count == 1) {
        return tdm__update_session_request(&head->session, requests, deadline_ms, replies_out);
    }
    for (uint32_t i = 0; i < head->set_count; i++) {
        items[i] = (struct tdm__version_set_item){head->set[i]->session.record, requests[i]};
    }
    return tdm__version_service_call_set(head->session.runtime, items, head->set_count,
                                         tdm__deadline_remaining_ms(deadline_ms), replies_out);
}

/* Reads the version record of a model and prepares the request that begins an update there.
 * `number` is the version that a relay sends on, or 0; the new version is at least that number. */
static tdm_status prepare_begin(const tdm_weights_sender *sender, uint64_t number,
                                int64_t deadline_ms, struct tdm__version_request *request_out,
                                uint64_t *epoch_out)
{
    const struct tdm__version_request read = {.kind = TDM__VERSION_READ};
    const struct tdm__membership *membership = &sender->membership;
    struct tdm__version_reply reply;

    TDM_TRY(tdm__update_session_request(&sender->session, &read, deadline_ms, &reply));
    *request_out = (struct tdm__version_request){
        .kind = TDM__VERSION_BEGIN,
        .update = tdm__update_session_update_id(&sender->session, reply.epoch + 1),
        .base = reply.version,
        .version_floor = number == 0 ? 0 : number - 1,
        .source = {.actor = membership->members[0].actor, .incarnation = 1},
        .members = membership->members,
        .members_count = membership->members_count,
        .dead = membership->dead,
        .dead_count = membership->dead_count};
    *epoch_out = reply.epoch + 1;
    return TDM_OK;
}

/* Begins the updates of all models in their version records. They count as begun before the request
 * is sent, because the reply may be lost. */
static tdm_status begin_updates(tdm_weights_sender *head, uint64_t number, int64_t deadline_ms)
{
    struct tdm__version_request requests[TDM__VERSION_SET_MAX];
    struct tdm__version_reply replies[TDM__VERSION_SET_MAX];
    uint64_t epochs[TDM__VERSION_SET_MAX];

    for (uint32_t i = 0; i < head->set_count; i++) {
        TDM_TRY(prepare_begin(head->set[i], number, deadline_ms, &requests[i], &epochs[i]));
    }
    for (uint32_t i = 0; i < head->set_count; i++) {
        head->set[i]->epoch = epochs[i];
    }
    head->undecided = true;
    TDM_TRY(request_all(head, requests, deadline_ms, replies));
    for (uint32_t i = 0; i < head->set_count; i++) {
        head->set[i]->version_begun = replies[i].update_version;
        tdm__membership_forget_dead(head->set[i]);
    }
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

/* Proposes an outcome for the updates of all models and learns the one that is stored. */
static tdm_status decide_updates(const tdm_weights_sender *head, enum tdm__update_outcome proposal,
                                 int64_t deadline_ms, bool *committed_out)
{
    struct tdm__version_request requests[TDM__VERSION_SET_MAX];
    struct tdm__version_reply replies[TDM__VERSION_SET_MAX];

    for (uint32_t i = 0; i < head->set_count; i++) {
        const tdm_weights_sender *sender = head->set[i];

        requests[i] = (struct tdm__version_request){
            .kind = TDM__VERSION_DECIDE,
            .update = tdm__update_session_update_id(&sender->session, sender->epoch),
            .proposal = proposal,
            .dead = sender->membership.dead,
            .dead_count = sender->membership.dead_count};
    }
    TDM_TRY(request_all(head, requests, deadline_ms, replies));
    *committed_out = replies[0].outcome == TDM__UPDATE_COMMITTED;
    return TDM_OK;
}

/* Stores the outcome of the updates. The deadline of the send may be over, so this has its own
 * timeout. */
static tdm_status decide_outcome(tdm_weights_sender *head, tdm_status staged, bool *committed)
{
    TDM_TRY(decide_updates(head, staged == TDM_OK ? TDM__UPDATE_COMMITTED : TDM__UPDATE_ABORTED,
                           tdm__deadline_after(DECIDE_MS), committed));
    head->undecided = false;
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

/* Cleans up after aborted updates and returns `status` with the text `detail`. */
static tdm_status abort_updates(const tdm_weights_sender *head, tdm_status status,
                                const char *detail)
{
    for (uint32_t i = 0; i < head->set_count; i++) {
        tdm_weights_sender *sender = head->set[i];

        /* The group may have failed; leaving it ends the calls that wait in it. */
        tdm_collective_leave(sender->group);
        sender->group = NULL;
        remove_offer(sender, detail);
    }
    return tdm__fail(status, "%s", detail);
}

/* Publishes the commit of one model in its mailbox. */
static tdm_status publish_commit(const tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__scheme_outcome_message message = {.committed = true};
    char key[TDM__UPDATE_KEY_BYTES];

    return tdm__mailbox_put_and_wait(sender->mailbox,
                                     tdm__update_message_key(sender->epoch, "outcome", key),
                                     tdm__scheme_outcome_table(), &message, deadline_ms);
}

/* Publishes the commit of all models and waits for the flips. */
static tdm_status finish_updates(const tdm_weights_sender *head, int64_t deadline_ms)
{
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < head->set_count; i++) {
        tdm_status published = publish_commit(head->set[i], deadline_ms);

        status = status == TDM_OK ? published : status;
        tdm__failpoint_hit("weights.outcome_published");
    }
    for (uint32_t i = 0; i < head->set_count && status == TDM_OK; i++) {
        status = await_flips(head->set[i], deadline_ms);
    }
    for (uint32_t i = 0; i < head->set_count; i++) {
        remove_offer(head->set[i], "the update is over");
    }
    return status;
}

/* Ends updates whose outcome this sender could not store or did not learn. */
static tdm_status settle_undecided(tdm_weights_sender *head, int64_t deadline_ms)
{
    bool committed = false;
    tdm_status status;

    if (!head->undecided) {
        return TDM_OK;
    }
    status = decide_updates(head, TDM__UPDATE_ABORTED, deadline_ms, &committed);
    head->undecided = status != TDM_OK && status != TDM_E_NOT_FOUND;
    if (status == TDM_E_NOT_FOUND) {
        return TDM_OK; /* They never began, so nothing was offered and their epochs are free. */
    }
    TDM_TRY(status);
    if (committed) {
        return finish_updates(head, deadline_ms);
    }
    for (uint32_t i = 0; i < head->set_count; i++) {
        remove_offer(head->set[i], "the update is over");
    }
    return TDM_OK;
}

/* Copies the failure's text to `detail` and returns its status. If a member has died, that is the
 * cause and replaces both, because a group or a receiver reports only that it was aborted. */
static tdm_status append_failure_cause(const tdm_weights_sender *head, tdm_status failed,
                                       char detail[TDM__SENDER_DETAIL_BYTES])
{
    (void)snprintf(detail, TDM__SENDER_DETAIL_BYTES, "%s", tdm_error_detail());
    if (failed == TDM_E_CHECKSUM || failed == TDM_E_ACTOR_DIED) {
        return failed;
    }
    for (uint32_t i = 0; i < head->set_count; i++) {
        if (tdm__membership_find_dead(head->set[i]) != TDM_OK) {
            failed = TDM_E_ACTOR_DIED;
            (void)snprintf(detail, TDM__SENDER_DETAIL_BYTES, "%s", tdm_error_detail());
        }
    }
    return failed;
}

/* Offers a version of all models, sends their buckets and waits for the votes. All offers come
 * first, because a receiver of several models begins when it has those of all. */
static tdm_status stage_updates(tdm_weights_sender *head, uint64_t version, int64_t deadline_ms)
{
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < head->set_count && status == TDM_OK; i++) {
        status = publish_offer(head->set[i], version, deadline_ms);
    }
    for (uint32_t i = 0; i < head->set_count && status == TDM_OK; i++) {
        tdm__start_module_receives(head->set[i]);
        status = send_buckets(head->set[i], deadline_ms);
    }
    end_relay_read(head);
    for (uint32_t i = 0; i < head->set_count && status == TDM_OK; i++) {
        status = tdm__membership_await(head->set[i], "vote/", "voted in", deadline_ms);
    }
    return status;
}

/* Runs updates after their BEGIN: offers, buckets, votes, decision, flips. */
static tdm_status send_updates(tdm_weights_sender *head, uint64_t version, int64_t deadline_ms)
{
    char detail[TDM__SENDER_DETAIL_BYTES] = "a receiver gave up before the decision";
    tdm_status staged = stage_updates(head, version, deadline_ms);
    bool committed = false;

    if (staged != TDM_OK) {
        staged = append_failure_cause(head, staged, detail);
    }
    tdm__failpoint_hit("weights.decide");
    TDM_TRY(decide_outcome(head, staged, &committed));
    tdm__failpoint_hit("weights.decided");
    if (committed) {
        return finish_updates(head, deadline_ms);
    }
    return abort_updates(head, staged != TDM_OK ? staged : TDM_E_ABORTED, detail);
}

tdm_status tdm__send_version(tdm_weights_sender *sender, uint64_t *version_out)
{
    int64_t deadline_ms = tdm__deadline_after(sender->timeout_ms);
    uint64_t version;
    tdm_status status;

    for (uint32_t i = 0; i < sender->set_count; i++) {
        if (sender->set[i]->mailbox == NULL) {
            return tdm__fail(TDM_E_STATE, "a sender of %s is to be connected first",
                             sender->set[i]->session.model);
        }
    }
    TDM_TRY(settle_undecided(sender, deadline_ms));
    for (uint32_t i = 0; i < sender->set_count; i++) {
        TDM_TRY(tdm__membership_collect(sender->set[i], deadline_ms));
    }
    TDM_TRY(begin_relay_read(sender, &version));
    status = begin_updates(sender, version, deadline_ms);
    if (status == TDM_OK) {
        version = sender->relay_of == NULL ? sender->version_begun : version;
        status = send_updates(sender, version, deadline_ms);
    }
    end_relay_read(sender);
    TDM_TRY(status);
    *version_out = version;
    return TDM_OK;
}
