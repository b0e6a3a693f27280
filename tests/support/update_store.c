/* update_store.c - the record of the update simulator, and the hashes of its bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/update_simulator_internal.h"

#include "colocate/weights/resume_log.h"
#include "runtime/assert.h"

#include <string.h>

enum { HASHES_MAX = 255 };

static struct tdm__hash hashes[HASHES_MAX];
static uint8_t hashes_count;

void update_wrong(struct update_scene *scene, const char *what)
{
    if (scene->wrong == NULL) {
        scene->wrong = what;
    }
}

bool update_may_be_late(const struct update_message *message)
{
    return message->kind == UPDATE_BUCKET || message->kind == UPDATE_PREPARE ||
           message->kind == UPDATE_FLIP || message->kind == UPDATE_DROP ||
           message->kind == UPDATE_JOIN;
}

struct tdm__id update_id(uint8_t kind, uint8_t number)
{
    return number == 0 ? (struct tdm__id){{0}} : (struct tdm__id){{kind, number}};
}

struct tdm__member update_member_id(uint8_t index, uint8_t incarnation)
{
    return (struct tdm__member){update_id('m', (uint8_t)(index + 1)), incarnation};
}

/* Fills a tensor with bytes that differ for all weights, tensors and positions. */
void update_fill(uint8_t weights, unsigned tensor, uint8_t bytes[UPDATE_TENSOR_BYTES])
{
    for (unsigned i = 0; i < UPDATE_TENSOR_BYTES; i++) {
        bytes[i] = (uint8_t)((unsigned)weights << 4 | tensor << 1 | i);
    }
}

static uint8_t number_of(const struct tdm__hash *hash)
{
    for (uint8_t i = 0; i < hashes_count; i++) {
        if (tdm__hash_equal(&hashes[i], hash)) {
            return (uint8_t)(i + 1);
        }
    }
    TDM_ASSERT(hashes_count < HASHES_MAX);
    hashes[hashes_count++] = *hash;
    return hashes_count;
}

uint8_t update_hash(const uint8_t bytes[UPDATE_TENSORS][UPDATE_TENSOR_BYTES])
{
    static const struct tdm__hash manifest = {1, 2};
    uint64_t sums[UPDATE_TENSORS];
    struct tdm__hash hash;

    for (unsigned i = 0; i < UPDATE_TENSORS; i++) {
        sums[i] = tdm__checksum_tensor(bytes[i], UPDATE_TENSOR_BYTES);
    }
    hash = tdm__checksum_contents_hash(&manifest, sums, UPDATE_TENSORS);
    return number_of(&hash);
}

uint8_t update_resume_log_sum(const uint8_t bytes[UPDATE_TENSORS][UPDATE_TENSOR_BYTES],
                              uint8_t count)
{
    struct tdm__resume_log resume_log = {.next = 0};

    for (uint8_t i = 0; i < count; i++) {
        const struct tdm__tensor_record record = {
            .tensor = i, .checksum = tdm__checksum_tensor(bytes[i], UPDATE_TENSOR_BYTES)};

        tdm__resume_log_add_bucket(&resume_log, i, &record, 1);
    }
    return number_of(&resume_log.sums);
}

struct tdm__hash update_hash_value(uint8_t number)
{
    return number == 0 ? (struct tdm__hash){0, 0} : hashes[number - 1];
}

static uint8_t hash_number(const struct tdm__hash *hash)
{
    for (uint8_t i = 0; i < hashes_count; i++) {
        if (tdm__hash_equal(&hashes[i], hash)) {
            return (uint8_t)(i + 1);
        }
    }
    return 0;
}

/* ---- the record as bytes ---------------------------------------------------------------- */

static void unpack(const struct update_record *from, struct tdm__version_record *to)
{
    struct tdm__update *update = &to->update;

    to->epoch = from->epoch;
    to->version_highest = from->highest;
    to->version = from->version;
    to->hash = update_hash_value(from->hash);
    to->bytes = (enum tdm__version_bytes)from->bytes;
    update->id = update_id('u', from->id);
    update->epoch = from->epoch;
    update->version = from->id_version;
    update->base = from->base;
    update->source = (struct tdm__member){update_id('s', 1), from->source};
    update->outcome = (enum tdm__update_outcome)from->outcome;
    update->reason = (enum tdm__update_abort_reason)from->reason;
    update->members_count = from->count;
    for (unsigned i = 0; i < from->count; i++) {
        update->members[i] = (struct tdm__update_member){
            .member = update_member_id(from->members[i].index, from->members[i].incarnation),
            .phase = (enum tdm__member_phase)from->members[i].phase,
            .voted = from->members[i].voted != 0,
            .hash = update_hash_value(from->members[i].hash)};
    }
    to->past_updates_count = from->past_updates_count;
    for (unsigned i = 0; i < from->past_updates_count; i++) {
        to->past_updates[i] = (struct tdm__past_update){
            .id = update_id('u', from->past_updates[i].id),
            .epoch = from->past_updates[i].epoch,
            .version = from->past_updates[i].version,
            .outcome = (enum tdm__update_outcome)from->past_updates[i].outcome};
    }
}

