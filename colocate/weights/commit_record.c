/* commit_record.c - encodes a version record as the bytes that the store keeps. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The functions are pure and hold no state. The bytes come from the store, so decoding checks the
 * form of every value and then whether the record as a whole could result from any sequence of
 * requests (check_consistency()). The meaning of the fields is in commit_core.h and
 * docs/protocols/commit.md; changing the format needs a new FORMAT_VERSION. */

#include "colocate/weights/commit_record.h"

#include "runtime/error.h"

#include <inttypes.h>
#include <string.h>

/* The stored form is
 * [format, epoch, version_highest, version, hash_high, hash_low, lost, update, past].
 * `update` is nil or [id, epoch, version, base, source, incarnation, outcome, reason, members].
 * A member is [actor, incarnation, phase, voted, hash_high, hash_low].
 * `past` is [[id, epoch, version, outcome], ...]. */
enum {
    FORMAT_VERSION = 1, /* Version of the form in which the store keeps version records. */
    RECORD_VALUES = 9,  /* Number of values in the list that is an encoded version record. */
};

/* Writes a 128-bit ID as a byte string. */
static void write_id(tdm_writer *writer, const struct tdm__id *id)
{
    tdm_write_bytes(writer, id->bytes, sizeof(id->bytes));
}

/* Writes the record's latest update with its members. */
static void write_update(tdm_writer *writer, const struct tdm__update *update)
{
    tdm_write_array(writer, 9);
    write_id(writer, &update->id);
    tdm_write_uint(writer, update->epoch);
    tdm_write_uint(writer, update->version);
    tdm_write_uint(writer, update->base);
    write_id(writer, &update->source.actor);
    tdm_write_uint(writer, update->source.incarnation);
    tdm_write_uint(writer, (uint64_t)update->outcome);
    tdm_write_uint(writer, (uint64_t)update->reason);
    tdm_write_array(writer, update->members_count);
    for (uint32_t i = 0; i < update->members_count; i++) {
        const struct tdm__update_member *member = &update->members[i];

        tdm_write_array(writer, 6);
        write_id(writer, &member->member.actor);
        tdm_write_uint(writer, member->member.incarnation);
        tdm_write_uint(writer, (uint64_t)member->phase);
        tdm_write_bool(writer, member->voted);
        tdm_write_uint(writer, member->hash.high);
        tdm_write_uint(writer, member->hash.low);
    }
}

tdm_status tdm__version_record_encode(const struct tdm__version_record *record, tdm_writer *writer)
{
    tdm_write_array(writer, RECORD_VALUES);
    tdm_write_uint(writer, FORMAT_VERSION);
    tdm_write_uint(writer, record->epoch);
    tdm_write_uint(writer, record->version_highest);
    tdm_write_uint(writer, record->version);
    tdm_write_uint(writer, record->hash.high);
    tdm_write_uint(writer, record->hash.low);
    tdm_write_bool(writer, record->lost);
    if (tdm__id_is_none(&record->update.id)) {
        tdm_write_nil(writer);
    } else {
        write_update(writer, &record->update);
    }
    tdm_write_array(writer, record->past_updates_count);
    for (uint32_t i = 0; i < record->past_updates_count; i++) {
        const struct tdm__past_update *past = &record->past_updates[i];

        tdm_write_array(writer, 4);
        write_id(writer, &past->id);
        tdm_write_uint(writer, past->epoch);
        tdm_write_uint(writer, past->version);
        tdm_write_uint(writer, (uint64_t)past->outcome);
    }
    return tdm_writer_status(writer);
}

/* ---- reading ------------------------------------------------------------------------- */

/* Reads a 128-bit ID from a byte string; `what` names the ID in the error message. */
static tdm_status read_id(const void *bytes, size_t size_bytes, const char *what,
                          struct tdm__id *id_out)
{
    if (size_bytes != sizeof(id_out->bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "version record: %s has %zu bytes, an id has %zu", what,
                         size_bytes, sizeof(id_out->bytes));
    }
    memcpy(id_out->bytes, bytes, size_bytes);
    return TDM_OK;
}

/* Checks that an enum value lies between `low` and `high`; `what` names the value in the error
 * message. */
static tdm_status check_enum_value(uint64_t word, uint64_t low, uint64_t high, const char *what)
{
    if (word < low || word > high) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "version record: %s %" PRIu64 ", known are %" PRIu64 " to %" PRIu64, what,
                         word, low, high);
    }
    return TDM_OK;
}

/* Returns the error TDM_E_PROTOCOL for stored bytes whose part `what` does not have the expected
 * form. */
static tdm_status malformed_error(const char *what)
{
    return tdm__wrap(TDM_E_PROTOCOL, "version record: %s", what);
}

/* Reads one member of the latest update. */
static tdm_status read_member(const tdm_value *value, struct tdm__update_member *member)
{
    const void *actor;
    size_t actor_bytes;
    uint64_t phase;
    int voted;

    if (tdm_unpack(value, "buu?uu", &actor, &actor_bytes, &member->member.incarnation, &phase,
                   &voted, &member->hash.high, &member->hash.low) != TDM_OK) {
        return malformed_error("member");
    }
    TDM_TRY(read_id(actor, actor_bytes, "a member", &member->member.actor));
    TDM_TRY(check_enum_value(phase, TDM__MEMBER_STAGING, TDM__MEMBER_DEAD, "phase"));
    member->phase = (enum tdm__member_phase)phase;
    member->voted = voted != 0;
    return TDM_OK;
}

