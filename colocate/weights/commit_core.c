/* commit_core.c - the record of a model's weight versions, and the requests that change it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* With commit_join.c this is the whole state machine of the commit protocol, which
 * docs/protocols/commit.md specifies. A record has at most one undecided update. BEGIN appends an
 * update; each member votes with PREPARED; DECIDE stores the outcome, and the first outcome stays.
 * After COMMITTED each member flips and says so with FLIPPED, or is named dead.
 *
 * Invariants: epochs and version numbers only grow, except by FORGET. A member that voted for a
 * committed update may serve it later. So the next BEGIN is refused until each such member has
 * flipped, is dead, or has a higher incarnation. All functions are pure.
 * commit.c runs them inside store transactions; tests explore them exhaustively. */

#include "colocate/weights/commit_core.h"

#include "colocate/weights/commit_join.h"
#include "colocate/weights/remedies.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *tdm__member_text(const struct tdm__member *member, char text[TDM__MEMBER_TEXT_BYTES])
{
    char id[TDM__ID_TEXT_BYTES];

    (void)snprintf(text, TDM__MEMBER_TEXT_BYTES, "actor %s incarnation %" PRIu64,
                   tdm__id_text(&member->actor, id), member->incarnation);
    return text;
}

/* Returns true if both members are the same incarnation of the same actor. */
static bool member_equal(const struct tdm__member *a, const struct tdm__member *b)
{
    return a->incarnation == b->incarnation && tdm__id_equal(&a->actor, &b->actor);
}

const char *tdm__update_outcome_name(enum tdm__update_outcome outcome)
{
    switch (outcome) {
    case TDM__UPDATE_UNDECIDED:
        return "undecided";
    case TDM__UPDATE_COMMITTED:
        return "committed";
    case TDM__UPDATE_ABORTED:
        return "aborted";
    }
    return "unknown";
}

uint32_t tdm__version_member_index(const struct tdm__update *update,
                                   const struct tdm__member *member)
{
    uint32_t index = 0;

    while (index < update->members_count && !member_equal(&update->members[index].member, member)) {
        index++;
    }
    return index;
}

/* Returns the earlier update with this ID that the record remembers, or NULL. */
static const struct tdm__past_update *find_past_update(const struct tdm__version_record *record,
                                                       const struct tdm__id *update)
{
    for (uint32_t i = record->past_updates_count; i-- > 0;) {
        if (tdm__id_equal(&record->past_updates[i].id, update)) {
            return &record->past_updates[i];
        }
    }
    return NULL;
}

/* Returns the error for an update that the record does not remember. */
static tdm_status unknown_update_error(const struct tdm__version_record *record,
                                       const struct tdm__id *update)
{
    char text[TDM__ID_TEXT_BYTES];

    return tdm__fail(
        TDM_E_NOT_FOUND,
        "finding the outcome of a weight update failed: update %s is neither the latest (epoch "
        "%" PRIu64 ") nor one of the %" PRIu32
        " remembered before it. It ended long ago or the store has lost it: begin a new update",
        tdm__id_text(update, text), record->epoch, record->past_updates_count);
}

tdm_status tdm__version_outcome(const struct tdm__version_record *record,
                                const struct tdm__id *update, enum tdm__update_outcome *outcome_out)
{
    const struct tdm__past_update *past;

    if (!tdm__id_is_none(update) && tdm__id_equal(&record->update.id, update)) {
        *outcome_out = record->update.outcome;
        return TDM_OK;
    }
    past = find_past_update(record, update);
    if (past == NULL) {
        return unknown_update_error(record, update);
    }
    *outcome_out = past->outcome;
    return TDM_OK;
}

/* Returns true if `update` is the ID of the record's latest update. */
static bool is_latest_update(const struct tdm__version_record *record, const struct tdm__id *update)
{
    return !tdm__id_is_none(update) && tdm__id_equal(&record->update.id, update);
}

