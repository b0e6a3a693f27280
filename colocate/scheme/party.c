/* party.c - who takes part in a send, what they report, and who of them has died. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/party.h"

#include "colocate/scheme/board.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 200 };

/* ---- who takes part --------------------------------------------------------------------- */

static tdm_status read_member(const tdm_value *value, struct tdm__member *member)
{
    struct tdm_bytes id = tdm_value_bytes(tdm_value_at(value, 0));

    if (id.size_bytes != sizeof(member->actor.bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "a receiver whose id has %zu bytes", id.size_bytes);
    }
    memcpy(member->actor.bytes, id.data, sizeof(member->actor.bytes));
    member->incarnation = tdm_value_uint(tdm_value_at(value, 1), 0);
    return TDM_OK;
}

/* A note of a receiver is (id b, incarnation u, is it there?). */
static tdm_status add_to_party(tdm_weights_sender *sender, const tdm_value *note)
{
    struct tdm__party *party = &sender->party;
    struct tdm__member member;

    TDM_TRY(read_member(note, &member));
    if (party->members_count == TDM_WEIGHTS_RECEIVERS_MAX ||
        party->dead_count == TDM_WEIGHTS_RECEIVERS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "more than %d receivers of %s", TDM_WEIGHTS_RECEIVERS_MAX,
                         sender->round.model);
    }
    if (tdm_value_bool(tdm_value_at(note, 2), 0) &&
        tdm__round_check_alive(&sender->round, &member) == TDM_OK) {
        party->members[party->members_count++] = member;
    } else {
        party->dead[party->dead_count++] = member; /* gone, or no receiver any more */
    }
    return TDM_OK;
}

/* Once so many notes are there, of those who came and of those who went. */
static tdm_status gather(tdm_weights_sender *sender, uint64_t notes_count, int64_t deadline_ms)
{
    const tdm_value *notes;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm__board_wait(sender->board, "join/", "", notes_count, &ref));
    status = tdm_get_value(ref, tdm__deadline_left(deadline_ms), &notes);
    if (status == TDM_OK) {
        sender->party.members_count = 0;
        sender->party.dead_count = 0;
    } else {
        (void)tdm_cancel(ref, 0);
    }
    for (uint32_t i = 0; status == TDM_OK && i < tdm_value_count(notes); i++) {
        status = add_to_party(sender, tdm_value_at(tdm_value_at(notes, i), 1));
    }
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__party_gather(tdm_weights_sender *sender, int64_t deadline_ms)
{
    TDM_TRY(gather(sender, 0, deadline_ms));
    if (sender->party.members_count == 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "%s has no receiver; %u have gone",
                         sender->round.model, sender->party.dead_count);
    }
    return TDM_OK;
}

tdm_status tdm__party_await_receivers(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__party *party = &sender->party;
    tdm_status status = gather(sender, 0, deadline_ms);

    while (status == TDM_OK && party->members_count < sender->receivers_count) {
        status =
            gather(sender, (uint64_t)party->members_count + party->dead_count + 1, deadline_ms);
    }
    return status == TDM_E_TIMEOUT
               ? tdm__fail(TDM_E_TIMEOUT, "%u of %u receivers of %s have come in %lld ms",
                           party->members_count, sender->receivers_count, sender->round.model,
                           (long long)sender->timeout_ms)
               : status;
}

static uint32_t find_member(const struct tdm__party *party, const struct tdm__member *member)
{
    uint32_t i = 0;

    while (i < party->members_count &&
           (party->members[i].incarnation != member->incarnation ||
            !tdm__id_equal(&party->members[i].actor, &member->actor))) {
        i++;
    }
    return i;
}

/* ---- their reports ---------------------------------------------------------------------- */

/* Who of the party has reported what: a note of a receiver's report is (id b, incarnation u,
 * status i, text s). */
struct reports {
    bool came[TDM_WEIGHTS_RECEIVERS_MAX];
    uint32_t count;
};

static tdm_status read_reports(const tdm_weights_sender *sender, const tdm_value *notes,
                               struct reports *reports)
{
    char text[TDM__ROUND_MEMBER_TEXT_BYTES];

