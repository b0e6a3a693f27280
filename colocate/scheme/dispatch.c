/* dispatch.c - one version on its way out of a sender. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/dispatch.h"

#include "colocate/scheme/board.h"
#include "colocate/scheme/party.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/step.h"

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
    for (uint32_t i = 0; i < sender->contents.manifest->tensors_count; i++) {
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
static tdm_status begin(tdm_weights_sender *sender, uint64_t number, int64_t deadline_ms)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_READ};
    const struct tdm__party *party = &sender->party;
    struct tdm__version_answer answer;

    TDM_TRY(tdm__round_ask(&sender->round, &request, deadline_ms, &answer));
    request = (struct tdm__version_request){
        .kind = TDM__VERSION_BEGIN,
        .update = tdm__round_update(&sender->round, answer.epoch + 1),
        .base = answer.version,
        .version_floor = number == 0 ? 0 : number - 1,
        .source = {.actor = party->members[0].actor, .incarnation = 1},
        .members = party->members,
        .members_count = party->members_count,
        .dead = party->dead,
        .dead_count = party->dead_count};
    sender->epoch = answer.epoch + 1;
    sender->undecided = true;
    TDM_TRY(tdm__round_ask(&sender->round, &request, deadline_ms, &answer));
    sender->version_begun = answer.update_version;
    tdm__party_forget_dead(sender);
    return TDM_OK;
}

static bool group_is_current(const tdm_weights_sender *sender)
{
    const struct tdm__party *party = &sender->party;

    return sender->group != NULL && sender->group_members_count == party->members_count &&
           memcmp(sender->group_members, party->members,
                  party->members_count * sizeof(party->members[0])) == 0;
}

/* An offer is (epoch u, version u, epoch of the group u, milliseconds i, [(id b, incarnation
 * u) …]): the place in the list is the rank in the group, from 1. */
