/* update_simulator.c - what may come next in the world of updates, and what may never be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/update_simulator_internal.h"

#include "colocate/weights/replay_guard.h"
#include "runtime/assert.h"

#include <stdio.h>
#include <string.h>

void update_simulator_init(struct update_simulator *world, const struct update_limits *limits)
{
    struct update_scene scene = {.limits = limits, .world = world};

    memset(world, 0, sizeof(*world));
    world->updates_left = limits->updates;
    world->crashes_left = limits->crashes;
    world->losses_left = limits->losses;
    world->repeats_left = limits->repeats;
    world->tears_left = limits->tears;
    world->hurries_left = limits->hurries;
    world->wipes_left = limits->wipes;
    for (uint8_t i = 0; i < limits->members; i++) {
        world->members[i].alive = 1;
        world->members[i].incarnation = 1;
    }
    world->trainer.alive = 1;
    world->trainer.incarnation = 1;
    update_trainer_learns(world);
    update_driver_starts(&scene);
}

/* ---- answers ---------------------------------------------------------------------------- */

/* Returns true if the member has voted in the latest update. Members that joined or flipped need
 * not flip. */
static bool must_flip(const struct update_simulator *world, uint8_t index)
{
    const struct update_record *record = &world->record;

    for (unsigned i = 0; i < record->count; i++) {
        if (record->members[i].index == index &&
            record->members[i].incarnation == world->members[index].incarnation &&
            record->members[i].phase == TDM__MEMBER_PREPARED) {
            return true;
        }
    }
    return false;
}

void update_reply_call(struct update_scene *scene, uint8_t index, uint8_t from, bool well)
{
    struct update_driver *driver = &scene->world->driver;
    struct update_member *member = &scene->world->members[index];
    uint8_t bit = (uint8_t)(1U << index);

    if (!driver->alive || driver->incarnation != from || driver->todo != DRIVER_CALLS ||
        (driver->waiting & bit) == 0) {
        return;
    }
    driver->waiting &= (uint8_t)~bit;
    driver->keys[index] = member->shadow_key;
    if (well) {
        driver->fresh &=
            (uint8_t) ~(driver->call == UPDATE_FLIP || driver->call == UPDATE_JOIN ? bit : 0);
        return;
    }
    if (driver->call == UPDATE_FLIP && must_flip(scene->world, index) &&
        !update_is_behind(scene->world)) {
        update_wrong(scene, "an engine cannot serve the version that it voted for");
    }
    driver->failed |= driver->call == UPDATE_PREPARE;
    driver->unflipped |= driver->call == UPDATE_FLIP;
}

void update_reply_bucket(struct update_scene *scene, uint8_t index, uint8_t from, bool well)
{
    struct update_trainer *trainer = &scene->world->trainer;
    uint8_t bit = (uint8_t)(1U << index);

    if (trainer->alive && trainer->incarnation == from && (trainer->waiting & bit) != 0) {
        trainer->waiting &= (uint8_t)~bit;
        trainer->failed |= !well;
    }
}

/* ---- what may come next ----------------------------------------------------------------- */

struct list {
    struct update_event *events;
    size_t count;
};

static void add(struct list *list, bool possible, enum update_event_kind kind, uint8_t who)
{
    if (possible) {
        list->events[list->count++] = (struct update_event){(uint8_t)kind, who};
    }
}

static bool everybody_has_weights(const struct update_limits *limits,
                                  const struct update_simulator *world)
{
    for (uint8_t i = 0; i < limits->members; i++) {
        if (world->members[i].alive && !update_engine_serves(&world->members[i])) {
            return false;
        }
    }
    return true;
}

static bool is_gone(const struct update_member *member, uint8_t workers, uint8_t index,
                    uint8_t incarnation)
{
    return (workers >> index & 1) != 0 && (!member->alive || member->incarnation != incarnation);
}

static bool anybody_lives(const struct update_limits *limits, const struct update_simulator *world)
{
    for (uint8_t i = 0; i < limits->members; i++) {
        if (world->members[i].alive) {
            return true;
        }
    }
    return false;
}

