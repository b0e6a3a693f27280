/* send_version.c - one version on its way out of a sender. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/send_version.h"

#include "colocate/scheme/mailbox.h"
#include "colocate/scheme/membership.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/log.h"

#include <stdio.h>
#include <string.h>

enum { DECIDE_MS = 10000, WORD_BYTES = 8 };

/* ---- what is relayed -------------------------------------------------------------------- */

/* The version that a relay has, and where it lies: it does not change until close_relay(). */
static tdm_status open_relay(tdm_weights_sender *sender, uint64_t *version_out)
{
    if (sender->relay_of == NULL) {
        *version_out = 0;
        return TDM_OK;
    }
    TDM_TRY(tdm_weights_read_begin(sender->relay_of, version_out));
    sender->relay_open = true;
    for (uint32_t i = 0; i < sender->model_buckets.manifest->tensors_count; i++) {
        sender->addresses[i] = tdm_weights_data(sender->relay_of, i);
    }
    return TDM_OK;
}

/* As soon as all is staged: who is slow below must not hold up what comes from above. */
static void close_relay(tdm_weights_sender *sender)
{
    if (sender->relay_open) {
        sender->relay_open = false;
        tdm_weights_read_end(sender->relay_of);
    }
}

/* ---- the steps -------------------------------------------------------------------------- */

/* A version_floor keeps a relay's numbers at least at those of what it relays.  The update
 * counts as begun from before it is asked for: the answer may be lost. */
static tdm_status begin_update(tdm_weights_sender *sender, uint64_t number, int64_t deadline_ms)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_READ};
    const struct tdm__membership *membership = &sender->membership;
    struct tdm__version_reply answer;

    TDM_TRY(tdm__update_session_request(&sender->session, &request, deadline_ms, &answer));
    request = (struct tdm__version_request){
        .kind = TDM__VERSION_BEGIN,
        .update = tdm__update_session_update_id(&sender->session, answer.epoch + 1),
        .base = answer.version,
        .version_floor = number == 0 ? 0 : number - 1,
        .source = {.actor = membership->members[0].actor, .incarnation = 1},
        .members = membership->members,
        .members_count = membership->members_count,
        .dead = membership->dead,
        .dead_count = membership->dead_count};
    sender->epoch = answer.epoch + 1;
    sender->undecided = true;
    TDM_TRY(tdm__update_session_request(&sender->session, &request, deadline_ms, &answer));
    sender->version_begun = answer.update_version;
    tdm__membership_forget_dead(sender);
    return TDM_OK;
}

static bool group_is_current(const tdm_weights_sender *sender)
{
    const struct tdm__membership *membership = &sender->membership;

    return sender->group != NULL && sender->group_members_count == membership->members_count &&
           memcmp(sender->group_members, membership->members,
                  membership->members_count * sizeof(membership->members[0])) == 0;
}

/* An offer is (epoch u, version u, epoch of the group u, milliseconds i, [(id b, incarnation
 * u) …]): the place in the list is the rank in the group, from 1. */
static tdm_status publish_offer(tdm_weights_sender *sender, uint64_t version, int64_t deadline_ms)
{
    const struct tdm__membership *membership = &sender->membership;
    char key[TDM__UPDATE_KEY_BYTES];
    tdm_writer *writer;
    tdm_status status;
    tdm_ref *done = NULL;

    if (sender->transport->uses_group && !group_is_current(sender)) {
        tdm_collective_leave(sender->group);
        sender->group = NULL;
        sender->group_epoch = sender->epoch;
    }
    (void)snprintf(key, sizeof(key), "offer/%020llu", (unsigned long long)sender->epoch);
    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 2);
    tdm_write_string(writer, key);
    tdm_write_array(writer, 5);
    tdm_write_uint(writer, sender->epoch);
    tdm_write_uint(writer, version);
    tdm_write_uint(writer, sender->group_epoch);
    tdm_write_int(writer, tdm__deadline_remaining_ms(deadline_ms));
    tdm_write_array(writer, membership->members_count);
    for (uint32_t i = 0; i < membership->members_count; i++) {
        tdm_write_array(writer, 2);
        tdm_write_bytes(writer, membership->members[i].actor.bytes, sizeof(struct tdm__id));
        tdm_write_uint(writer, membership->members[i].incarnation);
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_actor_call_packed(sender->mailbox, "put", tdm_writer_bytes(writer), &done);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    return tdm__mailbox_await_put(done, deadline_ms);
}