/* Marks those members of the latest update as dead that the request names as dead. Sets `changed`
 * to true if it marked any. */
static void mark_member_dead(struct tdm__update *update, const struct tdm__version_request *request,
                             bool *changed)
{
    for (uint32_t i = 0; i < request->dead_count; i++) {
        uint32_t index = tdm__version_member_index(update, &request->dead[i]);

        if (index < update->members_count && update->members[index].phase != TDM__MEMBER_DEAD) {
            update->members[index].phase = TDM__MEMBER_DEAD;
            *changed = true;
        }
    }
}

/* ---- begin --------------------------------------------------------------------------- */

/* Checks the list of members of a BEGIN or RESTORE request: its length, valid IDs, and each actor
 * only once. */
static tdm_status check_members(const struct tdm__version_request *request)
{
    const char *action = request->kind == TDM__VERSION_RESTORE ? "restoring the version record"
                                                               : "beginning a weight update";
    char text[TDM__MEMBER_TEXT_BYTES];

    if (request->members_count == 0 || request->members_count > TDM__UPDATE_MEMBERS_MAX) {
        return tdm__fail(TDM_E_INVAL,
                         "%s failed: %" PRIu32 " members are listed, expected 1 to %d. Start at "
                         "least one receiver of the model and at most %d",
                         action, request->members_count, TDM__UPDATE_MEMBERS_MAX,
                         TDM__UPDATE_MEMBERS_MAX);
    }
    for (uint32_t i = 0; i < request->members_count; i++) {
        const struct tdm__member *member = &request->members[i];

        if (tdm__id_is_none(&member->actor) || member->incarnation == 0) {
            return tdm__fail(TDM_E_INVAL,
                             "%s failed: member %" PRIu32
                             " (%s) has no actor or no incarnation. " TDM__REMEDY_DEFECT,
                             action, i, tdm__member_text(member, text));
        }
        for (uint32_t k = 0; k < i; k++) {
            if (tdm__id_equal(&member->actor, &request->members[k].actor)) {
                return tdm__fail(TDM_E_INVAL,
                                 "%s failed: members %" PRIu32 " and %" PRIu32
                                 " are both %s. List each actor once",
                                 action, k, i, tdm__member_text(member, text));
            }
        }
    }
    return TDM_OK;
}

/* Returns the entry for this actor in the request's list of members, or NULL. */
static const struct tdm__member *find_actor_member(const struct tdm__version_request *request,
                                                   const struct tdm__id *actor)
{
    for (uint32_t i = 0; i < request->members_count; i++) {
        if (tdm__id_equal(&request->members[i].actor, actor)) {
            return &request->members[i];
        }
    }
    return NULL;
}

/* Checks one member of the last update before a new update begins. After a committed update the
 * member must have flipped or died; a higher incarnation of its actor in the new update counts as
 * proof of its death. If the member lives it must be a member of the new update, or it would go on
 * serving the old version beside the new one. The new update must not name an older incarnation of
 * the actor (TDM_E_CONFLICT), nor a member that was named dead (TDM_E_ACTOR_DIED). */
