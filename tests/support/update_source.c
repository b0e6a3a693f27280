/* update_source.c - driver and trainer of the update simulator. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The driver and the trainer as small state machines, each step of which is one event of the
 * exploration. Decisions of the driver come from phase.c and source_state.c. The steps carry the
 * names of docs/protocols/commit.md. The file update_store.c executes the driver's requests;
 * update_restore.c handles a lost record. */
#include "tests/support/update_simulator_internal.h"

#include "colocate/phase.h"

#include <string.h>

static void act(struct update_scene *scene, enum tdm__phase_action action);

/* ---- the phase machine ------------------------------------------------------------------ */

static struct tdm__phase phase_of(const struct update_limits *limits,
                                  const struct update_driver *driver)
{
    return (struct tdm__phase){.phase = (enum tdm__phase_name)driver->phase,
                               .open = (enum tdm__phase_action)driver->open,
                               .resident = driver->resident,
                               .engines_alive = driver->engines_alive,
                               .engines_needed = 1,
                               .update_retries_max = 1,
                               .updates_overwrite = update_overwrites(limits) &&
                                                    limits->bug != UPDATE_BUG_GOES_ON_WITHOUT_BASE,
                               .update_retries = driver->retries,
                               .committed_version = driver->committed,
                               .serving_version = driver->serving};
}

static void set_phase(struct update_driver *driver, const struct tdm__phase *phase)
{
    driver->phase = (uint8_t)phase->phase;
    driver->open = (uint8_t)phase->open;
    driver->resident = (uint8_t)phase->resident;
    driver->engines_alive = (uint8_t)phase->engines_alive;
    driver->retries = (uint8_t)phase->update_retries;
    driver->committed = (uint8_t)phase->committed_version;
    driver->serving = (uint8_t)phase->serving_version;
}

static void feed_event(struct update_scene *scene, const struct tdm__phase_event *event)
{
    struct update_driver *driver = &scene->world->driver;
    struct tdm__phase phase = phase_of(scene->limits, driver);
    enum tdm__phase_action action = TDM__PHASE_DO_NOTHING;

    if (tdm__phase_handle_event(&phase, event, &action) != TDM_OK) {
        update_wrong(scene, "an event does not belong in its phase");
        return;
    }
    set_phase(driver, &phase);
    act(scene, action);
}

static void feed(struct update_scene *scene, enum tdm__phase_event_kind kind)
{
    feed_event(scene, &(struct tdm__phase_event){.kind = kind,
                                                 .version = scene->world->driver.version,
                                                 .participant = TDM__PHASE_ENGINE});
}

bool update_driver_generates(const struct update_limits *limits,
                             const struct update_simulator *world)
{
    const struct tdm__phase phase = phase_of(limits, &world->driver);

    if (!world->driver.alive) {
        return false;
    }
    if (limits->bug == UPDATE_BUG_FORWARD_WITHOUT_KV) {
        return (phase.resident & TDM__PHASE_HAS_WEIGHTS) != 0 && phase.serving_version != 0 &&
               phase.phase != TDM__PHASE_UPDATE && phase.phase != TDM__PHASE_OFFLOAD_ENGINE;
    }
    return tdm__phase_allows_generate(&phase);
}

/* ---- calls ------------------------------------------------------------------------------ */

/* Keeps a call of an ended driver, which may still be delivered. */
static void deliver_later(struct update_simulator *world, uint8_t index)
{
    struct update_member *member = &world->members[index];

    if (update_may_be_late(&member->call) && world->late.kind == UPDATE_NO_CALL) {
        world->late = member->call;
        world->late_to = index;
        world->late_incarnation = member->incarnation;
    }
}

static void call_some(struct update_scene *scene, uint8_t whom,
                      const struct update_message *message)
{
    struct update_simulator *world = scene->world;
    struct update_driver *driver = &world->driver;

    driver->todo = DRIVER_CALLS;
    driver->call = message->kind;
    driver->waiting = whom;
    for (uint8_t i = 0; i < scene->limits->members; i++) {
        struct update_member *member = &world->members[i];

        if ((whom >> i & 1) != 0 && member->alive &&
            member->incarnation == driver->incarnations[i]) {
            deliver_later(world, i);
            member->call = *message;
        }
    }
}