static void driver_events(const struct update_limits *limits, const struct update_simulator *world,
                          struct list *list)
{
    const struct update_driver *driver = &world->driver;
    bool restores = driver->todo == DRIVER_RESTORES;
    bool asks = driver->todo == DRIVER_BEGINS || driver->todo == DRIVER_DECIDES || restores;

    /* Without the others it would only fail again. */
    add(list, !driver->alive && world->trainer.alive && anybody_lives(limits, world),
        UPDATE_DRIVER_STARTS, 0);
    if (!driver->alive) {
        return;
    }
    add(list, world->crashes_left > 0, UPDATE_DRIVER_ENDS, 0);
    add(list,
        driver->todo == DRIVER_RESTS &&
            (world->updates_left > 0 || !everybody_has_weights(limits, world) ||
             update_is_behind(world)),
        UPDATE_DRIVER_WANTS_UPDATE, 0);
    add(list, update_driver_can_go_on(world), UPDATE_DRIVER_GOES_ON, 0);
    add(list, asks && world->losses_left > 0, UPDATE_DRIVER_HEARS_NOTHING, 0);
    add(list, restores && world->repeats_left > 0 && world->late_restore.update == 0,
        UPDATE_RESTORE_IS_REPEATED, 0);
    add(list,
        driver->todo == DRIVER_MOVES &&
            (!world->trainer.alive || world->trainer.incarnation != driver->trainer),
        UPDATE_DRIVER_LEARNS_OF_TRAINERS_DEATH, 0);
    for (uint8_t i = 0; i < limits->members; i++) {
        add(list, is_gone(&world->members[i], driver->workers, i, driver->incarnations[i]),
            UPDATE_DRIVER_LEARNS_OF_DEATH, i);
    }
}

static void trainer_events(const struct update_limits *limits, const struct update_simulator *world,
                           struct list *list)
{
    const struct update_trainer *trainer = &world->trainer;

    add(list, !trainer->alive, UPDATE_TRAINER_STARTS, 0);
    add(list, trainer->alive && world->crashes_left > 0, UPDATE_TRAINER_ENDS, 0);
    add(list, update_trainer_can_go_on(limits, world), UPDATE_TRAINER_GOES_ON, 0);
    add(list, trainer->alive && trainer->todo == TRAINER_WRITES_ON && world->tears_left > 0,
        UPDATE_TRAINER_WRITES_WRONG, 0);
    for (uint8_t i = 0; i < limits->members && trainer->alive; i++) {
        add(list, is_gone(&world->members[i], trainer->waiting, i, trainer->work.incarnations[i]),
            UPDATE_TRAINER_LEARNS_OF_DEATH, i);
    }
}

static void member_events(const struct update_simulator *world, uint8_t index, struct list *list)
{
    const struct update_member *member = &world->members[index];
    bool rests = member->todo == MEMBER_RESTS;
    bool repeats = rests && world->repeats_left > 0 && world->late.kind == UPDATE_NO_CALL;

    add(list, !member->alive, UPDATE_MEMBER_STARTS, index);
    if (!member->alive) {
        return;
    }
    add(list, world->crashes_left > 0, UPDATE_MEMBER_ENDS, index);
    add(list, rests && member->call.kind != 0, UPDATE_MEMBER_TAKES_CALL, index);
    add(list, rests && member->bucket.kind != 0, UPDATE_MEMBER_TAKES_BUCKET, index);
    add(list, repeats && update_may_be_late(&member->call), UPDATE_CALL_IS_REPEATED, index);
    add(list, repeats && member->bucket.kind != 0, UPDATE_BUCKET_IS_REPEATED, index);
    add(list, !rests, UPDATE_MEMBER_GOES_ON, index);
    add(list, !rests && world->losses_left > 0, UPDATE_MEMBER_HEARS_NOTHING, index);
    add(list,
        rests && member->guard_phase == TDM__REPLAY_GUARD_VOTED &&
            (!world->driver.alive || world->hurries_left > 0),
        UPDATE_MEMBER_IS_LATE, index);
    add(list, rests && world->late.kind != 0 && world->late_to == index, UPDATE_LATE_MESSAGE_COMES,
        index);
}