static tdm_status check_successor(const struct tdm__update *last,
                                  const struct tdm__update_member *old,
                                  const struct tdm__version_request *request)
{
    const struct tdm__member *next = find_actor_member(request, &old->member.actor);
    char text[TDM__MEMBER_TEXT_BYTES];

    (void)tdm__member_text(&old->member, text);
    if (next != NULL && next->incarnation < old->member.incarnation) {
        return tdm__fail(TDM_E_CONFLICT,
                         "beginning a weight update failed: it lists incarnation %" PRIu64
                         ", which is older than %s of epoch %" PRIu64
                         ". List the newest incarnation of each actor",
                         next->incarnation, text, last->epoch);
    }
    if (old->phase == TDM__MEMBER_DEAD) {
        if (next != NULL && next->incarnation == old->member.incarnation) {
            return tdm__fail(TDM_E_ACTOR_DIED,
                             "beginning a weight update failed: %s was named dead in epoch %" PRIu64
                             " and is listed again. Leave it out, or restart the actor",
                             text, last->epoch);
        }
        return TDM_OK;
    }
    if (next != NULL && next->incarnation > old->member.incarnation) {
        /* The higher incarnation proves that the old incarnation of this actor is dead. */
        return TDM_OK;
    }
    if (last->outcome == TDM__UPDATE_COMMITTED && old->phase != TDM__MEMBER_FLIPPED) {
        return tdm__fail(
            TDM_E_STATE,
            "beginning a weight update failed: %s has neither flipped to version %" PRIu64
            " nor died. Wait for it, or kill it",
            text, last->version);
    }
    if (next == NULL) {
        return tdm__fail(TDM_E_STATE,
                         "beginning a weight update failed: %s took part in epoch %" PRIu64
                         " and is left out of this update. Kill it, or add it to the update",
                         text, last->epoch);
    }
    return TDM_OK;
}

/* Checks whether a BEGIN request may follow the record's latest update. */
static tdm_status check_begin(const struct tdm__version_record *record,
                              const struct tdm__version_request *request)
{
    const struct tdm__update *last = &record->update;
    const struct tdm__past_update *past = find_past_update(record, &request->update);
    char text[TDM__ID_TEXT_BYTES];

    if (tdm__id_is_none(&request->update)) {
        return tdm__fail(TDM_E_INVAL,
                         "beginning a weight update failed: it has no ID. " TDM__REMEDY_DEFECT);
    }
    if (past != NULL) {
        return tdm__fail(TDM_E_STATE,
                         "beginning a weight update failed: update %s (epoch %" PRIu64
                         ") was %s already. Begin one with a new ID",
                         tdm__id_text(&request->update, text), past->epoch,
                         tdm__update_outcome_name(past->outcome));
    }
    TDM_TRY(check_members(request));
    if (record->epoch < request->epoch) {
        return tdm__fail(TDM_E_CONFLICT,
                         "beginning a weight update failed: its source knows epoch %" PRIu64
                         ", the record is at epoch %" PRIu64
                         ". The store has lost data: restore the record, then begin again",
                         request->epoch, record->epoch);
    }
    if (request->base != record->version) {
        return tdm__fail(TDM_E_CONFLICT,
                         "beginning a weight update failed: it is based on version %" PRIu64
                         ", but version %" PRIu64
                         " is committed. Let only one process update the model, and begin again",
                         request->base, record->version);
    }
    if (record->version_highest == UINT64_MAX || request->version_floor == UINT64_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "beginning a weight update failed: no version is left above %" PRIu64
                         ". Use another name for the model",
                         UINT64_MAX - 1);
    }
    if (last->outcome == TDM__UPDATE_UNDECIDED) {
        return tdm__fail(TDM_E_STATE,
                         "beginning a weight update failed: update %s (epoch %" PRIu64
                         ") is undecided. Decide it first, or wait until its source has",
                         tdm__id_text(&last->id, text), last->epoch);
    }
    for (uint32_t i = 0; i < last->members_count; i++) {
        TDM_TRY(check_successor(last, &last->members[i], request));
    }
    return TDM_OK;
}

/* Adds the record's latest update to its past updates and drops the oldest if there are too
 * many. */
static void remember_update(struct tdm__version_record *record)
{
    const struct tdm__update *update = &record->update;

    if (tdm__id_is_none(&update->id)) {
        return;
    }
    if (record->past_updates_count == TDM__PAST_UPDATES_MAX) {
        record->past_updates_count--;
        memmove(record->past_updates, record->past_updates + 1,
                record->past_updates_count * sizeof(record->past_updates[0]));
    }
    record->past_updates[record->past_updates_count++] =
        (struct tdm__past_update){.id = update->id,
                                  .epoch = update->epoch,
                                  .version = update->version,
                                  .outcome = update->outcome};
}