/* Sends a call to all of its engines at once. */
static void call_engines(struct update_scene *scene, enum update_call_kind kind)
{
    const struct update_driver *driver = &scene->world->driver;

    call_some(scene, driver->workers,
              &(struct update_message){.kind = (uint8_t)kind,
                                       .from = driver->incarnation,
                                       .update = driver->update,
                                       .epoch = driver->epoch,
                                       .version = driver->version,
                                       .hash = driver->hash});
}

/* Lists the members that live now. */
static void gather_workers(struct update_scene *scene)
{
    struct update_driver *driver = &scene->world->driver;

    driver->workers = 0;
    driver->engines_alive = 0;
    for (uint8_t i = 0; i < scene->limits->members; i++) {
        const struct update_member *member = &scene->world->members[i];

        if (driver->incarnations[i] != member->incarnation) {
            driver->incarnations[i] = member->incarnation;
            driver->fresh |= (uint8_t)(1U << i);
        }
        driver->workers |= (uint8_t)(member->alive << i);
        driver->engines_alive = (uint8_t)(driver->engines_alive + member->alive);
    }
}

/* Adds the engines that were restarted: they live and have no weights. */
static void welcome(struct update_scene *scene)
{
    struct update_driver *driver = &scene->world->driver;

    for (uint8_t i = 0; i < scene->limits->members; i++) {
        const struct update_member *member = &scene->world->members[i];
        uint8_t bit = (uint8_t)(1U << i);

        if (member->alive && (driver->workers & bit) == 0) {
            driver->incarnations[i] = member->incarnation;
            driver->workers |= bit;
            driver->fresh |= bit;
            driver->engines_alive++;
        }
    }
}

/* Sends the weights that a serving engine exports to all engines without weights. Returns false if
 * no engine serves. */
static bool let_join(struct update_scene *scene)
{
    struct update_simulator *world = scene->world;
    struct update_driver *driver = &world->driver;
    uint8_t fresh = driver->fresh & driver->workers;

    for (uint8_t i = 0; i < scene->limits->members && fresh != 0; i++) {
        const struct update_member *peer = &world->members[i];

        if (((driver->workers & ~driver->fresh) >> i & 1) != 0 && update_engine_serves(peer) &&
            peer->incarnation == driver->incarnations[i]) {
            call_some(scene, fresh,
                      &(struct update_message){.kind = UPDATE_JOIN,
                                               .from = driver->incarnation,
                                               .version = peer->version,
                                               .hash = world->hash_of[peer->version],
                                               .peer = i,
                                               .peer_incarnation = peer->incarnation,
                                               .sum = update_image_sum(peer)});
            return true;
        }
    }
    return false;
}

uint32_t update_list_dead(const struct update_scene *scene, struct tdm__member *dead)
{
    const struct update_driver *driver = &scene->world->driver;
    uint32_t count = 0;

    for (uint8_t i = 0; i < scene->limits->members; i++) {
        uint8_t ended = (uint8_t)(driver->incarnations[i] - (driver->workers >> i & 1));

        for (uint8_t k = 1; k <= ended; k++) {
            dead[count++] = update_member_id(i, k);
        }
    }
    return count;
}

void update_driver_gives_up(struct update_driver *driver)
{
    uint8_t incarnation = driver->incarnation;

    memset(driver, 0, sizeof(*driver));
    driver->incarnation = incarnation;
}

