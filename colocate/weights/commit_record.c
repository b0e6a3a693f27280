/* commit_record.c - encodes version records for the store, and members for messages. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The functions are pure and hold no state. The bytes come from the store, so decoding checks the
 * form of every value and then whether the record as a whole could result from any sequence of
 * requests (check_consistency()). The form is the table stored_version_record
 * (runtime/messages/weights.def); the meaning of the fields is in commit_core.h and
 * docs/protocols/commit.md. */

#include "colocate/weights/commit_record.h"

#include "runtime/error.h"

#include <inttypes.h>
#include <string.h>

/* Number of the stored form.  Raise it whenever the table stored_version_record or a message in it
 * changes: the store may keep records that were written by an earlier program. */
enum { FORMAT_VERSION = 2 };

/* Remedy for a record that this program cannot read. */
#define OTHER_TANDEM                                                                               \
    "Use the Tandem that wrote it, or delete the record from the store while nothing uses the "    \
    "model"

/* ---- members ------------------------------------------------------------------------- */

struct tdm__update_member_message tdm__member_to_message(const struct tdm__member *member)
{
    return (struct tdm__update_member_message){member->actor, member->incarnation};
}

struct tdm__member tdm__member_from_message(const struct tdm__update_member_message *message)
{
    return (struct tdm__member){message->actor, message->incarnation};
}

void tdm__member_get_message(const void *members, uint32_t index, void *item_out)
{
    *(struct tdm__update_member_message *)item_out =
        tdm__member_to_message(&((const struct tdm__member *)members)[index]);
}

/* ---- writing ------------------------------------------------------------------------- */

/* Getter of a message list: describes a member of the latest update. */
static void get_member(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__update_member *member = &((const struct tdm__update_member *)arg)[index];

    *(struct tdm__stored_member_message *)item_out =
        (struct tdm__stored_member_message){.actor = member->member.actor,
                                            .incarnation = member->member.incarnation,
                                            .phase = (uint32_t)member->phase,
                                            .voted = member->voted,
                                            .hash_high = member->hash.high,
                                            .hash_low = member->hash.low};
}

/* Getter of a message list: describes a remembered update. */
static void get_past_update(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__past_update *past = &((const struct tdm__past_update *)arg)[index];

    *(struct tdm__stored_past_update_message *)item_out =
        (struct tdm__stored_past_update_message){.id = past->id,
                                                 .epoch = past->epoch,
                                                 .version = past->version,
                                                 .outcome = (uint32_t)past->outcome};
}

/* Returns the message of the latest update, which borrows the members. */
static struct tdm__stored_update_message update_to_message(const struct tdm__update *update)
{
    return (struct tdm__stored_update_message){
        .id = update->id,
        .epoch = update->epoch,
        .version = update->version,
        .base = update->base,
        .source = update->source.actor,
        .source_incarnation = update->source.incarnation,
        .outcome = (uint32_t)update->outcome,
        .reason = (uint32_t)update->reason,
        .members = {.count = update->members_count, .get = get_member, .arg = update->members}};
}

tdm_status tdm__version_record_encode(const struct tdm__version_record *record, tdm_writer *writer)
{
    const struct tdm__stored_version_record_message message = {
        .format = FORMAT_VERSION,
        .epoch = record->epoch,
        .version_highest = record->version_highest,
        .version = record->version,
        .hash_high = record->hash.high,
        .hash_low = record->hash.low,
        .bytes = (uint32_t)record->bytes,
        .has_update = !tdm__id_is_none(&record->update.id),
        .update = update_to_message(&record->update),
        .past_updates = {.count = record->past_updates_count,
                         .get = get_past_update,
                         .arg = record->past_updates}};

    return tdm__stored_version_record_encode(&message, writer);
}

/* ---- reading ------------------------------------------------------------------------- */

/* Checks that an enum value lies between `low` and `high`; `what` names the value in the error
 * message. */
static tdm_status check_range(uint64_t number, uint64_t low, uint64_t high, const char *what)
{
    if (number < low || number > high) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the version record failed: its %s is %" PRIu64
                         ", expected %" PRIu64 " to %" PRIu64 ". " OTHER_TANDEM,
                         what, number, low, high);
    }
    return TDM_OK;
}

/* Reads the members of the latest update. */
static tdm_status read_members(const struct tdm__message_list *list, struct tdm__update *update)
{
    TDM_TRY(check_range(list->count, 1, TDM__UPDATE_MEMBERS_MAX, "number of members"));
    for (uint32_t i = 0; i < list->count; i++) {
        struct tdm__stored_member_message message;

        tdm__message_list_read(list, i, &message, sizeof(message));
        TDM_TRY(
            check_range(message.phase, TDM__MEMBER_STAGING, TDM__MEMBER_DEAD, "phase of a member"));
        update->members[i] =
            (struct tdm__update_member){.member = {message.actor, message.incarnation},
                                        .phase = (enum tdm__member_phase)message.phase,
                                        .voted = message.voted,
                                        .hash = {message.hash_high, message.hash_low}};
    }
    update->members_count = list->count;
    return TDM_OK;
}