/* Returns whether the bytes of the committed version are held once an update has begun. The record
 * does not learn when a member receives its first bucket, so an update that overwrites counts from
 * its begin. */
static enum tdm__version_bytes bytes_after_begin(const struct tdm__version_record *record,
                                                 bool overwrites)
{
    return overwrites && record->version != 0 && record->bytes == TDM__BYTES_HELD
               ? TDM__BYTES_OVERWRITTEN
               : record->bytes;
}

/* Applies a BEGIN request: the record gets a new latest update with the next epoch and version
 * number. */
static tdm_status apply_begin(struct tdm__version_record *record,
                              const struct tdm__version_request *request, bool *changed)
{
    struct tdm__update *update = &record->update;

    if (is_latest_update(record, &request->update)) {
        return TDM_OK; /* The request is a repetition. */
    }
    mark_member_dead(update, request, changed);
    TDM_TRY(check_begin(record, request));
    remember_update(record);
    record->epoch++;
    if (record->version_highest < request->version_floor) {
        record->version_highest = request->version_floor;
    }
    record->version_highest++;
    *update = (struct tdm__update){.id = request->update,
                                   .epoch = record->epoch,
                                   .version = record->version_highest,
                                   .base = request->base,
                                   .source = request->source,
                                   .outcome = TDM__UPDATE_UNDECIDED,
                                   .members_count = request->members_count};
    for (uint32_t i = 0; i < request->members_count; i++) {
        update->members[i].member = request->members[i];
        update->members[i].phase = TDM__MEMBER_STAGING;
    }
    record->bytes = bytes_after_begin(record, request->overwrites);
    *changed = true;
    return TDM_OK;
}

/* ---- prepared, decide, flipped ------------------------------------------------------- */

/* Finds the member that makes the request in the latest update. Refuses the request if it is about
 * another update or the member is dead. */
static tdm_status find_requesting_member(struct tdm__version_record *record,
                                         const struct tdm__version_request *request,
                                         struct tdm__update_member **member_out)
{
    const char *action =
        request->kind == TDM__VERSION_FLIPPED ? "reporting a flip" : "voting for a weight update";
    struct tdm__update *update = &record->update;
    uint32_t index;
    char text[TDM__MEMBER_TEXT_BYTES];

    if (!is_latest_update(record, &request->update)) {
        const struct tdm__past_update *past = find_past_update(record, &request->update);

        if (past == NULL) {
            return unknown_update_error(record, &request->update);
        }
        return tdm__fail(TDM_E_ABORTED,
                         "%s failed: epoch %" PRIu64 " of this update was %s, and epoch %" PRIu64
                         " has begun. Drop what was received of it",
                         action, past->epoch, tdm__update_outcome_name(past->outcome),
                         record->epoch);
    }
    index = tdm__version_member_index(update, &request->member);
    if (index == update->members_count) {
        return tdm__fail(
            TDM_E_NOT_FOUND,
            "%s failed: %s is none of the %" PRIu32 " members of the update of epoch %" PRIu64
            ". Wait for an update that lists it",
            action, tdm__member_text(&request->member, text), update->members_count, update->epoch);
    }
    if (update->members[index].phase == TDM__MEMBER_DEAD) {
        return tdm__fail(TDM_E_ACTOR_DIED,
                         "%s failed: %s was named dead in epoch %" PRIu64
                         ". End its process, and restart the actor",
                         action, tdm__member_text(&request->member, text), update->epoch);
    }
    *member_out = &update->members[index];
    return TDM_OK;
}