static void act(struct update_scene *scene, enum tdm__phase_action action)
{
    struct update_driver *driver = &scene->world->driver;

    switch (action) {
    case TDM__PHASE_DO_NOTHING:
        if (driver->phase == TDM__PHASE_ROLLOUT) {
            driver->todo = DRIVER_RESTS;
            driver->call = UPDATE_NO_CALL;
        }
        break;
    case TDM__PHASE_DO_PAUSE_ENGINES:
        call_engines(scene, UPDATE_PAUSE);
        break;
    case TDM__PHASE_DO_RESUME_TRAINER: /* The simulator does not model the trainer's turn. */
        feed(scene, TDM__PHASE_TRAINER_RESUMED);
        break;
    case TDM__PHASE_DO_TRAIN:
        update_trainer_learns(scene->world);
        feed(scene, TDM__PHASE_STEP_DONE);
        break;
    case TDM__PHASE_DO_PAUSE_TRAINER:
        feed(scene, TDM__PHASE_TRAINER_PAUSED);
        break;
    case TDM__PHASE_DO_RESUME_WEIGHTS:
        call_engines(scene, UPDATE_RESUME_WEIGHTS);
        break;
    case TDM__PHASE_DO_UPDATE:
        driver->todo = DRIVER_BEGINS;
        driver->asked = 0;
        driver->failed = 0;
        break;
    case TDM__PHASE_DO_FLUSH:
        call_engines(scene, driver->failed ? UPDATE_DROP : UPDATE_FLIP);
        break;
    case TDM__PHASE_DO_RESUME_KV:
        welcome(scene);
        if (let_join(scene)) {
            break;
        }
        call_engines(scene, UPDATE_RESUME_KV);
        if (scene->limits->bug == UPDATE_BUG_AWAKE_WHEN_ASKED) {
            driver->waiting = 0;
            feed(scene, TDM__PHASE_KV_RESUMED);
        }
        break;
    case TDM__PHASE_DO_GENERATE:
        break;
    case TDM__PHASE_DO_FAIL:
        update_driver_gives_up(driver);
        break;
    }
}

/* ---- the steps of an update ------------------------------------------------------------- */

static void order_trainer(struct update_scene *scene)
{
    struct update_driver *driver = &scene->world->driver;
    struct update_trainer *trainer = &scene->world->trainer;

    driver->todo = DRIVER_MOVES;
    driver->trainer = trainer->incarnation;
    if (!trainer->alive) {
        return;
    }
    trainer->order = (struct update_order){.here = 1,
                                           .from = driver->incarnation,
                                           .update = driver->update,
                                           .epoch = driver->epoch,
                                           .version = driver->version,
                                           .workers = driver->workers};
    memcpy(trainer->order.incarnations, driver->incarnations, sizeof(driver->incarnations));
    memcpy(trainer->order.keys, driver->keys, sizeof(driver->keys));
    memcpy(trainer->order.resume_logs, driver->resume_logs, sizeof(driver->resume_logs));
    memcpy(trainer->order.resume_log_sums, driver->resume_log_sums,
           sizeof(driver->resume_log_sums));
}

static void ask_begin(struct update_scene *scene, bool heard)
{
    struct update_simulator *world = scene->world;
    struct update_driver *driver = &world->driver;
    struct tdm__member members[UPDATE_MEMBERS_MAX];
    struct tdm__member dead[64];
    struct tdm__version_request request = {.kind = TDM__VERSION_BEGIN,
                                           .base = driver->committed,
                                           .version_floor = driver->floor,
                                           .epoch = driver->epoch,
                                           .overwrites = update_overwrites(scene->limits),
                                           .source = {update_id('s', 1), driver->incarnation},
                                           .members = members,
                                           .dead = dead,
                                           .dead_count = update_list_dead(scene, dead)};
    tdm_status status;

    if (!driver->asked) {
        driver->update = ++world->ids;
        driver->asked = 1;
    }
    request.update = update_id('u', driver->update);
    for (uint8_t i = 0; i < scene->limits->members; i++) {
        if ((driver->workers >> i & 1) != 0) {
            members[request.members_count++] = update_member_id(i, driver->incarnations[i]);
        }
    }
    if (scene->limits->bug == UPDATE_BUG_BEGINS_ANEW) {
        request.epoch = 0;
    }
    status = update_ask(scene, &request);
    if (!heard) {
        return;
    }
    if (status == TDM_E_CONFLICT && update_is_behind(world)) {
        update_driver_meets_loss(scene, DRIVER_BEGINS);
        return;
    }
    driver->asked = 0;
    if (status != TDM_OK) {
        feed(scene, TDM__PHASE_ACTION_FAILED);
        return;
    }
    driver->epoch = world->record.epoch;
    driver->version = world->record.id_version;
    update_heard_begin(world);
    if (scene->limits->bug == UPDATE_BUG_UPDATE_ASLEEP) {
        order_trainer(scene);
    } else {
        call_engines(scene, UPDATE_TAKE_SHADOW);
    }
}

