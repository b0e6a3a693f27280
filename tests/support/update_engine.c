/* update_engine.c - an engine of the update simulator. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/update_simulator_internal.h"

#include "colocate/weights/replay_guard.h"
#include "colocate/weights/resume_log.h"

#include <string.h>

enum { ALL_TENSORS = (1 << UPDATE_TENSORS) - 1, GARBAGE = 0xff };

bool update_overwrites(const struct update_limits *limits)
{
    return limits->way == UPDATE_BY_BUCKET;
}

bool update_engine_serves(const struct update_member *member)
{
    return member->alive && member->version != 0 && member->guard_phase != TDM__REPLAY_GUARD_VOTED;
}

static struct tdm__replay_guard guard_of(const struct update_member *member)
{
    return (struct tdm__replay_guard){(enum tdm__replay_guard_phase)member->guard_phase,
                                      update_id('u', member->guard_update), member->guard_epoch};
}

static void set_guard(struct update_member *member, const struct tdm__replay_guard *guard)
{
    member->guard_phase = (uint8_t)guard->phase;
    member->guard_update = guard->update.bytes[1];
    member->guard_epoch = (uint8_t)guard->epoch;
}

/* ---- resume_log ---------------------------------------------------------------------------- */

static struct tdm__resume_tracker tracker_of(const struct update_member *member)
{
    return (struct tdm__resume_tracker){.resume_log = {.next = member->resume_log_next},
                                        .is_open = member->resume_log_open != 0,
                                        .is_unsettled = member->resume_log_unsettled != 0};
}

static void set_tracker(struct update_member *member, const struct tdm__resume_tracker *tracker)
{
    member->resume_log_next = (uint8_t)tracker->resume_log.next;
    member->resume_log_open = tracker->is_open;
    member->resume_log_unsettled = tracker->is_unsettled;
}