/* Applies a PREPARED request: stores the vote of a member. */
static tdm_status apply_prepared(struct tdm__version_record *record,
                                 const struct tdm__version_request *request, bool *changed)
{
    struct tdm__update_member *member = NULL;
    char old[TDM__HASH_TEXT_BYTES];
    char new[TDM__HASH_TEXT_BYTES];
    char text[TDM__MEMBER_TEXT_BYTES];

    TDM_TRY(find_requesting_member(record, request, &member));
    TDM_ASSERT(member != NULL);
    if (member->voted) {
        if (!tdm__hash_equal(&member->hash, &request->hash)) {
            return tdm__fail(TDM_E_CONFLICT,
                             "voting for a weight update failed: %s has voted for the hash %s and "
                             "votes for %s now. " TDM__REMEDY_DEFECT,
                             tdm__member_text(&request->member, text),
                             tdm__hash_text(&member->hash, old),
                             tdm__hash_text(&request->hash, new));
        }
        return TDM_OK;
    }
    if (record->update.outcome != TDM__UPDATE_UNDECIDED) {
        return tdm__fail(TDM_E_ABORTED,
                         "voting for a weight update failed: the update of epoch %" PRIu64
                         " was %s already. Drop its weights and wait for the next update",
                         record->update.epoch, tdm__update_outcome_name(record->update.outcome));
    }
    member->phase = TDM__MEMBER_PREPARED;
    member->voted = true;
    member->hash = request->hash;
    *changed = true;
    return TDM_OK;
}

/* Evaluates a proposal to commit: sets `reason_out` to why the update must be aborted, or to
 * TDM__UPDATE_NOT_ABORTED. Returns TDM_E_STATE while a vote is missing. */
static tdm_status evaluate_commit(const struct tdm__update *update,
                                  enum tdm__update_abort_reason *reason_out)
{
    const struct tdm__update_member *missing = NULL;
    enum tdm__update_abort_reason reason = TDM__UPDATE_NOT_ABORTED;
    uint32_t missing_count = 0;
    char text[TDM__MEMBER_TEXT_BYTES];

    for (uint32_t i = 0; i < update->members_count; i++) {
        const struct tdm__update_member *member = &update->members[i];

        if (member->phase == TDM__MEMBER_DEAD) {
            reason = TDM__UPDATE_MEMBER_DIED;
        } else if (!member->voted) {
            missing = member;
            missing_count++;
        } else if (update->members[0].voted && reason == TDM__UPDATE_NOT_ABORTED &&
                   !tdm__hash_equal(&member->hash, &update->members[0].hash)) {
            reason = TDM__UPDATE_HASH_MISMATCH;
        }
    }
    if (reason == TDM__UPDATE_NOT_ABORTED && missing != NULL) {
        return tdm__fail(TDM_E_STATE,
                         "committing a weight update failed: %s has not voted in epoch %" PRIu64
                         "; %" PRIu32 " of %" PRIu32
                         " votes are missing. Wait for them, or abort the update",
                         tdm__member_text(&missing->member, text), update->epoch, missing_count,
                         update->members_count);
    }
    *reason_out = reason;
    return TDM_OK;
}

/* Applies a DECIDE request: stores the outcome of the latest update. An outcome that is already
 * stored stays. */
static tdm_status apply_decide(struct tdm__version_record *record,
                               const struct tdm__version_request *request, bool *changed)
{
    struct tdm__update *update = &record->update;
    enum tdm__update_abort_reason reason = TDM__UPDATE_ABORT_PROPOSED;

    if (request->proposal != TDM__UPDATE_COMMITTED && request->proposal != TDM__UPDATE_ABORTED) {
        return tdm__fail(TDM_E_INVAL,
                         "deciding a weight update failed: the proposal is %d, expected %d "
                         "(commit) or %d (abort). " TDM__REMEDY_DEFECT,
                         (int)request->proposal, (int)TDM__UPDATE_COMMITTED,
                         (int)TDM__UPDATE_ABORTED);
    }
    if (!is_latest_update(record, &request->update)) {
        enum tdm__update_outcome outcome;

        return tdm__version_outcome(record, &request->update, &outcome);
    }
    mark_member_dead(update, request, changed);
    if (update->outcome != TDM__UPDATE_UNDECIDED) {
        return TDM_OK; /* The update already has an outcome, which stays. */
    }
    if (request->proposal == TDM__UPDATE_COMMITTED) {
        TDM_TRY(evaluate_commit(update, &reason));
    }
    update->reason = reason;
    update->outcome =
        reason == TDM__UPDATE_NOT_ABORTED ? TDM__UPDATE_COMMITTED : TDM__UPDATE_ABORTED;
    if (update->outcome == TDM__UPDATE_COMMITTED) {
        TDM_ASSERT(update->version > record->version);
        record->version = update->version;
        record->hash = update->members[0].hash;
        record->bytes = TDM__BYTES_HELD;
    }
    *changed = true;
    return TDM_OK;
}

