/* membership.c - the receivers of a sender: which exist, what they report, and which have died. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A receiver announces itself with a message "join/ACTOR/INCARNATION" in the mailbox and changes
 * that message when it shuts down. tdm__membership_collect() reads these messages before each
 * update and divides the receivers into members and dead; dead means shut down or fenced. During
 * an update members report with messages "update/EPOCH/vote/..." and "update/EPOCH/flip/...".
 * While the sender waits for reports, it asks its node every LIVENESS_CHECK_MS milliseconds whether
 * the missing members still live.
 *
 * Everything here runs in the thread that sends; see struct tdm_weights_sender. */

#include "colocate/scheme/membership.h"

#include "colocate/scheme/mailbox.h"
#include "colocate/weights/commit_record.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <string.h>

/* Time between two checks whether missing members live, in milliseconds. */
enum { LIVENESS_CHECK_MS = 200 };

/* ---- members ------------------------------------------------------------------------- */

/* Adds the receiver of a join message to the members or to the dead. */
static tdm_status add_to_membership(tdm_weights_sender *sender, const tdm_value *value)
{
    struct tdm__membership *membership = &sender->membership;
    struct tdm__scheme_join_message message;
    struct tdm__member member;

    TDM_TRY(tdm__scheme_join_decode(value, &message));
    member = tdm__member_from_message(&message.receiver);
    if (membership->members_count == TDM_WEIGHTS_RECEIVERS_MAX ||
        membership->dead_count == TDM_WEIGHTS_RECEIVERS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "more than %d receivers of %s", TDM_WEIGHTS_RECEIVERS_MAX,
                         sender->session.model);
    }
    if (message.is_present &&
        tdm__update_session_check_alive(&sender->session, &member) == TDM_OK) {
        membership->members[membership->members_count++] = member;
    } else {
        /* The receiver has shut down or its process has ended. */
        membership->dead[membership->dead_count++] = member;
    }
    return TDM_OK;
}

/* Waits until the mailbox has `messages_count` join messages, of present and of former receivers,
 * and fills the membership from all of them. */
static tdm_status collect_members(tdm_weights_sender *sender, uint64_t messages_count,
                                  int64_t deadline_ms)
{
    struct tdm__message_list messages;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm__mailbox_wait_messages(sender->mailbox, "join/", "", messages_count, &ref));
    status = tdm__mailbox_get_messages(ref, tdm__deadline_remaining_ms(deadline_ms), &messages);
    if (status == TDM_OK) {
        sender->membership.members_count = 0;
        sender->membership.dead_count = 0;
    } else {
        (void)tdm_cancel(ref, 0);
    }
    for (uint32_t i = 0; status == TDM_OK && i < messages.count; i++) {
        status = add_to_membership(sender, tdm__mailbox_message_at(&messages, i, NULL));
    }
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__membership_collect(tdm_weights_sender *sender, int64_t deadline_ms)
{
    TDM_TRY(collect_members(sender, 0, deadline_ms));
    if (sender->membership.members_count == 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "%s has no receiver; %u have gone", sender->session.model,
                         sender->membership.dead_count);
    }
    return TDM_OK;
}

tdm_status tdm__membership_await_receivers(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__membership *membership = &sender->membership;
    tdm_status status = collect_members(sender, 0, deadline_ms);

    while (status == TDM_OK && membership->members_count < sender->receivers_count) {
        status = collect_members(
            sender, (uint64_t)membership->members_count + membership->dead_count + 1, deadline_ms);
    }
    return status == TDM_E_TIMEOUT
               ? tdm__fail(TDM_E_TIMEOUT, "%u of %u receivers of %s have come in %lld ms",
                           membership->members_count, sender->receivers_count,
                           sender->session.model, (long long)sender->timeout_ms)
               : status;
}

/* Returns the member's index, or members_count if it is not one. */
static uint32_t find_member(const struct tdm__membership *membership,
                            const struct tdm__member *member)
{
    uint32_t i = 0;

    while (i < membership->members_count &&
           (membership->members[i].incarnation != member->incarnation ||
            !tdm__id_equal(&membership->members[i].actor, &member->actor))) {
        i++;
    }
    return i;
}

/* ---- reports ------------------------------------------------------------------------- */

/* Which members have reported to the sender for one step of an update, such as the vote. */
struct member_reports {
    /* For each member, by its index, true if it has reported. */
    bool came[TDM_WEIGHTS_RECEIVERS_MAX];
    uint32_t count; /* Number of members that have reported. */
};

/* Reads the reports in `messages`. Returns the failure that a member reports, with its name. */
static tdm_status read_reports(const tdm_weights_sender *sender,
                               const struct tdm__message_list *messages,
                               struct member_reports *reports)
{
    char text[TDM__UPDATE_MEMBER_TEXT_BYTES];