    for (uint32_t i = 0; i < tdm_value_count(notes); i++) {
        const tdm_value *note = tdm_value_at(tdm_value_at(notes, i), 1);
        tdm_status failed =
            (tdm_status)tdm_value_int(tdm_value_at(note, 2), (int64_t)TDM_E_PROTOCOL);
        struct tdm__member member;
        uint32_t index;

        TDM_TRY(read_member(note, &member));
        index = find_member(&sender->party, &member);
        if (index == sender->party.members_count) {
            continue;
        }
        if (failed != TDM_OK) {
            return tdm__fail(failed, "%s: %s", tdm__round_member_text(&member, text),
                             tdm_value_string(tdm_value_at(note, 3), ""));
        }
        reports->count += reports->came[index] ? 0 : 1;
        reports->came[index] = true;
    }
    return TDM_OK;
}

/* Adds those of the party that have died to its dead; TDM_E_ACTOR_DIED names the last. */
static tdm_status find_dead(tdm_weights_sender *sender, const struct reports *reports)
{
    struct tdm__party *party = &sender->party;
    char detail[TDM__SENDER_DETAIL_BYTES];
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < party->members_count; i++) {
        bool known = party->dead_count == TDM_WEIGHTS_RECEIVERS_MAX ||
                     (reports != NULL && reports->came[i]);

        if (!known && tdm__round_check_alive(&sender->round, &party->members[i]) != TDM_OK) {
            party->dead[party->dead_count++] = party->members[i];
            status = TDM_E_ACTOR_DIED;
            (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        }
    }
    return status == TDM_OK ? TDM_OK : tdm__fail(status, "%s", detail);
}

static tdm_status nobody_came(const tdm_weights_sender *sender, const struct reports *reports,
                              const char *done)
{
    char text[TDM__ROUND_MEMBER_TEXT_BYTES];
    uint32_t i = 0;

    while (reports->came[i]) {
        i++;
    }
    return tdm__fail(TDM_E_TIMEOUT, "%s has not %s epoch %llu of %s in time: %u of %u have",
                     tdm__round_member_text(&sender->party.members[i], text), done,
                     (unsigned long long)sender->epoch, sender->round.model, reports->count,
                     sender->party.members_count);
}

/* Waits for one more report, and looks now and then whether its author still lives. */
static tdm_status await_one_more(tdm_weights_sender *sender, const char *key, const char *done,
                                 struct reports *reports, int64_t deadline_ms)
{
    const tdm_value *notes;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(tdm__board_wait(sender->board, key, "", reports->count + 1, &ref));
    do {
        int64_t left_ms = tdm__deadline_left(deadline_ms);

        status =
            tdm_get_value(ref, left_ms < 0 || left_ms > LOOK_MS ? LOOK_MS : left_ms, &notes);
        if (status == TDM_E_TIMEOUT && find_dead(sender, reports) != TDM_OK) {
            status = TDM_E_ACTOR_DIED;
        }
    } while (status == TDM_E_TIMEOUT && tdm__deadline_left(deadline_ms) != 0);
    if (status == TDM_OK) {
        status = read_reports(sender, notes, reports);
    } else {
        (void)tdm_cancel(ref, 0);
        status = status == TDM_E_TIMEOUT ? nobody_came(sender, reports, done) : status;
    }
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__party_await(tdm_weights_sender *sender, const char *kind, const char *done,
                            int64_t deadline_ms)
{
    char key[TDM__ROUND_KEY_BYTES];
    struct reports reports = {.count = 0};
    tdm_status status = TDM_OK;

    (void)tdm__round_key(sender->epoch, kind, key);
    while (status == TDM_OK && reports.count < sender->party.members_count) {
        status = await_one_more(sender, key, done, &reports, deadline_ms);
    }
    return status;
}

static bool is_dead(const struct tdm__party *party, const struct tdm__member *member)
{
    for (uint32_t i = 0; i < party->dead_count; i++) {
        if (party->dead[i].incarnation == member->incarnation &&
            tdm__id_equal(&party->dead[i].actor, &member->actor)) {
            return true;
        }
    }
    return false;
}

void tdm__party_drop_dead(tdm_weights_sender *sender)
{
    struct tdm__party *party = &sender->party;
    uint32_t kept_count = 0;

    for (uint32_t i = 0; i < party->members_count; i++) {
        if (!is_dead(party, &party->members[i])) {
            party->members[kept_count++] = party->members[i];
        }
    }
    party->members_count = kept_count;
}

void tdm__party_forget_dead(const tdm_weights_sender *sender)
{
    char key[TDM__ROUND_KEY_BYTES];

    for (uint32_t i = 0; i < sender->party.dead_count; i++) {
        (void)tdm__board_close(sender->board, tdm__round_join_key(&sender->party.dead[i], key),
                               TDM_OK, "");
    }
}

tdm_status tdm__party_find_dead(tdm_weights_sender *sender)
{
    return find_dead(sender, NULL);
}