/* Applies a FLIPPED request: stores that a member serves the committed version. */
static tdm_status apply_flipped(struct tdm__version_record *record,
                                const struct tdm__version_request *request, bool *changed)
{
    const struct tdm__past_update *past = find_past_update(record, &request->update);
    struct tdm__update_member *member = NULL;

    if (past != NULL && past->outcome == TDM__UPDATE_COMMITTED) {
        /* The request is a repetition: no later update began before all members had flipped or
         * died. */
        return TDM_OK;
    }
    TDM_TRY(find_requesting_member(record, request, &member));
    switch (record->update.outcome) {
    case TDM__UPDATE_UNDECIDED:
        return tdm__fail(TDM_E_STATE,
                         "reporting a flip failed: the update of epoch %" PRIu64
                         " is undecided. Flip only after it was committed",
                         record->update.epoch);
    case TDM__UPDATE_ABORTED:
        return tdm__fail(TDM_E_ABORTED,
                         "reporting a flip failed: the update of epoch %" PRIu64
                         " was aborted. Drop its weights and wait for the next update",
                         record->update.epoch);
    case TDM__UPDATE_COMMITTED:
        break;
    }
    TDM_ASSERT(member != NULL && member->voted);
    if (member->phase != TDM__MEMBER_FLIPPED) {
        member->phase = TDM__MEMBER_FLIPPED;
        *changed = true;
    }
    return TDM_OK;
}

/* ---- dead, lost ---------------------------------------------------------------------- */

/* Applies a DEAD request: stores that members of the latest update are dead. */
static tdm_status apply_dead(struct tdm__version_record *record,
                             const struct tdm__version_request *request, bool *changed)
{
    if (!is_latest_update(record, &request->update)) {
        enum tdm__update_outcome outcome;

        return tdm__version_outcome(record, &request->update, &outcome);
    }
    mark_member_dead(&record->update, request, changed);
    return TDM_OK;
}

/* Applies a LOST request: stores that no process holds the committed version. All members must be
 * dead. */
static tdm_status apply_lost(struct tdm__version_record *record,
                             const struct tdm__version_request *request, bool *changed)
{
    struct tdm__update *update = &record->update;
    char text[TDM__MEMBER_TEXT_BYTES];

    if (request->version == 0 || request->version != record->version) {
        return tdm__fail(TDM_E_CONFLICT,
                         "reporting a lost version failed: it names version %" PRIu64
                         ", but version %" PRIu64 " is committed. Read the record again",
                         request->version, record->version);
    }
    if (record->bytes == TDM__BYTES_LOST) {
        return TDM_OK;
    }
    if (update->outcome == TDM__UPDATE_UNDECIDED) {
        return tdm__fail(TDM_E_STATE,
                         "reporting a lost version failed: the update of epoch %" PRIu64
                         " is undecided. Decide it first",
                         update->epoch);
    }
    mark_member_dead(update, request, changed);
    for (uint32_t i = 0; i < update->members_count; i++) {
        if (update->members[i].phase != TDM__MEMBER_DEAD) {
            return tdm__fail(TDM_E_STATE,
                             "reporting a lost version failed: %s may still hold version %" PRIu64
                             ". Kill it and name it dead",
                             tdm__member_text(&update->members[i].member, text), record->version);
        }
    }
    record->bytes = TDM__BYTES_LOST;
    *changed = true;
    return TDM_OK;
}