static void outcome_heard(struct update_scene *scene, bool committed)
{
    struct update_driver *driver = &scene->world->driver;

    driver->failed = !committed;
    driver->unflipped = 0;
    update_told(scene->world);
    if (driver->takes_over) {
        driver->committed = scene->world->record.version;
        call_engines(scene, committed ? UPDATE_FLIP : UPDATE_DROP);
    } else {
        feed(scene, committed ? TDM__PHASE_UPDATE_COMMITTED : TDM__PHASE_UPDATE_ABORTED);
    }
}

static void ask_decide(struct update_scene *scene, bool heard)
{
    struct update_driver *driver = &scene->world->driver;
    struct tdm__member dead[64];
    enum tdm__update_outcome outcome = TDM__UPDATE_UNDECIDED;
    struct tdm__version_request request = {.kind = TDM__VERSION_DECIDE,
                                           .update = update_id('u', driver->update),
                                           .proposal = driver->failed ? TDM__UPDATE_ABORTED
                                                                      : TDM__UPDATE_COMMITTED,
                                           .dead = dead,
                                           .dead_count = update_list_dead(scene, dead)};
    tdm_status status = update_ask(scene, &request);

    driver->asked_commit |= !driver->failed;
    if (!heard) {
        return;
    }
    if (status == TDM_E_NOT_FOUND && update_is_behind(scene->world)) {
        update_driver_meets_loss(scene, DRIVER_DECIDES);
        return;
    }
    if (status == TDM_E_STATE && !driver->failed) {
        driver->failed = 1; /* A vote is still missing. */
        return;
    }
    if (status != TDM_OK || update_outcome(scene->world, driver->update, &outcome) != TDM_OK) {
        update_wrong(scene, "an update cannot be decided");
        return;
    }
    update_heard_outcome(scene->world);
    outcome_heard(scene, outcome == TDM__UPDATE_COMMITTED);
}

/* Handles the end of the flip calls. Members that did not flip may have been refused because the
 * record is lost. */
static void flips_replied_to(struct update_scene *scene)
{
    struct update_driver *driver = &scene->world->driver;

    if (driver->unflipped && update_is_behind(scene->world)) {
        update_driver_meets_loss(scene, DRIVER_CALLS);
        return;
    }
    if (driver->unflipped && !driver->takes_over) {
        update_job_ends(scene); /* The record was lost and then restored by another source. */
        return;
    }
    driver->heard.settled = driver->heard.outcome == TDM__UPDATE_COMMITTED;
    if (driver->takes_over) {
        call_engines(scene, UPDATE_PAUSE);
    } else {
        feed(scene, TDM__PHASE_CACHES_FLUSHED);
    }
}

/* Continues after all engines have replied to the call or died. */
static void calls_replied_to(struct update_scene *scene)
{
    struct update_driver *driver = &scene->world->driver;

    switch ((enum update_call_kind)driver->call) {
    case UPDATE_PAUSE:
        feed(scene, driver->takes_over ? TDM__PHASE_UPDATE_WANTED : TDM__PHASE_ENGINES_PAUSED);
        driver->takes_over = 0;
        break;
    case UPDATE_RESUME_WEIGHTS:
        feed(scene, TDM__PHASE_WEIGHTS_RESUMED);
        break;
    case UPDATE_TAKE_SHADOW:
        if (driver->failed) {
            driver->todo = DRIVER_DECIDES;
        } else {
            order_trainer(scene);
        }
        break;
    case UPDATE_PREPARE:
        driver->todo = DRIVER_DECIDES;
        break;
    case UPDATE_FLIP:
    case UPDATE_DROP:
        flips_replied_to(scene);
        break;
    case UPDATE_JOIN:
        call_engines(scene, UPDATE_RESUME_KV);
        break;
    case UPDATE_RESUME_KV:
        feed(scene, TDM__PHASE_KV_RESUMED);
        break;
    case UPDATE_NO_CALL:
    case UPDATE_BUCKET:
        break;
    }
}