size_t update_simulator_events(const struct update_limits *limits,
                               const struct update_simulator *world,
                               struct update_event events[UPDATE_EVENTS_MAX])
{
    struct list list = {.events = events};

    add(&list, world->wipes_left > 0 && world->record.id != 0, UPDATE_STORE_LOSES_ALL, 0);
    add(&list, world->late_restore.update != 0, UPDATE_LATE_RESTORE_COMES, 0);
    driver_events(limits, world, &list);
    trainer_events(limits, world, &list);
    for (uint8_t i = 0; i < limits->members; i++) {
        member_events(world, i, &list);
    }
    return list.count;
}

bool update_event_is_good(struct update_event event)
{
    switch ((enum update_event_kind)event.kind) {
    case UPDATE_DRIVER_HEARS_NOTHING:
    case UPDATE_TRAINER_WRITES_WRONG:
    case UPDATE_MEMBER_HEARS_NOTHING:
    case UPDATE_CALL_IS_REPEATED:
    case UPDATE_BUCKET_IS_REPEATED:
    case UPDATE_DRIVER_ENDS:
    case UPDATE_TRAINER_ENDS:
    case UPDATE_MEMBER_ENDS:
    case UPDATE_STORE_LOSES_ALL:
    case UPDATE_RESTORE_IS_REPEATED:
        return false;
    case UPDATE_DRIVER_WANTS_UPDATE:
    case UPDATE_DRIVER_GOES_ON:
    case UPDATE_DRIVER_LEARNS_OF_DEATH:
    case UPDATE_DRIVER_LEARNS_OF_TRAINERS_DEATH:
    case UPDATE_TRAINER_GOES_ON:
    case UPDATE_TRAINER_LEARNS_OF_DEATH:
    case UPDATE_MEMBER_TAKES_CALL:
    case UPDATE_MEMBER_TAKES_BUCKET:
    case UPDATE_MEMBER_GOES_ON:
    case UPDATE_MEMBER_IS_LATE:
    case UPDATE_LATE_MESSAGE_COMES:
    case UPDATE_DRIVER_STARTS:
    case UPDATE_TRAINER_STARTS:
    case UPDATE_MEMBER_STARTS:
    case UPDATE_LATE_RESTORE_COMES:
    case UPDATE_EVENTS:
        break;
    }
    return true;
}

/* ---- it happens ------------------------------------------------------------------------- */

static void take(struct update_scene *scene, uint8_t who, struct update_message *message,
                 bool again)
{
    struct update_simulator *world = scene->world;
    struct update_message taken = *message;

    memset(message, 0, sizeof(*message));
    if (again) {
        world->repeats_left--;
        world->late = taken;
        world->late_to = who;
        world->late_incarnation = world->members[who].incarnation;
    }
    update_engine_takes(scene, who, &taken);
}

static void take_late(struct update_scene *scene, uint8_t who)
{
    struct update_simulator *world = scene->world;
    struct update_message taken = world->late;

    taken.unheard = 1;

    memset(&world->late, 0, sizeof(world->late));
    world->late_to = 0;
    world->late_incarnation = 0;
    update_engine_takes(scene, who, &taken);
}

static void end_driver(struct update_simulator *world)
{
    world->crashes_left--;
    world->driver = (struct update_driver){.incarnation = world->driver.incarnation};
}

static void end_trainer(struct update_simulator *world)
{
    world->crashes_left--;
    world->trainer = (struct update_trainer){.incarnation = world->trainer.incarnation};
}

static void end_member(struct update_simulator *world, uint8_t who)
{
    world->crashes_left--;
    world->members[who] = (struct update_member){.incarnation = world->members[who].incarnation};
}

/* Starts a new incarnation of a member. A call is sent to one incarnation, so calls in flight to
 * the previous incarnation are lost. */