/* ---- forget -------------------------------------------------------------------------- */

/* Applies a FORGET request: deletes the record's contents. Each member must have flipped, which
 * means that it knows the outcome, or be dead. */
static tdm_status apply_forget(struct tdm__version_record *record,
                               const struct tdm__version_request *request, bool *changed)
{
    const struct tdm__update *update = &record->update;
    char text[TDM__MEMBER_TEXT_BYTES];

    if (tdm__id_is_none(&update->id)) {
        return TDM_OK; /* The request is a repetition, or there was no record. */
    }
    if (!is_latest_update(record, &request->update)) {
        return tdm__fail(TDM_E_CONFLICT,
                         "forgetting the versions failed: the latest update (epoch %" PRIu64
                         ") is not the one that was named. Read the record again",
                         update->epoch);
    }
    if (update->outcome == TDM__UPDATE_UNDECIDED) {
        return tdm__fail(TDM_E_STATE,
                         "forgetting the versions failed: the update of epoch %" PRIu64
                         " is undecided. Decide it first",
                         update->epoch);
    }
    for (uint32_t i = 0; i < update->members_count; i++) {
        const struct tdm__update_member *member = &update->members[i];

        if (member->phase != TDM__MEMBER_FLIPPED && member->phase != TDM__MEMBER_DEAD) {
            return tdm__fail(
                TDM_E_STATE,
                "forgetting the versions failed: %s may still ask for the outcome of epoch %" PRIu64
                ". Wait until it has flipped, or name it dead",
                tdm__member_text(&member->member, text), update->epoch);
        }
    }
    *record = (struct tdm__version_record){.epoch = 0};
    *changed = true;
    return TDM_OK;
}

/* ---- restore ------------------------------------------------------------------------- */

/* Refuses a RESTORE request whose epochs and versions no source of updates can have. */
static tdm_status check_source_state(const struct tdm__version_request *request)
{
    bool committed = request->proposal == TDM__UPDATE_COMMITTED;

    TDM_TRY(check_members(request));
    if (tdm__id_is_none(&request->update) || tdm__id_is_none(&request->source.actor) ||
        request->epoch == 0 || request->update_version < request->version ||
        (!committed && request->proposal != TDM__UPDATE_ABORTED) ||
        committed != (request->update_version == request->version)) {
        return tdm__fail(TDM_E_INVAL,
                         "restoring the version record failed: no source can know epoch %" PRIu64
                         ", version %" PRIu64 " (%s), committed version %" PRIu64
                         ". " TDM__REMEDY_DEFECT,
                         request->epoch, request->update_version,
                         tdm__update_outcome_name(request->proposal), request->version);
    }
    return TDM_OK;
}

/* Allows RESTORE only over an empty record, or over an older record of the same source. */
static tdm_status check_older_record(const struct tdm__version_record *record,
                                     const struct tdm__version_request *request)
{
    const struct tdm__update *update = &record->update;
    char text[TDM__MEMBER_TEXT_BYTES];

    if (tdm__id_is_none(&update->id)) {
        return TDM_OK;
    }
    if (!member_equal(&update->source, &request->source)) {
        return tdm__fail(TDM_E_CONFLICT,
                         "restoring the version record failed: epoch %" PRIu64
                         " was begun by another source, %s. Let only one process update the model",
                         update->epoch, tdm__member_text(&update->source, text));
    }
    if (record->epoch >= request->epoch || record->version > request->version ||
        record->version_highest > request->update_version) {
        return tdm__fail(TDM_E_CONFLICT,
                         "restoring the version record failed: it has epoch %" PRIu64
                         ", version %" PRIu64 " of %" PRIu64 ", not older than epoch %" PRIu64
                         ", version %" PRIu64 " of %" PRIu64 ". It is not lost: read it again",
                         record->epoch, record->version, record->version_highest, request->epoch,
                         request->version, request->update_version);
    }
    return TDM_OK;
}