/* Begins a new update. Returns true if it continues with the staged bytes of the last one. */
static bool go_on(struct update_scene *scene, uint8_t index, const struct update_message *message)
{
    struct update_member *member = &scene->world->members[index];
    struct update_driver *driver = &scene->world->driver;
    bool is_exported = scene->limits->way == UPDATE_IN_PLACE;
    struct tdm__resume_tracker tracker = tracker_of(member);
    struct tdm__resume_log resume_log = tdm__resume_tracker_snapshot(&tracker, is_exported);
    struct tdm__replay_guard guard = guard_of(member);
    struct tdm__id update = update_id('u', message->update);
    bool begun;

    driver->resume_logs[index] = 0;
    driver->resume_log_sums[index] = 0;
    if (scene->limits->way == UPDATE_BY_NAME || resume_log.next == 0) {
        return true;
    }
    if (tdm__replay_guard_accept_bucket(&guard, &update, message->epoch, &begun) != TDM_OK) {
        return false;
    }
    set_guard(member, &guard);
    tdm__resume_tracker_begin_update(&tracker);
    set_tracker(member, &tracker);
    driver->resume_logs[index] = (uint8_t)resume_log.next;
    driver->resume_log_sums[index] = update_resume_log_sum(
        (const uint8_t(*)[UPDATE_TENSOR_BYTES])member->seen, (uint8_t)resume_log.next);
    return true;
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Returns the memory into which buckets are copied. */
static uint8_t (*target(const struct update_limits *limits,
                        struct update_member *member))[UPDATE_TENSOR_BYTES]
{
    return update_overwrites(limits) ? member->image : member->shadow;
}

static bool target_is_here(const struct update_limits *limits, const struct update_member *member)
{
    return update_overwrites(limits) ? member->weights : member->shadow_here;
}

static void take_shadow(const struct update_limits *limits, struct update_member *member)
{
    if (!member->shadow_here && !update_overwrites(limits)) {
        member->shadow_here = 1;
        member->shadow_key++;
        memset(member->shadow, GARBAGE, sizeof(member->shadow));
    }
}

static void give_shadow(struct update_member *member)
{
    member->shadow_here = 0;
    memset(member->shadow, 0, sizeof(member->shadow));
    memset(member->seen, 0, sizeof(member->seen));
    member->staged = 0;
    set_tracker(member, &(struct tdm__resume_tracker){.is_open = false});
}

/* Pauses the weights. A new resume gives them other memory, so what was staged in them is gone. */
static void give_weights(const struct update_limits *limits, struct update_member *member)
{
    member->weights = 0;
    member->kv = 0;
    if (update_overwrites(limits)) {
        give_shadow(member);
    }
}

/* ---- buckets ---------------------------------------------------------------------------- */

static bool bytes_are(const uint8_t bytes[UPDATE_TENSOR_BYTES], const struct update_message *said)
{
    return tdm__checksum_verify("tensor", bytes, UPDATE_TENSOR_BYTES,
                                tdm__checksum_tensor(said->seen, UPDATE_TENSOR_BYTES)) == TDM_OK;
}

/* The mutation of slime: there is no shadow and no commit. */
static void load_at_once(struct update_scene *scene, struct update_member *member,
                         const struct update_message *bucket)
{
    if (!member->weights) {
        update_wrong(scene, "bytes are written to memory that is away");
    }
    memcpy(member->image[bucket->tensor], bucket->seen, UPDATE_TENSOR_BYTES);
    member->version = bucket->version;
}

/* Adds the bucket to the resume log. Returns false if the bucket must be ignored. */
static bool enter_bucket(const struct update_limits *limits, struct update_member *member,
                         const struct update_message *bucket, bool update_begun)
{
    struct tdm__resume_tracker tracker = {.is_open = false};
    bool is_taken = true;
    bool begun = update_begun;

    if (limits->way != UPDATE_BY_NAME) {
        tracker = update_begun ? tracker : tracker_of(member);
        is_taken = tdm__resume_tracker_open_bucket(&tracker, bucket->tensor, &begun) == TDM_OK;
        if (limits->bug == UPDATE_BUG_JOURNAL_BEFORE_BYTES && is_taken) {
            tracker.resume_log.next = bucket->tensor + 1U;
            tracker.is_open = false;
        }
        set_tracker(member, &tracker);
    }
    if (begun) {
        member->staged = 0;
        memset(member->seen, 0, sizeof(member->seen));
    }
    if (limits->bug == UPDATE_BUG_JOURNAL_BEFORE_BYTES && is_taken) {
        memcpy(member->seen[bucket->tensor], bucket->seen, UPDATE_TENSOR_BYTES);
        member->staged |= (uint8_t)(1 << bucket->tensor);
    }
    return is_taken;
}

/* Copies the bucket into the shadow, unless it is there already, and compares it. */
static bool put(struct update_scene *scene, struct update_member *member,
                const struct update_message *bucket)
{
    const struct update_trainer *trainer = &scene->world->trainer;

    if (scene->limits->way != UPDATE_IN_PLACE) {
        if (!target_is_here(scene->limits, member)) {
            update_wrong(scene, "bytes are written to memory that is away");
        }
        if (!trainer->alive || trainer->incarnation != bucket->from) {
            return false; /* The memory that it would copy from was released. */
        }
        memcpy(target(scene->limits, member)[bucket->tensor],
               trainer->bucket[bucket->tensor % UPDATE_HALVES], UPDATE_TENSOR_BYTES);
    }
    if (bytes_are(target(scene->limits, member)[bucket->tensor], bucket)) {
        return true;
    }
    if ((scene->limits->way == UPDATE_BY_COPY || scene->limits->way == UPDATE_BY_BUCKET) &&
        !bucket->unheard && scene->world->tears_left == scene->limits->tears) {
        update_wrong(scene, "a bucket is written over before it has been read");
    }
    return false;
}

static void close_bucket(const struct update_limits *limits, struct update_member *member,
                         const struct update_message *bucket)
{
    struct tdm__resume_tracker tracker = tracker_of(member);

    memcpy(member->seen[bucket->tensor], bucket->seen, UPDATE_TENSOR_BYTES);
    member->staged |= (uint8_t)(1 << bucket->tensor);
    if (limits->way != UPDATE_BY_NAME) {
        tdm__resume_tracker_close_bucket(&tracker, bucket->tensor, NULL, 0);
        set_tracker(member, &tracker);
    }
}

static bool stage(struct update_scene *scene, struct update_member *member,
                  const struct update_message *bucket)
{
    struct tdm__replay_guard guard = guard_of(member);
    struct tdm__id update = update_id('u', bucket->update);
    bool begun;

    if (!target_is_here(scene->limits, member) && scene->limits->bug != UPDATE_BUG_UPDATE_ASLEEP) {
        return false;
    }
    if (tdm__replay_guard_accept_bucket(&guard, &update, bucket->epoch, &begun) != TDM_OK) {
        return false;
    }
    set_guard(member, &guard);
    if (update_overwrites(scene->limits)) {
        member->version = 0; /* From here it holds no version, until it has all buckets of one. */
    }
    if (!enter_bucket(scene->limits, member, bucket, begun)) {
        return false;
    }
    if (scene->limits->bug == UPDATE_BUG_NUMBER_AFTER_FIRST_BUCKET) {
        load_at_once(scene, member, bucket);
    }
    if (scene->limits->bug != UPDATE_BUG_JOURNAL_BEFORE_BYTES) {
        member->staged &= (uint8_t) ~(1 << bucket->tensor);
    }
    if (!put(scene, member, bucket)) {
        return false;
    }
    close_bucket(scene->limits, member, bucket);
    return true;
}

/* ---- vote, flip, drop ------------------------------------------------------------------- */

static bool prepare(const struct update_limits *limits, struct update_member *member,
                    const struct update_message *call)
{
    struct tdm__replay_guard guard = guard_of(member);
    struct tdm__id update = update_id('u', call->update);
    uint8_t hash = update_hash((const uint8_t(*)[UPDATE_TENSOR_BYTES])member->seen);

    if (tdm__replay_guard_check_vote(&guard, &update) != TDM_OK || member->staged != ALL_TENSORS) {
        return false;
    }
    if (limits->way != UPDATE_BY_NAME && (member->resume_log_open || hash != call->hash)) {
        return false; /* The bytes of the member differ from the bytes that were sent. */
    }
    tdm__replay_guard_vote(&guard);
    set_guard(member, &guard);
    member->resume_log_unsettled = 0;
    member->hash = hash;
    member->todo = MEMBER_VOTES;
    return true;
}

/* Exchanges shadow and weights. The member serves nothing until its report is stored. A member that
 * serves the version already only reports again. */
static bool flip(const struct update_limits *limits, struct update_member *member, uint8_t number,
                 uint8_t version)
{
    struct tdm__replay_guard guard = guard_of(member);
    struct tdm__id update = update_id('u', number);
    bool swap;

    if (tdm__replay_guard_flip(&guard, &update, &swap) != TDM_OK) {
        return false;
    }
    set_guard(member, &guard);
    member->todo = MEMBER_REPORTS;
    if (member->version == version) {
        member->todo_version = version;
        return true;
    }
    if (swap && !update_overwrites(limits)) {
        memcpy(member->image, member->shadow, sizeof(member->image));
    }
    give_shadow(member);
    member->version = 0;
    member->todo_version = version;
    return true;
}

static void drop(const struct update_limits *limits, struct update_member *member, uint8_t epoch)
{
    struct tdm__replay_guard guard = guard_of(member);
    uint64_t heard_of = guard.epoch;

    if (tdm__replay_guard_abort(&guard,
                                limits->bug == UPDATE_BUG_DROP_OF_NOTHING ? UINT8_MAX : epoch)) {
        give_shadow(member);
    }
    if (limits->bug == UPDATE_BUG_DROP_OF_NOTHING) {
        guard.epoch = heard_of;
    }
    if (limits->bug == UPDATE_BUG_BASE_AFTER_ABORT) {
        member->version = member->version_highest;
    }
    set_guard(member, &guard);
}

/* ---- join ------------------------------------------------------------------------------- */

uint8_t update_image_sum(const struct update_member *member)
{
    return update_hash((const uint8_t(*)[UPDATE_TENSOR_BYTES])member->image);
}

/* Forgets what is staged in the weights, because a peer's weights are copied over it. */
static void void_staged(struct update_member *member)
{
    struct tdm__replay_guard guard = guard_of(member);

    (void)tdm__replay_guard_abort(&guard, guard.epoch);
    set_guard(member, &guard);
    give_shadow(member);
}

/* Copies what the peer has exported, as it is now. */
static bool pull(struct update_scene *scene, struct update_member *member,
                 const struct update_message *call)
{
    const struct update_member *peer = &scene->world->members[call->peer];

    if (member->version != 0 || member->guard_phase == TDM__REPLAY_GUARD_VOTED || !peer->alive ||
        peer->incarnation != call->peer_incarnation || !peer->weights) {
        return false;
    }
    member->weights = 1;
    if (update_overwrites(scene->limits) && scene->limits->bug != UPDATE_BUG_PULL_KEEPS_LOG) {
        void_staged(member);
    }
    memcpy(member->image, peer->image, sizeof(member->image));
    if (update_image_sum(member) != call->sum) {
        return false;
    }
    member->hash = call->hash;
    member->todo = MEMBER_JOINS;
    member->todo_version = call->version;
    return true;
}

/* ---- messages --------------------------------------------------------------------------- */

void update_engine_takes(struct update_scene *scene, uint8_t index,
                         const struct update_message *message)
{
    struct update_member *member = &scene->world->members[index];
    uint8_t from = message->unheard ? 0 : message->from;
    bool well = true;

    switch ((enum update_call_kind)message->kind) {
    case UPDATE_BUCKET:
        update_reply_bucket(scene, index, from, stage(scene, member, message));
        return;
    case UPDATE_PAUSE:
        give_weights(scene->limits, member);
        break;
    case UPDATE_RESUME_WEIGHTS:
        member->weights = 1;
        break;
    case UPDATE_RESUME_KV:
        member->kv = 1;
        break;
    case UPDATE_TAKE_SHADOW:
        take_shadow(scene->limits, member);
        well = go_on(scene, index, message);
        break;
    case UPDATE_PREPARE:
        well = prepare(scene->limits, member, message);
        break;
    case UPDATE_FLIP:
        well = flip(scene->limits, member, message->update, message->version);
        break;
    case UPDATE_DROP:
        drop(scene->limits, member, message->epoch);
        break;
    case UPDATE_JOIN:
        well = pull(scene, member, message);
        break;
    case UPDATE_NO_CALL:
        break;
    }
    if (member->todo != MEMBER_RESTS) {
        member->todo_from = from; /* The reply follows when that is done. */
    } else {
        update_reply_call(scene, index, from, well);
    }
}

/* ---- requests to the store ---------------------------------------------------------------- */

static void rest(struct update_scene *scene, uint8_t index, bool well)
{
    struct update_member *member = &scene->world->members[index];
    uint8_t from = member->todo_from;

    member->todo = MEMBER_RESTS;
    member->todo_from = 0;
    member->todo_version = 0;
    update_reply_call(scene, index, from, well);
}

static tdm_status ask(struct update_scene *scene, uint8_t index)
{
    struct update_member *member = &scene->world->members[index];
    struct tdm__version_request request = {.kind = TDM__VERSION_PREPARED,
                                           .update = update_id('u', member->guard_update),
                                           .member = update_member_id(index, member->incarnation)};

    if (member->todo == MEMBER_VOTES) {
        request.hash = update_hash_value(member->hash);
    } else if (member->todo == MEMBER_REPORTS) {
        request.kind = TDM__VERSION_FLIPPED;
    } else if (member->todo == MEMBER_JOINS) {
        request.kind = TDM__VERSION_JOIN;
        request.version = member->todo_version;
        request.hash = update_hash_value(member->hash);
    } else {
        request.kind = TDM__VERSION_DECIDE;
        request.proposal = TDM__UPDATE_ABORTED;
    }
    return update_ask(scene, &request);
}

static void obey(struct update_scene *scene, uint8_t index)
{
    struct update_member *member = &scene->world->members[index];
    enum tdm__update_outcome outcome = TDM__UPDATE_UNDECIDED;
    tdm_status status = update_outcome(scene->world, member->guard_update, &outcome);

    if (status == TDM_OK && outcome == TDM__UPDATE_COMMITTED) {
        update_told(scene->world);
        (void)flip(scene->limits, member, member->guard_update, scene->world->record.id_version);
        return;
    }
    if (status == TDM_OK || scene->world->record.epoch >= member->guard_epoch ||
        scene->limits->bug == UPDATE_BUG_LOST_IS_ABORTED) {
        drop(scene->limits, member, member->guard_epoch);
    }
    rest(scene, index, true);
}

/* Refuses late buckets of updates that were over before this member joined. */
static void end_updates_before(const struct update_scene *scene, struct update_member *member)
{
    struct tdm__replay_guard guard = guard_of(member);

    if (member->todo == MEMBER_JOINS) {
        (void)tdm__replay_guard_abort(&guard, scene->world->record.epoch);
        set_guard(member, &guard);
    }
}

void update_engine_goes_on(struct update_scene *scene, uint8_t index, bool heard)
{
    struct update_member *member = &scene->world->members[index];
    tdm_status status = ask(scene, index);

    if (!heard) {
        return; /* The member asks again later. */
    }
    switch ((enum update_member_todo)member->todo) {
    case MEMBER_VOTES:
        rest(scene, index, status == TDM_OK);
        break;
    case MEMBER_ASKS:
        obey(scene, index);
        break;
    case MEMBER_REPORTS:
    case MEMBER_JOINS:
        if (status == TDM_OK) {
            member->version = member->todo_version;
            end_updates_before(scene, member);
        }
        rest(scene, index, status == TDM_OK);
        break;
    case MEMBER_RESTS:
        break;
    }
}