static void pack_past(const struct tdm__version_record *from, struct update_record *to)
{
    uint32_t skipped =
        from->past_updates_count > UPDATE_PAST_MAX ? from->past_updates_count - UPDATE_PAST_MAX : 0;

    to->past_updates_count = (uint8_t)(from->past_updates_count - skipped);
    for (unsigned i = 0; i < to->past_updates_count; i++) {
        const struct tdm__past_update *past = &from->past_updates[i + skipped];

        to->past_updates[i].id = past->id.bytes[1];
        to->past_updates[i].epoch = (uint8_t)past->epoch;
        to->past_updates[i].version = (uint8_t)past->version;
        to->past_updates[i].outcome = (uint8_t)past->outcome;
    }
}

static void pack(const struct tdm__version_record *from, struct update_record *to)
{
    const struct tdm__update *update = &from->update;

    memset(to, 0, sizeof(*to));
    to->epoch = (uint8_t)from->epoch;
    to->highest = (uint8_t)from->version_highest;
    to->version = (uint8_t)from->version;
    to->hash = hash_number(&from->hash);
    to->bytes = (uint8_t)from->bytes;
    to->id = update->id.bytes[1];
    to->id_version = (uint8_t)update->version;
    to->base = (uint8_t)update->base;
    to->source = (uint8_t)update->source.incarnation;
    to->outcome = (uint8_t)update->outcome;
    to->reason = (uint8_t)update->reason;
    TDM_ASSERT(update->members_count <= UPDATE_RECORDED_MAX);
    to->count = (uint8_t)update->members_count;
    for (unsigned i = 0; i < to->count; i++) {
        to->members[i].index = (uint8_t)(update->members[i].member.actor.bytes[1] - 1);
        to->members[i].incarnation = (uint8_t)update->members[i].member.incarnation;
        to->members[i].phase = (uint8_t)update->members[i].phase;
        to->members[i].voted = update->members[i].voted;
        to->members[i].hash = hash_number(&update->members[i].hash);
    }
    pack_past(from, to);
}

/* ---- a step ----------------------------------------------------------------------------- */

uint8_t update_committed(const struct update_simulator *world)
{
    return world->record.version > world->version_told ? world->record.version
                                                       : world->version_told;
}

void update_told(struct update_simulator *world)
{
    world->version_told = update_committed(world);
}

/* Checks that versions are given out once and grow. The same update may get its version again if
 * its BEGIN was lost before a process knew it. */
static void check_number(struct update_scene *scene)
{
    struct update_simulator *world = scene->world;
    uint8_t number = world->record.id_version;
    uint8_t owner = world->id_of[number];

    if (owner != 0 ? owner != world->record.id : number <= world->version_highest) {
        update_wrong(scene, "a version number is used twice");
    }
    world->id_of[number] = world->record.id;
    if (number > world->version_highest) {
        world->version_highest = number;
    }
}

static void check_step(struct update_scene *scene, const struct update_record *old,
                       enum tdm__version_request_kind kind)
{
    struct update_simulator *world = scene->world;
    const struct update_record *new = &world->record;

    if (new->version < old->version || new->highest < old->highest || new->epoch < old->epoch) {
        update_wrong(scene, "the record goes back");
    }
    if (kind == TDM__VERSION_BEGIN && new->epoch > old->epoch) {
        check_number(scene);
    }
    if (!update_overwrites(scene->limits) && new->bytes != TDM__BYTES_HELD) {
        update_wrong(scene, "bytes count as overwritten that are not");
    }
    if (kind != TDM__VERSION_RESTORE && new->version < world->version_told) {
        update_wrong(scene, "the record goes on from a version older than one committed");
    }
    if (new->version > old->version) {
        if (new->version <= world->version_told && world->hash_of[new->version] != new->hash) {
            update_wrong(scene, "a committed version has other bytes");
        }
        world->hash_of[new->version] = new->hash;
    }
}

tdm_status update_ask(struct update_scene *scene, const struct tdm__version_request *request)
{
    static struct tdm__version_record record;
    struct update_record before = scene->world->record;
    bool changed;
    tdm_status status;

    unpack(&before, &record);
    if (scene->limits->bug == UPDATE_BUG_RESTORES_OVER && request->kind == TDM__VERSION_RESTORE) {
        memset(&record, 0, sizeof(record));
    }
    status = tdm__version_apply_request(&record, request, &changed);
    if (status == TDM_OK && changed) {
        pack(&record, &scene->world->record);
        check_step(scene, &before, request->kind);
    }
    return status;
}

tdm_status update_outcome(const struct update_simulator *world, uint8_t update,
                          enum tdm__update_outcome *outcome_out)
{
    static struct tdm__version_record record;
    struct tdm__id id = update_id('u', update);

    unpack(&world->record, &record);
    return tdm__version_outcome(&record, &id, outcome_out);
}