static void start_member(struct update_simulator *world, uint8_t who)
{
    world->members[who].alive = 1;
    world->members[who].incarnation++;
    if (world->late_to == who) {
        memset(&world->late, 0, sizeof(world->late));
        world->late_to = 0;
        world->late_incarnation = 0;
    }
}

static void happen_to_source(struct update_scene *scene, struct update_event event)
{
    struct update_simulator *world = scene->world;

    switch (event.kind) {
    case UPDATE_DRIVER_WANTS_UPDATE:
        world->updates_left = (uint8_t)(world->updates_left - (world->updates_left > 0));
        update_driver_wants_update(scene);
        break;
    case UPDATE_DRIVER_HEARS_NOTHING:
        world->losses_left--;
        update_driver_goes_on(scene, false, false);
        break;
    case UPDATE_DRIVER_GOES_ON:
        update_driver_goes_on(scene, true, false);
        break;
    case UPDATE_RESTORE_IS_REPEATED:
        world->repeats_left--;
        update_driver_goes_on(scene, true, true);
        break;
    case UPDATE_LATE_RESTORE_COMES:
        update_late_restore_comes(scene);
        break;
    case UPDATE_STORE_LOSES_ALL:
        world->wipes_left--;
        memset(&world->record, 0, sizeof(world->record));
        break;
    case UPDATE_DRIVER_LEARNS_OF_DEATH:
        update_driver_learns(scene, event.member);
        break;
    case UPDATE_DRIVER_LEARNS_OF_TRAINERS_DEATH:
        update_driver_learns_of_trainer(scene);
        break;
    case UPDATE_TRAINER_WRITES_WRONG:
        world->tears_left--;
        update_trainer_goes_on(scene, true);
        break;
    case UPDATE_TRAINER_GOES_ON:
        update_trainer_goes_on(scene, false);
        break;
    case UPDATE_TRAINER_LEARNS_OF_DEATH:
        world->trainer.waiting &= (uint8_t) ~(1U << event.member);
        world->trainer.failed = 1;
        break;
    case UPDATE_DRIVER_ENDS:
        end_driver(world);
        break;
    case UPDATE_DRIVER_STARTS:
        update_driver_starts(scene);
        break;
    case UPDATE_TRAINER_ENDS:
        end_trainer(world);
        break;
    case UPDATE_TRAINER_STARTS:
        world->trainer.alive = 1;
        world->trainer.incarnation++;
        update_trainer_learns(world);
        break;
    default:
        TDM_ASSERT(false);
    }
}

static void happen_to_member(struct update_scene *scene, struct update_event event)
{
    struct update_simulator *world = scene->world;
    struct update_member *member = &world->members[event.member];

    switch (event.kind) {
    case UPDATE_CALL_IS_REPEATED:
    case UPDATE_MEMBER_TAKES_CALL:
        take(scene, event.member, &member->call, event.kind == UPDATE_CALL_IS_REPEATED);
        break;
    case UPDATE_BUCKET_IS_REPEATED:
    case UPDATE_MEMBER_TAKES_BUCKET:
        take(scene, event.member, &member->bucket, event.kind == UPDATE_BUCKET_IS_REPEATED);
        break;
    case UPDATE_LATE_MESSAGE_COMES:
        take_late(scene, event.member);
        break;
    case UPDATE_MEMBER_HEARS_NOTHING:
        world->losses_left--;
        update_engine_goes_on(scene, event.member, false);
        break;
    case UPDATE_MEMBER_GOES_ON:
        update_engine_goes_on(scene, event.member, true);
        break;
    case UPDATE_MEMBER_IS_LATE:
        world->hurries_left = (uint8_t)(world->hurries_left - (world->driver.alive != 0));
        member->todo = MEMBER_ASKS;
        break;
    case UPDATE_MEMBER_ENDS:
        end_member(world, event.member);
        break;
    case UPDATE_MEMBER_STARTS:
        start_member(world, event.member);
        break;
    default:
        happen_to_source(scene, event);
    }
}

/* ---- what may never be ------------------------------------------------------------------ */