bool update_driver_can_go_on(const struct update_simulator *world)
{
    const struct update_driver *driver = &world->driver;

    return driver->alive && (driver->todo == DRIVER_BEGINS || driver->todo == DRIVER_DECIDES ||
                             driver->todo == DRIVER_RESTORES ||
                             (driver->todo == DRIVER_CALLS && driver->waiting == 0));
}

static void restored(struct update_scene *scene)
{
    struct update_driver *driver = &scene->world->driver;

    driver->todo = driver->after;
    driver->after = 0;
    if (driver->todo == DRIVER_CALLS) {
        driver->unflipped = 0;
        call_engines(scene, UPDATE_FLIP);
    }
}

void update_driver_goes_on(struct update_scene *scene, bool heard, bool repeated)
{
    if (scene->world->driver.todo == DRIVER_RESTORES) {
        if (update_driver_restores(scene, heard, repeated)) {
            restored(scene);
        }
    } else if (scene->world->driver.todo == DRIVER_BEGINS) {
        ask_begin(scene, heard);
    } else if (scene->world->driver.todo == DRIVER_DECIDES) {
        ask_decide(scene, heard);
    } else {
        calls_replied_to(scene);
    }
}

void update_driver_wants_update(struct update_scene *scene)
{
    gather_workers(scene);
    feed(scene, TDM__PHASE_ROLLOUT_DONE);
}

/* ---- a new driver ----------------------------------------------------------------------- */

/* Starts a driver: it completes the last update, pauses all engines, and begins its own update. */
void update_driver_starts(struct update_scene *scene)
{
    struct update_simulator *world = scene->world;
    struct update_driver *driver = &world->driver;

    if (world->record.id == 0 && update_ends_old_members(scene)) {
        return; /* The next driver finds only its own members. */
    }
    if (world->record.id == 0) {
        /* This run has versions that are higher than the versions of other runs. */
        world->version_told = 0;
    }
    if (scene->limits->bug == UPDATE_BUG_NUMBER_IN_MEMORY) {
        world->record = (struct update_record){.epoch = world->record.epoch};
    }
    driver->alive = 1;
    driver->incarnation++;
    gather_workers(scene);
    driver->committed = world->record.version;
    driver->floor = scene->limits->wipes > 0 ? world->version_highest : 0;
    update_told(world);
    driver->takes_over = 1;
    driver->update = world->record.id;
    driver->epoch = world->record.epoch;
    driver->version = world->record.id_version;
    if (world->record.id == 0) {
        call_engines(scene, UPDATE_PAUSE);
    } else {
        driver->todo = DRIVER_DECIDES;
    }
}

/* ---- deaths that the driver learns of --------------------------------------------------- */

void update_driver_learns(struct update_scene *scene, uint8_t index)
{
    struct update_driver *driver = &scene->world->driver;
    uint8_t others = (uint8_t) ~(1U << index);

    driver->workers &= others;
    driver->waiting &= others;
    driver->failed |= driver->todo == DRIVER_MOVES ||
                      (driver->todo == DRIVER_CALLS &&
                       (driver->call == UPDATE_TAKE_SHADOW || driver->call == UPDATE_PREPARE));
    if ((driver->workers & ~driver->fresh) == 0) {
        driver->serving = 0; /* No engine is left that could continue with the previous version. */
    }
    feed(scene, TDM__PHASE_PARTICIPANT_DIED);
}

void update_driver_learns_of_trainer(struct update_scene *scene)
{
    feed_event(scene, &(struct tdm__phase_event){.kind = TDM__PHASE_PARTICIPANT_DIED,
                                                 .participant = TDM__PHASE_TRAINER});
}

/* ---- the trainer ------------------------------------------------------------------------ */