/* Decodes the record's latest update. */
static tdm_status read_update(const struct tdm__stored_update_message *message,
                              struct tdm__update *update)
{
    TDM_TRY(check_range(message->outcome, TDM__UPDATE_UNDECIDED, TDM__UPDATE_ABORTED, "outcome"));
    TDM_TRY(
        check_range(message->reason, TDM__UPDATE_NOT_ABORTED, TDM__UPDATE_HASH_MISMATCH, "reason"));
    update->id = message->id;
    update->epoch = message->epoch;
    update->version = message->version;
    update->base = message->base;
    update->source = (struct tdm__member){message->source, message->source_incarnation};
    update->outcome = (enum tdm__update_outcome)message->outcome;
    update->reason = (enum tdm__update_abort_reason)message->reason;
    return read_members(&message->members, update);
}

/* Reads the list of the updates before the latest. */
static tdm_status read_past_updates(const struct tdm__message_list *list,
                                    struct tdm__version_record *record)
{
    TDM_TRY(check_range(list->count, 0, TDM__PAST_UPDATES_MAX, "number of past updates"));
    for (uint32_t i = 0; i < list->count; i++) {
        struct tdm__stored_past_update_message message;

        tdm__message_list_read(list, i, &message, sizeof(message));
        TDM_TRY(check_range(message.outcome, TDM__UPDATE_COMMITTED, TDM__UPDATE_ABORTED,
                            "outcome of a past update"));
        record->past_updates[i] =
            (struct tdm__past_update){.id = message.id,
                                      .epoch = message.epoch,
                                      .version = message.version,
                                      .outcome = (enum tdm__update_outcome)message.outcome};
    }
    record->past_updates_count = list->count;
    return TDM_OK;
}

/* Returns true if all members of the latest update voted for the committed hash. */
static bool all_voted(const struct tdm__version_record *record)
{
    const struct tdm__update *update = &record->update;

    for (uint32_t i = 0; i < update->members_count; i++) {
        if (!update->members[i].voted ||
            !tdm__hash_equal(&update->members[i].hash, &record->hash)) {
            return false;
        }
    }
    return true;
}

/* Refuses a version record whose numbers no sequence of requests can have written. */
static tdm_status check_consistency(const struct tdm__version_record *record)
{
    const struct tdm__update *update = &record->update;
    bool never = tdm__id_is_none(&update->id);
    bool committed = update->outcome == TDM__UPDATE_COMMITTED;

    if (record->version > record->version_highest ||
        (record->bytes != TDM__BYTES_HELD && record->version == 0) ||
        (never && (record->epoch != 0 || record->version_highest != 0)) ||
        (!never && (update->epoch != record->epoch || update->version != record->version_highest ||
                    update->epoch == 0)) ||
        (!never && committed != (record->version == update->version)) ||
        (committed && !all_voted(record))) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the version record failed: epoch %" PRIu64 ", version %" PRIu64
                         " of %" PRIu64 " contradict its latest update (epoch %" PRIu64
                         ", version %" PRIu64 ", %s). " OTHER_TANDEM,
                         record->epoch, record->version, record->version_highest, update->epoch,
                         update->version, tdm__update_outcome_name(update->outcome));
    }
    return TDM_OK;
}

/* Reads a whole version record and checks that its numbers are consistent. */
static tdm_status read_record(const tdm_value *root, struct tdm__version_record *record)
{
    struct tdm__stored_version_record_message message;

    tdm_status status = tdm__stored_version_record_decode(root, &message);

    if (status != TDM_OK) {
        return tdm__fail(
            status,
            "reading the version record failed: this Tandem reads format %d: %s. " OTHER_TANDEM,
            FORMAT_VERSION, tdm_error_detail());
    }
    TDM_TRY(check_range(message.format, FORMAT_VERSION, FORMAT_VERSION, "format"));
    record->epoch = message.epoch;
    record->version_highest = message.version_highest;
    record->version = message.version;
    record->hash = (struct tdm__hash){message.hash_high, message.hash_low};
    TDM_TRY(
        check_range(message.bytes, TDM__BYTES_HELD, TDM__BYTES_OVERWRITTEN, "state of the bytes"));
    record->bytes = (enum tdm__version_bytes)message.bytes;
    if (message.has_update) {
        TDM_TRY(read_update(&message.update, &record->update));
    }
    TDM_TRY(read_past_updates(&message.past_updates, record));
    return check_consistency(record);
}

tdm_status tdm__version_record_decode(struct tdm_bytes bytes,
                                      struct tdm__version_record *record_out)
{
    struct tdm__version_record record;
    tdm_document *document;
    tdm_status status;

    memset(&record, 0, sizeof(record));
    TDM_TRY(tdm__wrap(tdm_document_parse(bytes, &document), "reading the version record failed"));
    status = read_record(tdm_document_root(document), &record);
    tdm_document_destroy(document);
    if (status == TDM_OK) {
        *record_out = record;
    }
    return status;
}