static void check_member(struct update_scene *scene, uint8_t index, uint8_t *served)
{
    struct update_simulator *world = scene->world;
    struct update_member *member = &world->members[index];

    if (!update_engine_serves(member)) {
        return;
    }
    if (*served != 0 && *served != member->version) {
        update_wrong(scene, "two versions are served");
    }
    *served = member->version;
    if (world->hash_of[member->version] !=
        update_hash((const uint8_t(*)[UPDATE_TENSOR_BYTES])member->image)) {
        update_wrong(scene, "a version is served whose bytes are not those committed");
    }
    if (member->version < member->version_highest) {
        update_wrong(scene, "an engine goes back to an older version");
    }
    member->version_highest = member->version;
}

/* The driver sends requests to the engines that it believes to be alive; requests wait while an
 * engine is busy. */
static void check_generation(struct update_scene *scene, uint8_t index)
{
    const struct update_simulator *world = scene->world;
    const struct update_driver *driver = &world->driver;
    const struct update_member *member = &world->members[index];

    if (((driver->workers & ~driver->fresh) >> index & 1) == 0 || !member->alive ||
        member->incarnation != driver->incarnations[index] || member->todo != MEMBER_RESTS) {
        return;
    }
    if (!member->weights || !member->kv) {
        update_wrong(scene, "a request meets weights or a KV cache that is away");
    } else if (!update_engine_serves(member) || member->version != update_committed(world)) {
        update_wrong(scene, "a request meets an engine that does not serve the version");
    }
}

static void check_committed(struct update_scene *scene)
{
    const struct update_record *record = &scene->world->record;
    uint8_t bytes[UPDATE_TENSORS][UPDATE_TENSOR_BYTES];

    if (record->version == 0) {
        return;
    }
    for (unsigned i = 0; i < UPDATE_TENSORS; i++) {
        update_fill(scene->world->weights_of[record->version], i, bytes[i]);
    }
    if (record->hash != update_hash((const uint8_t(*)[UPDATE_TENSOR_BYTES])bytes)) {
        update_wrong(scene, "a version is committed whose bytes are not the trainer's");
    }
}

const char *update_simulator_happen(const struct update_limits *limits,
                                    struct update_simulator *world, struct update_event event)
{
    struct update_scene scene = {.limits = limits, .world = world};
    uint8_t served = 0;

    if (world->ids == UPDATE_IDS_MAX - 1) {
        return "updates are begun without end";
    }
    happen_to_member(&scene, event);
    check_committed(&scene);
    for (uint8_t i = 0; i < limits->members; i++) {
        check_member(&scene, i, &served);
        if (update_driver_generates(limits, world)) {
            check_generation(&scene, i);
        }
    }
    return scene.wrong;
}

bool update_simulator_serves(const struct update_simulator *world)
{
    uint8_t serving = 0;

    for (unsigned i = 0; i < UPDATE_MEMBERS_MAX; i++) {
        const struct update_member *member = &world->members[i];

        if (member->alive &&
            (!update_engine_serves(member) || !member->kv ||
             member->version != update_committed(world) || (world->driver.workers >> i & 1) == 0)) {
            return false;
        }
        serving = (uint8_t)(serving + member->alive);
    }
    return serving > 0 && world->driver.alive && world->driver.todo == DRIVER_RESTS &&
           !update_is_behind(world);
}

/* ---- a history, told -------------------------------------------------------------------- */

static const char *const call_names[] = {
    "nothing", "pause", "resume weights", "acquire_shadow", "prepare",
    "flip",    "drop",  "resume KV",      "join",           "stage",
};