static bool has_waited(const struct update_limits *limits, const struct update_trainer *trainer)
{
    return trainer->waiting == 0 || (limits->bug == UPDATE_BUG_WAITS_FOR_ONE_ENGINE &&
                                     trainer->waiting != trainer->work.workers);
}

bool update_trainer_can_go_on(const struct update_limits *limits,
                              const struct update_simulator *world)
{
    const struct update_trainer *trainer = &world->trainer;

    if (trainer->todo == TRAINER_TELLS || trainer->todo == TRAINER_WAITS) {
        return trainer->alive && has_waited(limits, trainer);
    }
    return trainer->alive && (trainer->todo != TRAINER_RESTS || trainer->order.here != 0);
}

/* Returns true if the trainer writes a bucket before the engines have read the previous one. */
static bool writes_ahead(const struct update_scene *scene)
{
    return scene->limits->way == UPDATE_BY_COPY || scene->limits->way == UPDATE_BY_BUCKET;
}

static void finish(struct update_scene *scene)
{
    struct update_trainer *trainer = &scene->world->trainer;
    struct update_driver *driver = &scene->world->driver;
    uint8_t all[UPDATE_TENSORS][UPDATE_TENSOR_BYTES];

    if (driver->alive && driver->incarnation == trainer->work.from &&
        driver->todo == DRIVER_MOVES) {
        for (unsigned i = 0; i < UPDATE_TENSORS; i++) {
            update_fill(trainer->weights, i, all[i]);
        }
        driver->hash = update_hash((const uint8_t(*)[UPDATE_TENSOR_BYTES])all);
        if (trainer->failed || driver->failed) {
            driver->failed = 1;
            driver->todo = DRIVER_DECIDES;
        } else {
            call_engines(scene, UPDATE_PREPARE);
        }
    }
    memset(&trainer->work, 0, sizeof(trainer->work));
    trainer->todo = TRAINER_RESTS;
    trainer->tensor = 0;
    trainer->failed = 0;
}

static bool reaches(const struct update_trainer *trainer, const struct update_member *member,
                    uint8_t index)
{
    return (trainer->work.workers >> index & 1) != 0 && member->alive &&
           member->incarnation == trainer->work.incarnations[index];
}

/* Writes one byte where the engines will read it. */
static void write_byte(struct update_scene *scene, uint8_t place, uint8_t byte)
{
    struct update_trainer *trainer = &scene->world->trainer;

    if (scene->limits->way != UPDATE_IN_PLACE) {
        trainer->bucket[trainer->tensor % UPDATE_HALVES][place] = byte;
        return;
    }
    for (uint8_t i = 0; i < scene->limits->members; i++) {
        struct update_member *member = &scene->world->members[i];

        if (!reaches(trainer, member, i) || trainer->work.resume_logs[i] > trainer->tensor) {
            continue;
        }
        if (scene->limits->bug == UPDATE_BUG_UPDATE_ASLEEP && !member->shadow_here) {
            update_wrong(scene, "bytes are written to memory that is away");
        } else if (member->shadow_here && member->shadow_key == trainer->work.keys[i]) {
            member->shadow[trainer->tensor][place] = byte;
            /* Otherwise it writes into memory that has no owner any more but is kept by this
             * mapping. */
        }
    }
}

/* Returns one bit per engine that does not have the current bucket. */
static uint8_t wanting(const struct update_scene *scene)
{
    const struct update_trainer *trainer = &scene->world->trainer;
    uint8_t who = 0;

    for (uint8_t i = 0; i < scene->limits->members; i++) {
        who |= (uint8_t)((trainer->work.resume_logs[i] <= trainer->tensor) << i);
    }
    return who & trainer->work.workers;
}

static void tell(struct update_scene *scene)
{
    struct update_trainer *trainer = &scene->world->trainer;
    struct update_message message = {.kind = UPDATE_BUCKET,
                                     .from = trainer->incarnation,
                                     .update = trainer->work.update,
                                     .epoch = trainer->work.epoch,
                                     .version = trainer->work.version,
                                     .tensor = trainer->tensor};

    uint8_t told = wanting(scene) & (uint8_t)~trainer->waiting;

    update_fill(trainer->weights, trainer->tensor, message.seen);
    trainer->waiting |= told;
    for (uint8_t i = 0; i < scene->limits->members; i++) {
        if ((told >> i & 1) != 0 && reaches(trainer, &scene->world->members[i], i)) {
            scene->world->members[i].bucket = message;
        }
    }
}