static tdm_status offer(tdm_weights_sender *sender, uint64_t version, int64_t deadline_ms)
{
    const struct tdm__party *party = &sender->party;
    char key[TDM__ROUND_KEY_BYTES];
    tdm_writer *writer;
    tdm_status status;
    tdm_ref *done = NULL;

    if (sender->carrier->meets && !group_is_current(sender)) {
        tdm_group_leave(sender->group);
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
    tdm_write_int(writer, tdm__deadline_left(deadline_ms));
    tdm_write_array(writer, party->members_count);
    for (uint32_t i = 0; i < party->members_count; i++) {
        tdm_write_array(writer, 2);
        tdm_write_bytes(writer, party->members[i].actor.bytes, sizeof(struct tdm__id));
        tdm_write_uint(writer, party->members[i].incarnation);
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_actor_call_packed(sender->board, "put", tdm_writer_bytes(writer), &done);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    return tdm__board_done(done, deadline_ms);
}

static tdm_status meet(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__party *party = &sender->party;
    char name[TDM__MODEL_NAME_BYTES_MAX + TDM__ROUND_KEY_BYTES];
    struct tdm_group_options options = {.name = name,
                                        .rank = 0,
                                        .ranks_count = party->members_count + 1,
                                        .timeout_ms = tdm__deadline_left(deadline_ms)};

    if (!sender->carrier->meets || sender->group != NULL) {
        return TDM_OK;
    }
    (void)snprintf(name, sizeof(name), "%s/%llu", sender->round.record,
                   (unsigned long long)sender->group_epoch);
    TDM_TRY(tdm_group_join(sender->round.runtime, &options, &sender->group));
    memcpy(sender->group_members, party->members,
           party->members_count * sizeof(party->members[0]));
    sender->group_members_count = party->members_count;
    return TDM_OK;
}

static tdm_status stage(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__contents *contents = &sender->contents;
    struct tdm__way way = {.runtime = sender->round.runtime,
                           .board = sender->board,
                           .epoch = sender->epoch,
                           .deadline_ms = deadline_ms};

    if (sender->carrier->give == NULL) {
        return TDM_OK;
    }
    TDM_TRY(meet(sender, deadline_ms));
    way.group = sender->group;
    for (uint32_t i = 0; i < contents->plan->buckets_count; i++) {
        const struct tdm__bucket *bucket = &contents->plan->buckets[i];
        uint64_t *sums = sender->sums + bucket->tensors_first;
        struct tdm__parcel parcel = {.bucket = i,
                                     .image = sender->image,
                                     .size_bytes = (bucket->size_bytes + WORD_BYTES - 1) /
                                                   WORD_BYTES * WORD_BYTES,
                                     .sums = sums,
                                     .sums_count = bucket->tensors_count};

        tdm__contents_pack(contents, i, sender->addresses, sender->image, sums);
        TDM_TRY(sender->carrier->give(&way, &parcel));
        tdm__step("weights.bucket_given");
    }
    return TDM_OK;
}

/* Has the modules' actors receive, those that do not yet. */
void tdm__send_to_modules(tdm_weights_sender *sender)
{
    for (uint32_t i = 0; i < sender->modules_count; i++) {
        uint8_t done = 1;

        if (sender->modules_refs[i] != NULL) {
            (void)tdm_wait(&sender->modules_refs[i], 1, 1, 0, &done);
        }
        if (done) {
            tdm_ref_release(sender->modules_refs[i]);
            sender->modules_refs[i] = NULL;
            (void)tdm_actor_call(sender->modules[i], TDM_WEIGHTS_METHOD,
                                 &sender->modules_refs[i], "si", sender->round.model,
                                 sender->timeout_ms);
        }
    }
}

/* ---- the outcome ------------------------------------------------------------------------ */

/* The deadline may be over, and yet somebody has to decide. */
static tdm_status decide(tdm_weights_sender *sender, tdm_status staged, bool *committed)
{
    const struct tdm__version_request proposal = {
        .proposal = staged == TDM_OK ? TDM__UPDATE_COMMITTED : TDM__UPDATE_ABORTED,
        .dead = sender->party.dead,
        .dead_count = sender->party.dead_count};

    TDM_TRY(tdm__round_decide(&sender->round, sender->epoch, &proposal,
                              tdm__deadline_in(DECIDE_MS), committed));
    sender->undecided = false;
    return TDM_OK;
}

/* Those who died after the commit take nothing with them: it stands, and the others go on. */
static tdm_status await_flips(tdm_weights_sender *sender, int64_t deadline_ms)
{
    struct tdm__version_request request = {
        .kind = TDM__VERSION_DEAD, .update = tdm__round_update(&sender->round, sender->epoch)};
    struct tdm__version_answer answer;
    tdm_status status = tdm__party_await(sender, "flip/", "gone live with", deadline_ms);

    while (status == TDM_E_ACTOR_DIED) {
        tdm__log(TDM__WARN, "weights", "version %llu of %s is committed: %s",
                 (unsigned long long)sender->version_begun, sender->round.model,
                 tdm_error_detail());
        tdm__party_drop_dead(sender);
        request.dead = sender->party.dead;
        request.dead_count = sender->party.dead_count;
        status = tdm__round_ask(&sender->round, &request, deadline_ms, &answer);
        if (status == TDM_OK) {
            status = tdm__party_await(sender, "flip/", "gone live with", deadline_ms);
        }
    }
    return status == TDM_OK
               ? TDM_OK
               : tdm__wrap(status, "version %llu of %s is committed",
                           (unsigned long long)sender->version_begun, sender->round.model);
}

static void forget_offer(tdm_weights_sender *sender, const char *why)
{
    char key[TDM__ROUND_KEY_BYTES];

    (void)tdm__board_close(sender->board, "offer/", TDM_OK, "");
    (void)tdm__board_close(sender->board, tdm__round_key(sender->epoch, "", key), TDM_E_ABORTED,
                           why);
}

static tdm_status abort_with(tdm_weights_sender *sender, tdm_status status, const char *detail)
{
    tdm_group_leave(sender->group); /* it may have failed, and ends what waits in it */
    sender->group = NULL;
    forget_offer(sender, detail);
    return tdm__fail(status, "%s", detail);
}

static tdm_status finish(tdm_weights_sender *sender, int64_t deadline_ms)
{
    char key[TDM__ROUND_KEY_BYTES];
    tdm_ref *done;
    tdm_status status;

    (void)tdm__round_key(sender->epoch, "outcome", key);
    status = tdm_actor_call(sender->board, "put", &done, "s(?)", key, 1);
    if (status == TDM_OK) {
        status = tdm__board_done(done, deadline_ms);
    }
    if (status == TDM_OK) {
        status = await_flips(sender, deadline_ms);
    }
    forget_offer(sender, "the update is over");
    return status;
}

/* An update whose outcome this sender could not store, or learn, comes to its end first. */
static tdm_status settle(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__version_request proposal = {.proposal = TDM__UPDATE_ABORTED};
    bool committed = false;
    tdm_status status;

    if (!sender->undecided) {
        return TDM_OK;
    }
    status =
        tdm__round_decide(&sender->round, sender->epoch, &proposal, deadline_ms, &committed);
    sender->undecided = status != TDM_OK && status != TDM_E_NOT_FOUND;
    if (status == TDM_E_NOT_FOUND) {
        return TDM_OK; /* never begun, so nothing was offered, and its epoch is free */
    }
    TDM_TRY(status);
    if (committed) {
        return finish(sender, deadline_ms);
    }
    forget_offer(sender, "the update is over");
    return TDM_OK;
}

/* A group says that it was aborted, and a receiver that others gave up; the runtime knows who
 * died. */
static tdm_status name_cause(tdm_weights_sender *sender, tdm_status failed,
                             char detail[TDM__SENDER_DETAIL_BYTES])
{
    (void)snprintf(detail, TDM__SENDER_DETAIL_BYTES, "%s", tdm_error_detail());
    if (failed == TDM_E_CHECKSUM || failed == TDM_E_ACTOR_DIED ||
        tdm__party_find_dead(sender) == TDM_OK) {
        return failed;
    }
    (void)snprintf(detail, TDM__SENDER_DETAIL_BYTES, "%s", tdm_error_detail());
    return TDM_E_ACTOR_DIED;
}

static tdm_status run_update(tdm_weights_sender *sender, uint64_t version, int64_t deadline_ms)
{
    char detail[TDM__SENDER_DETAIL_BYTES] = "a receiver gave up before the decision";
    tdm_status staged = offer(sender, version, deadline_ms);
    bool committed = false;

    if (staged == TDM_OK) {
        tdm__send_to_modules(sender);
        staged = stage(sender, deadline_ms);
    }
    close_relay(sender);
    if (staged == TDM_OK) {
        staged = tdm__party_await(sender, "vote/", "voted in", deadline_ms);
    }
    if (staged != TDM_OK) {
        staged = name_cause(sender, staged, detail);
    }
    tdm__step("weights.decide");
    TDM_TRY(decide(sender, staged, &committed));
    tdm__step("weights.decided");
    if (committed) {
        return finish(sender, deadline_ms);
    }
    return abort_with(sender, staged != TDM_OK ? staged : TDM_E_ABORTED, detail);
}

tdm_status tdm__send_version(tdm_weights_sender *sender, uint64_t *version_out)
{
    int64_t deadline_ms = tdm__deadline_in(sender->timeout_ms);
    uint64_t version;
    tdm_status status;

    if (sender->board == NULL) {
        return tdm__fail(TDM_E_STATE, "a sender of %s is to be connected first",
                         sender->round.model);
    }
    TDM_TRY(settle(sender, deadline_ms));
    TDM_TRY(tdm__party_gather(sender, deadline_ms));
    TDM_TRY(open_relay(sender, &version));
    status = begin(sender, version, deadline_ms);
    if (status == TDM_OK) {
        version = sender->relay_of == NULL ? sender->version_begun : version;
        status = run_update(sender, version, deadline_ms);
    }
    close_relay(sender);
    TDM_TRY(status);
    *version_out = version;
    return TDM_OK;
}