static const char *const event_names[UPDATE_EVENTS] = {
    [UPDATE_DRIVER_WANTS_UPDATE] = "the driver wants an update",
    [UPDATE_DRIVER_GOES_ON] = "the driver goes on",
    [UPDATE_DRIVER_HEARS_NOTHING] = "the driver asks the store, and the answer is lost",
    [UPDATE_DRIVER_LEARNS_OF_DEATH] = "the driver learns of the death",
    [UPDATE_DRIVER_LEARNS_OF_TRAINERS_DEATH] = "the driver learns of the trainer's death",
    [UPDATE_TRAINER_GOES_ON] = "the trainer goes on",
    [UPDATE_TRAINER_WRITES_WRONG] = "the trainer writes a wrong byte",
    [UPDATE_TRAINER_LEARNS_OF_DEATH] = "the trainer learns of the death",
    [UPDATE_MEMBER_TAKES_CALL] = "takes the call",
    [UPDATE_MEMBER_TAKES_BUCKET] = "takes the bucket",
    [UPDATE_MEMBER_GOES_ON] = "asks the store",
    [UPDATE_MEMBER_HEARS_NOTHING] = "asks the store, and the answer is lost",
    [UPDATE_MEMBER_IS_LATE] = "has waited long enough for the outcome",
    [UPDATE_CALL_IS_REPEATED] = "takes the call, which will come once more:",
    [UPDATE_BUCKET_IS_REPEATED] = "takes the bucket, which will come once more",
    [UPDATE_LATE_MESSAGE_COMES] = "gets a message once more, or late:",
    [UPDATE_DRIVER_ENDS] = "the driver ends",
    [UPDATE_DRIVER_STARTS] = "a new driver starts",
    [UPDATE_TRAINER_ENDS] = "the trainer ends",
    [UPDATE_TRAINER_STARTS] = "a new trainer starts",
    [UPDATE_MEMBER_ENDS] = "ends",
    [UPDATE_MEMBER_STARTS] = "starts anew",
    [UPDATE_STORE_LOSES_ALL] = "the store loses all that it has",
    [UPDATE_RESTORE_IS_REPEATED] = "the driver restores the record, and that will come once more",
    [UPDATE_LATE_RESTORE_COMES] = "a restore comes once more, or late",
};

/* What the driver or the trainer does next. */
static const char *doing(const struct update_simulator *before, enum update_event_kind kind)
{
    static const char *const driver[] = {"", "", ": begin", "", ": decide", ": restore"};
    static const char *const trainer[] = {": takes its order", ": writes half a bucket",
                                          ": writes the rest", ": tells the engines",
                                          ": all have answered"};

    if (kind == UPDATE_DRIVER_GOES_ON || kind == UPDATE_DRIVER_HEARS_NOTHING) {
        return before->driver.todo == DRIVER_CALLS ? ": all have answered"
                                                   : driver[before->driver.todo];
    }
    return kind == UPDATE_TRAINER_GOES_ON ? trainer[before->trainer.todo] : "";
}

void update_event_print(const struct update_simulator *before, struct update_event event,
                        const struct update_simulator *after)
{
    const struct update_member *member = &before->members[event.member];
    bool of_engine = event.kind >= UPDATE_MEMBER_TAKES_CALL && event.kind != UPDATE_DRIVER_ENDS &&
                     event.kind != UPDATE_DRIVER_STARTS && event.kind != UPDATE_TRAINER_ENDS &&
                     event.kind != UPDATE_TRAINER_STARTS && event.kind < UPDATE_STORE_LOSES_ALL;
    const char *call = "";

    if (event.kind == UPDATE_MEMBER_TAKES_CALL || event.kind == UPDATE_CALL_IS_REPEATED) {
        call = call_names[member->call.kind];
    } else if (event.kind == UPDATE_LATE_MESSAGE_COMES) {
        call = call_names[before->late.kind];
    }
    printf("    ");
    if (of_engine) {
        printf("engine %d ", event.member);
    }
    printf("%s%s%s%s", event_names[event.kind], doing(before, event.kind), *call == '\0' ? "" : " ",
           call);
    if (event.kind == UPDATE_DRIVER_LEARNS_OF_DEATH ||
        event.kind == UPDATE_TRAINER_LEARNS_OF_DEATH) {
        printf(" of engine %d", event.member);
    }
    printf("; committed %d, served", after->record.version);
    for (unsigned i = 0; i < UPDATE_MEMBERS_MAX && after->members[i].incarnation > 0; i++) {
        printf(" %d", update_engine_serves(&after->members[i]) ? after->members[i].version : 0);
    }
    printf("\n");
}