    for (uint32_t i = 0; i < messages->count; i++) {
        struct tdm__scheme_report_message message;
        struct tdm__member member;
        uint32_t index;

        TDM_TRY(tdm__scheme_report_decode(tdm__mailbox_message_at(messages, i, NULL), &message));
        member = tdm__member_from_message(&message.receiver);
        index = find_member(&sender->membership, &member);
        if (index == sender->membership.members_count) {
            continue;
        }
        if (message.status != TDM_OK) {
            return tdm__fail((tdm_status)message.status, "%s: %s",
                             tdm__update_member_text(&member, text), message.text);
        }
        reports->count += reports->came[index] ? 0 : 1;
        reports->came[index] = true;
    }
    return TDM_OK;
}

/* Adds the members that have died to the dead. Members in `reports`, which may be NULL, are not
 * checked. Returns TDM_E_ACTOR_DIED with the name of the last dead member. */
static tdm_status find_dead(tdm_weights_sender *sender, const struct member_reports *reports)
{
    struct tdm__membership *membership = &sender->membership;
    char detail[TDM__SENDER_DETAIL_BYTES];
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < membership->members_count; i++) {
        bool known = membership->dead_count == TDM_WEIGHTS_RECEIVERS_MAX ||
                     (reports != NULL && reports->came[i]);

        if (!known &&
            tdm__update_session_check_alive(&sender->session, &membership->members[i]) != TDM_OK) {
            membership->dead[membership->dead_count++] = membership->members[i];
            status = TDM_E_ACTOR_DIED;
            (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        }
    }
    return status == TDM_OK ? TDM_OK : tdm__fail(status, "%s", detail);
}

/* Returns the timeout error, which names the first member that did not report. */
static tdm_status missing_report_error(const tdm_weights_sender *sender,
                                       const struct member_reports *reports, const char *done)
{
    char text[TDM__UPDATE_MEMBER_TEXT_BYTES];
    uint32_t i = 0;

    while (reports->came[i]) {
        i++;
    }
    return tdm__fail(TDM_E_TIMEOUT, "%s has not %s epoch %llu of %s in time: %u of %u have",
                     tdm__update_member_text(&sender->membership.members[i], text), done,
                     (unsigned long long)sender->epoch, sender->session.model, reports->count,
                     sender->membership.members_count);
}

/* Waits for one more report, and checks every LIVENESS_CHECK_MS milliseconds whether the missing
 * members live. */
static tdm_status await_more_reports(tdm_weights_sender *sender, const char *key, const char *done,
                                     struct member_reports *reports, int64_t deadline_ms)
{
    struct tdm__message_list messages;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(tdm__mailbox_wait_messages(sender->mailbox, key, "", reports->count + 1, &ref));
    do {
        int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);

        status = tdm__mailbox_get_messages(
            ref,
            remaining_ms < 0 || remaining_ms > LIVENESS_CHECK_MS ? LIVENESS_CHECK_MS : remaining_ms,
            &messages);
        if (status == TDM_E_TIMEOUT && find_dead(sender, reports) != TDM_OK) {
            status = TDM_E_ACTOR_DIED;
        }
    } while (status == TDM_E_TIMEOUT && tdm__deadline_remaining_ms(deadline_ms) != 0);
    if (status == TDM_OK) {
        status = read_reports(sender, &messages, reports);
    } else {
        (void)tdm_cancel(ref, 0);
        status = status == TDM_E_TIMEOUT ? missing_report_error(sender, reports, done) : status;
    }
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__membership_await(tdm_weights_sender *sender, const char *kind, const char *done,
                                 int64_t deadline_ms)
{
    char key[TDM__UPDATE_KEY_BYTES];
    struct member_reports reports = {.count = 0};
    tdm_status status = TDM_OK;

    (void)tdm__update_message_key(sender->epoch, kind, key);
    while (status == TDM_OK && reports.count < sender->membership.members_count) {
        status = await_more_reports(sender, key, done, &reports, deadline_ms);
    }
    return status;
}

/* Returns true if the member is among the dead. */
static bool is_dead(const struct tdm__membership *membership, const struct tdm__member *member)
{
    for (uint32_t i = 0; i < membership->dead_count; i++) {
        if (membership->dead[i].incarnation == member->incarnation &&
            tdm__id_equal(&membership->dead[i].actor, &member->actor)) {
            return true;
        }
    }
    return false;
}

void tdm__membership_drop_dead(tdm_weights_sender *sender)
{
    struct tdm__membership *membership = &sender->membership;
    uint32_t kept_count = 0;

    for (uint32_t i = 0; i < membership->members_count; i++) {
        if (!is_dead(membership, &membership->members[i])) {
            membership->members[kept_count++] = membership->members[i];
        }
    }
    membership->members_count = kept_count;
}

void tdm__membership_forget_dead(const tdm_weights_sender *sender)
{
    char key[TDM__UPDATE_KEY_BYTES];

    for (uint32_t i = 0; i < sender->membership.dead_count; i++) {
        (void)tdm__mailbox_close(sender->mailbox,
                                 tdm__update_join_key(&sender->membership.dead[i], key), TDM_OK, "",
                                 NULL);
    }
}

tdm_status tdm__membership_find_dead(tdm_weights_sender *sender)
{
    return find_dead(sender, NULL);
}