/* Fills the members of a restored update. Members of a committed update have voted for its hash. */
static void fill_restored_members(struct tdm__update *update,
                                  const struct tdm__version_request *request)
{
    bool committed = request->proposal == TDM__UPDATE_COMMITTED;
    enum tdm__member_phase phase = TDM__MEMBER_STAGING;

    if (committed) {
        phase = request->settled ? TDM__MEMBER_FLIPPED : TDM__MEMBER_PREPARED;
    }
    for (uint32_t i = 0; i < request->members_count; i++) {
        update->members[i].member = request->members[i];
        update->members[i].phase = phase;
        update->members[i].voted = committed;
        update->members[i].hash = committed ? request->hash : (struct tdm__hash){0, 0};
    }
    update->members_count = request->members_count;
}

/* Applies a RESTORE request: writes the record as the source of its updates remembers it. */
static tdm_status apply_restore(struct tdm__version_record *record,
                                const struct tdm__version_request *request, bool *changed)
{
    if (is_latest_update(record, &request->update) && record->update.outcome == request->proposal) {
        return TDM_OK; /* The request is a repetition. */
    }
    TDM_TRY(check_source_state(request));
    TDM_TRY(check_older_record(record, request));
    *record = (struct tdm__version_record){.epoch = request->epoch,
                                           .version_highest = request->update_version,
                                           .version = request->version,
                                           .hash = request->hash};
    if (request->proposal == TDM__UPDATE_ABORTED) {
        record->bytes = bytes_after_begin(record, request->overwrites);
    }
    record->update = (struct tdm__update){.id = request->update,
                                          .epoch = request->epoch,
                                          .version = request->update_version,
                                          .base = request->base,
                                          .source = request->source,
                                          .outcome = request->proposal,
                                          .reason = request->proposal == TDM__UPDATE_ABORTED
                                                        ? TDM__UPDATE_ABORT_PROPOSED
                                                        : TDM__UPDATE_NOT_ABORTED};
    fill_restored_members(&record->update, request);
    mark_member_dead(&record->update, request, changed);
    *changed = true;
    return TDM_OK;
}

tdm_status tdm__version_apply_request(struct tdm__version_record *record,
                                      const struct tdm__version_request *request, bool *changed_out)
{
    *changed_out = false;
    switch (request->kind) {
    case TDM__VERSION_READ:
        return TDM_OK;
    case TDM__VERSION_BEGIN:
        return apply_begin(record, request, changed_out);
    case TDM__VERSION_PREPARED:
        return apply_prepared(record, request, changed_out);
    case TDM__VERSION_DECIDE:
        return apply_decide(record, request, changed_out);
    case TDM__VERSION_FLIPPED:
        return apply_flipped(record, request, changed_out);
    case TDM__VERSION_DEAD:
        return apply_dead(record, request, changed_out);
    case TDM__VERSION_LOST:
        return apply_lost(record, request, changed_out);
    case TDM__VERSION_JOIN:
        return tdm__version_apply_join(record, request, changed_out);
    case TDM__VERSION_FORGET:
        return apply_forget(record, request, changed_out);
    case TDM__VERSION_RESTORE:
        return apply_restore(record, request, changed_out);
    }
    return tdm__fail(TDM_E_INVAL,
                     "changing the version record failed: the request is of kind %d, expected 0 to "
                     "%d. " TDM__REMEDY_DEFECT,
                     (int)request->kind, (int)TDM__VERSION_RESTORE);
}

tdm_status tdm__version_apply_batched(struct tdm__version_record *record,
                                      const struct tdm__version_request *request, bool *changed)
{
    struct tdm__version_record next = *record;
    bool has_changed;

    TDM_TRY(tdm__version_apply_request(&next, request, &has_changed));
    *record = next;
    *changed |= has_changed;
    return TDM_OK;
}
