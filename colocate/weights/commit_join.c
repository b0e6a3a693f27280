/* commit_join.c - adds a process to the members of the committed version. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A process without weights, or one whose weights an aborted update has overwritten, copies the
 * committed version from a member and asks with JOIN to become a member (docs/protocols/commit.md).
 * It is refused unless it holds that version with the right hash and no update is undecided. All
 * functions are pure. */

#include "colocate/weights/commit_join.h"

#include "colocate/weights/remedies.h"
#include "runtime/error.h"

#include <inttypes.h>

/* Checks whether the member of a JOIN request holds the committed version with the right hash. */
static tdm_status check_join(const struct tdm__version_record *record,
                             const struct tdm__version_request *request)
{
    char own[TDM__HASH_TEXT_BYTES];
    char committed[TDM__HASH_TEXT_BYTES];
    char text[TDM__MEMBER_TEXT_BYTES];

    if (tdm__id_is_none(&request->member.actor) || request->member.incarnation == 0) {
        return tdm__fail(TDM_E_INVAL,
                         "joining the members of a version failed: the joiner (%s) has no actor or "
                         "no incarnation. " TDM__REMEDY_DEFECT,
                         tdm__member_text(&request->member, text));
    }
    if (record->update.outcome == TDM__UPDATE_UNDECIDED) {
        return tdm__fail(TDM_E_STATE,
                         "joining the members of a version failed: the update of epoch %" PRIu64
                         " is undecided. Join after its outcome",
                         record->epoch);
    }
    if (request->version == 0 || request->version != record->version) {
        return tdm__fail(TDM_E_CONFLICT,
                         "joining the members of a version failed: %s has version %" PRIu64
                         ", but version %" PRIu64 " is committed. Copy that one from a member",
                         tdm__member_text(&request->member, text), request->version,
                         record->version);
    }
    if (record->bytes == TDM__BYTES_LOST) {
        return tdm__fail(
            TDM_E_STATE,
            "joining the members of a version failed: no process holds version %" PRIu64
            " any more. Wait for the next update",
            record->version);
    }
    if (!tdm__hash_equal(&request->hash, &record->hash)) {
        return tdm__fail(TDM_E_CONFLICT,
                         "joining the members of a version failed: %s holds weights with the hash "
                         "%s, version %" PRIu64 " has %s. Copy the weights from a member again",
                         tdm__member_text(&request->member, text),
                         tdm__hash_text(&request->hash, own), record->version,
                         tdm__hash_text(&record->hash, committed));
    }
    return TDM_OK;
}

/* Applies a JOIN request of a member that the latest update lists already. The member may join only
 * if the protocol expects nothing else of it. If the update has overwritten the committed version,
 * the member counts as flipped from now on, because it has shown that it holds that version. */
static tdm_status rejoin_member(struct tdm__version_record *record,
                                struct tdm__update_member *member, bool *changed)
{
    const struct tdm__update *update = &record->update;
    char text[TDM__MEMBER_TEXT_BYTES];

    (void)tdm__member_text(&member->member, text);
    if (member->phase == TDM__MEMBER_DEAD) {
        return tdm__fail(
            TDM_E_ACTOR_DIED,
            "joining the members of a version failed: %s was named dead in epoch %" PRIu64
            ". End its process, and restart the actor",
            text, update->epoch);
    }
    if (update->outcome == TDM__UPDATE_COMMITTED && member->phase != TDM__MEMBER_FLIPPED) {
        return tdm__fail(
            TDM_E_STATE,
            "joining the members of a version failed: %s has voted for version %" PRIu64
            " and has it already. Flip to it instead",
            text, update->version);
    }
    if (record->bytes == TDM__BYTES_OVERWRITTEN) {
        member->phase = TDM__MEMBER_FLIPPED;
        record->bytes = TDM__BYTES_HELD;
        *changed = true;
    }
    return TDM_OK;
}

/* Marks earlier incarnations of the joining actor as dead, because the joining one lives. Refuses a
 * member that is itself an earlier incarnation. */
static tdm_status end_earlier_incarnation(struct tdm__update *update,
                                          const struct tdm__member *member)
{
    char text[TDM__MEMBER_TEXT_BYTES];

    for (uint32_t i = 0; i < update->members_count; i++) {
        struct tdm__update_member *other = &update->members[i];

        if (!tdm__id_equal(&other->member.actor, &member->actor)) {
            continue;
        }
        if (other->member.incarnation > member->incarnation) {
            return tdm__fail(TDM_E_CONFLICT,
                             "joining the members of a version failed: incarnation %" PRIu64
                             " is older than %s, which is a member. End the older process",
                             member->incarnation, tdm__member_text(&other->member, text));
        }
        other->phase = TDM__MEMBER_DEAD;
    }
    return TDM_OK;
}

tdm_status tdm__version_apply_join(struct tdm__version_record *record,
                                   const struct tdm__version_request *request, bool *changed)
{
    struct tdm__update *update = &record->update;
    uint32_t index;

    TDM_TRY(check_join(record, request));
    index = tdm__version_member_index(update, &request->member);
    if (index < update->members_count) {
        return rejoin_member(record, &update->members[index], changed);
    }
    TDM_TRY(end_earlier_incarnation(update, &request->member));
    if (update->members_count == TDM__UPDATE_MEMBERS_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "joining the members of a version failed: the update of epoch %" PRIu64
                         " has %d members, which is the limit. Use fewer receivers of the model",
                         update->epoch, TDM__UPDATE_MEMBERS_MAX);
    }
    update->members[update->members_count++] =
        (struct tdm__update_member){.member = request->member,
                                    .phase = TDM__MEMBER_FLIPPED,
                                    .voted = true,
                                    .hash = record->hash};
    record->bytes = TDM__BYTES_HELD;
    *changed = true;
    return TDM_OK;
}