static tdm_status form_group(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__membership *membership = &sender->membership;
    char name[TDM__MODEL_NAME_BYTES_MAX + TDM__UPDATE_KEY_BYTES];
    struct tdm_collective_options options = {.name = name,
                                             .rank = 0,
                                             .ranks_count = membership->members_count + 1,
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

static tdm_status send_buckets(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__model_buckets *model_buckets = &sender->model_buckets;
    struct tdm__transport_context context = {.runtime = sender->session.runtime,
                                             .mailbox = sender->mailbox,
                                             .epoch = sender->epoch,
                                             .deadline_ms = deadline_ms};

    if (sender->transport->send_bucket == NULL) {
        return TDM_OK;
    }
    TDM_TRY(form_group(sender, deadline_ms));
    context.group = sender->group;
    for (uint32_t i = 0; i < model_buckets->plan->buckets_count; i++) {
        const struct tdm__bucket *bucket = &model_buckets->plan->buckets[i];
        uint64_t *sums = sender->sums + bucket->tensors_first;
        struct tdm__outgoing_bucket outgoing_bucket = {
            .bucket = i,
            .image = sender->image,
            .size_bytes = (bucket->size_bytes + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES,
            .sums = sums,
            .sums_count = bucket->tensors_count};

        tdm__model_buckets_pack(model_buckets, i, sender->addresses, sender->image, sums);
        TDM_TRY(sender->transport->send_bucket(&context, &outgoing_bucket));
        tdm__failpoint_hit("weights.bucket_sent");
    }
    return TDM_OK;
}

/* Has the modules' actors receive, those that do not yet. */
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
            (void)tdm_actor_call(sender->modules[i], TDM_WEIGHTS_METHOD, &sender->modules_refs[i],
                                 "si", sender->session.model, sender->timeout_ms);
        }
    }
}

/* ---- the outcome ------------------------------------------------------------------------ */

/* The deadline may be over, and yet somebody has to decide. */
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

/* Those who died after the commit take nothing with them: it stands, and the others go on. */
static tdm_status await_flips(tdm_weights_sender *sender, int64_t deadline_ms)
{
    struct tdm__version_request request = {
        .kind = TDM__VERSION_DEAD,
        .update = tdm__update_session_update_id(&sender->session, sender->epoch)};
    struct tdm__version_reply answer;
    tdm_status status = tdm__membership_await(sender, "flip/", "gone live with", deadline_ms);

    while (status == TDM_E_ACTOR_DIED) {
        tdm__log(TDM__WARN, "weights", "version %llu of %s is committed: %s",
                 (unsigned long long)sender->version_begun, sender->session.model,
                 tdm_error_detail());
        tdm__membership_drop_dead(sender);
        request.dead = sender->membership.dead;
        request.dead_count = sender->membership.dead_count;
        status = tdm__update_session_request(&sender->session, &request, deadline_ms, &answer);
        if (status == TDM_OK) {
            status = tdm__membership_await(sender, "flip/", "gone live with", deadline_ms);
        }
    }
    return status == TDM_OK
               ? TDM_OK
               : tdm__wrap(status, "version %llu of %s is committed",
                           (unsigned long long)sender->version_begun, sender->session.model);
}

static void remove_offer(tdm_weights_sender *sender, const char *why)
{
    char key[TDM__UPDATE_KEY_BYTES];

    (void)tdm__mailbox_close(sender->mailbox, "offer/", TDM_OK, "");
    (void)tdm__mailbox_close(sender->mailbox, tdm__update_message_key(sender->epoch, "", key),
                             TDM_E_ABORTED, why);
}

static tdm_status abort_with(tdm_weights_sender *sender, tdm_status status, const char *detail)
{
    tdm_collective_leave(sender->group); /* it may have failed, and ends what waits in it */
    sender->group = NULL;
    remove_offer(sender, detail);
    return tdm__fail(status, "%s", detail);
}

static tdm_status finish_update(tdm_weights_sender *sender, int64_t deadline_ms)
{
    char key[TDM__UPDATE_KEY_BYTES];
    tdm_ref *done;
    tdm_status status;

    (void)tdm__update_message_key(sender->epoch, "outcome", key);
    status = tdm_actor_call(sender->mailbox, "put", &done, "s(?)", key, 1);
    if (status == TDM_OK) {
        status = tdm__mailbox_await_put(done, deadline_ms);
    }
    if (status == TDM_OK) {
        status = await_flips(sender, deadline_ms);
    }
    remove_offer(sender, "the update is over");
    return status;
}

/* An update whose outcome this sender could not store, or learn, comes to its end first. */
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
        return TDM_OK; /* never begun, so nothing was offered, and its epoch is free */
    }
    TDM_TRY(status);
    if (committed) {
        return finish_update(sender, deadline_ms);
    }
    remove_offer(sender, "the update is over");
    return TDM_OK;
}

/* A group says that it was aborted, and a receiver that others gave up; the runtime knows who
 * died. */
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

static tdm_status run_update(tdm_weights_sender *sender, uint64_t version, int64_t deadline_ms)
{
    char detail[TDM__SENDER_DETAIL_BYTES] = "a receiver gave up before the decision";
    tdm_status staged = publish_offer(sender, version, deadline_ms);
    bool committed = false;

    if (staged == TDM_OK) {
        tdm__start_module_receives(sender);
        staged = send_buckets(sender, deadline_ms);
    }
    close_relay(sender);
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
    return abort_with(sender, staged != TDM_OK ? staged : TDM_E_ABORTED, detail);
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
    TDM_TRY(open_relay(sender, &version));
    status = begin_update(sender, version, deadline_ms);
    if (status == TDM_OK) {
        version = sender->relay_of == NULL ? sender->version_begun : version;
        status = run_update(sender, version, deadline_ms);
    }
    close_relay(sender);
    TDM_TRY(status);
    *version_out = version;
    return TDM_OK;
}