/* Skips the buckets that the engines' resume logs contain, as far as the trainer knows their
 * checksums. */
static void believe_resume_logs(struct update_scene *scene)
{
    struct update_trainer *trainer = &scene->world->trainer;
    uint8_t own[UPDATE_TENSORS][UPDATE_TENSOR_BYTES];

    for (unsigned i = 0; i < UPDATE_TENSORS; i++) {
        update_fill(trainer->weights, i, own[i]);
    }
    for (unsigned i = 0; i < UPDATE_MEMBERS_MAX; i++) {
        uint8_t told = trainer->work.resume_logs[i];

        if (told > 0 &&
            (told > trainer->known ||
             trainer->work.resume_log_sums[i] !=
                 update_resume_log_sum((const uint8_t(*)[UPDATE_TENSOR_BYTES])own, told))) {
            trainer->work.resume_logs[i] = 0;
        }
        trainer->work.resume_log_sums[i] = 0;
    }
}

static void take_order(struct update_scene *scene)
{
    struct update_trainer *trainer = &scene->world->trainer;

    trainer->work = trainer->order;
    memset(&trainer->order, 0, sizeof(trainer->order));
    scene->world->weights_of[trainer->work.version] = trainer->weights;
    believe_resume_logs(scene);
    trainer->todo = TRAINER_WRITES;
}

/* Continues with the next bucket that an engine needs, or finishes after all were announced and
 * read. */
static void next_bucket(struct update_scene *scene)
{
    struct update_trainer *trainer = &scene->world->trainer;

    while (trainer->tensor < UPDATE_TENSORS && wanting(scene) == 0) {
        trainer->tensor++;
    }
    if (trainer->tensor < UPDATE_TENSORS && !trainer->failed) {
        trainer->todo = TRAINER_WRITES;
    } else if (trainer->waiting != 0) {
        trainer->todo = TRAINER_WAITS;
    } else {
        finish(scene);
    }
}

/* Continues after all engines have read the previous bucket. */
static void tell_or_finish(struct update_scene *scene)
{
    struct update_trainer *trainer = &scene->world->trainer;

    if (trainer->failed) {
        finish(scene);
        return;
    }
    tell(scene);
    trainer->todo = TRAINER_WAITS;
    if (writes_ahead(scene)) {
        trainer->tensor++;
        next_bucket(scene);
    }
}

void update_trainer_learns(struct update_simulator *world)
{
    if (world->trainer.alive) {
        world->trainer.weights = ++world->weights_highest;
        world->trainer.known = 0;
    }
}

void update_trainer_goes_on(struct update_scene *scene, bool writes_wrong)
{
    struct update_trainer *trainer = &scene->world->trainer;
    uint8_t bytes[UPDATE_TENSOR_BYTES];

    update_fill(trainer->weights, trainer->tensor, bytes);
    switch ((enum update_trainer_todo)trainer->todo) {
    case TRAINER_RESTS:
        take_order(scene);
        next_bucket(scene);
        break;
    case TRAINER_WRITES:
        write_byte(scene, 0, bytes[0]);
        trainer->todo = TRAINER_WRITES_ON;
        break;
    case TRAINER_WRITES_ON:
        write_byte(scene, 1, (uint8_t)(bytes[1] ^ (writes_wrong ? 0x80 : 0)));
        trainer->todo = TRAINER_TELLS;
        trainer->known =
            trainer->known > trainer->tensor ? trainer->known : (uint8_t)(trainer->tensor + 1);
        break;
    case TRAINER_TELLS:
        tell_or_finish(scene);
        break;
    case TRAINER_WAITS:
        trainer->tensor = (uint8_t)(trainer->tensor + !writes_ahead(scene));
        next_bucket(scene);
        break;
    }
}