/* Reads the members of the latest update. */
static tdm_status read_members(const tdm_value *list, struct tdm__update *update)
{
    uint32_t count = tdm_value_count(list);

    TDM_TRY(check_enum_value(count, 1, TDM__UPDATE_MEMBERS_MAX, "members"));
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(read_member(tdm_value_at(list, i), &update->members[i]));
    }
    update->members_count = count;
    return TDM_OK;
}

/* Decodes the record's latest update. */
static tdm_status read_update(const tdm_value *value, struct tdm__update *update)
{
    const void *id;
    size_t id_bytes;
    const void *source;
    size_t source_bytes;
    uint64_t outcome;
    uint64_t reason;
    const tdm_value *members;

    if (tdm_unpack(value, "buuubuuuv", &id, &id_bytes, &update->epoch, &update->version,
                   &update->base, &source, &source_bytes, &update->source.incarnation, &outcome,
                   &reason, &members) != TDM_OK) {
        return malformed_error("update");
    }
    TDM_TRY(read_id(id, id_bytes, "an update", &update->id));
    TDM_TRY(read_id(source, source_bytes, "a source", &update->source.actor));
    TDM_TRY(check_enum_value(outcome, TDM__UPDATE_UNDECIDED, TDM__UPDATE_ABORTED, "outcome"));
    TDM_TRY(check_enum_value(reason, TDM__UPDATE_NOT_ABORTED, TDM__UPDATE_HASH_MISMATCH, "reason"));
    update->outcome = (enum tdm__update_outcome)outcome;
    update->reason = (enum tdm__update_abort_reason)reason;
    return read_members(members, update);
}

/* Reads the list of the updates before the latest. */
static tdm_status read_past(const tdm_value *list, struct tdm__version_record *record)
{
    uint32_t count = tdm_value_count(list);

    if (tdm_value_kind_of(list) != TDM_ARRAY) {
        return tdm__fail(TDM_E_PROTOCOL, "version record: the past is no array");
    }
    TDM_TRY(check_enum_value(count, 0, TDM__PAST_UPDATES_MAX, "past updates"));
    for (uint32_t i = 0; i < count; i++) {
        struct tdm__past_update *past = &record->past_updates[i];
        const void *id;
        size_t id_bytes;
        uint64_t outcome;

        if (tdm_unpack(tdm_value_at(list, i), "buuu", &id, &id_bytes, &past->epoch, &past->version,
                       &outcome) != TDM_OK) {
            return malformed_error("past update");
        }
        TDM_TRY(read_id(id, id_bytes, "a past update", &past->id));
        TDM_TRY(check_enum_value(outcome, TDM__UPDATE_COMMITTED, TDM__UPDATE_ABORTED, "outcome"));
        past->outcome = (enum tdm__update_outcome)outcome;
    }
    record->past_updates_count = count;
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

    if (record->version > record->version_highest || (record->lost && record->version == 0) ||
        (never && (record->epoch != 0 || record->version_highest != 0)) ||
        (!never && (update->epoch != record->epoch || update->version != record->version_highest ||
                    update->epoch == 0)) ||
        (!never && committed != (record->version == update->version)) ||
        (committed && !all_voted(record))) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "version record: epoch %" PRIu64 ", version %" PRIu64 " of %" PRIu64
                         " do not go with its update (epoch %" PRIu64 ", version %" PRIu64 ", %s)",
                         record->epoch, record->version, record->version_highest, update->epoch,
                         update->version, tdm__update_outcome_name(update->outcome));
    }
    return TDM_OK;
}

/* Reads a whole version record and checks that its numbers are consistent. */
static tdm_status read_record(const tdm_value *root, struct tdm__version_record *record)
{
    uint64_t format;
    int lost;
    const tdm_value *update;
    const tdm_value *past;

    if (tdm_unpack(root, "uuuuuu?vv", &format, &record->epoch, &record->version_highest,
                   &record->version, &record->hash.high, &record->hash.low, &lost, &update,
                   &past) != TDM_OK) {
        return malformed_error("its values");
    }
    TDM_TRY(check_enum_value(format, FORMAT_VERSION, FORMAT_VERSION, "format"));
    record->lost = lost != 0;
    if (tdm_value_kind_of(update) != TDM_NIL) {
        TDM_TRY(read_update(update, &record->update));
    }
    TDM_TRY(read_past(past, record));
    return check_consistency(record);
}

tdm_status tdm__version_record_decode(struct tdm_bytes bytes,
                                      struct tdm__version_record *record_out)
{
    struct tdm__version_record record;
    tdm_document *document;
    tdm_status status;

    memset(&record, 0, sizeof(record));
    TDM_TRY(tdm_document_parse(bytes, &document));
    status = read_record(tdm_document_root(document), &record);
    tdm_document_destroy(document);
    if (status == TDM_OK) {
        *record_out = record;
    }
    return status;
}
