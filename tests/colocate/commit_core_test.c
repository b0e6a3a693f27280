/* commit_core_test.c - explores every interleaving of source, members, crashes and lost replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/commit_core.h"

#include <xxhash.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The exploration has one source and two members that share one record. From the first state,
 * every possible step is taken in every order, and each state is visited once. The invariants
 * are checked in every state and on every step. Budgets limit crashes, lost replies, wrong bytes
 * and updates. */
enum { MEMBERS = 2, UPDATES = 3 };

/* How far an engine has come with an update. */
enum member_phase { RESTING, STAGED, VOTING, VOTED, FLIPPED };

/* A simulated engine, which is a member of updates. */
struct engine {
    bool alive;      /* True while its process runs. */
    bool generating; /* True while it serves the version `serving`. */
    /* Incarnation of its actor. */
    uint8_t incarnation;
    /* Epoch of the latest update of which it has heard. */
    uint8_t epoch_seen;
    uint8_t serving;  /* Version whose bytes it has; 0 if none. */
    uint8_t shadow;   /* Version that is in its shadow. */
    uint8_t update;   /* Number of the update that fills the shadow. */
    uint8_t pulled;   /* Version that it has copied from a peer and will join with; 0 if none. */
    uint8_t mail;     /* One bit for each update whose stage message is on its way to the engine. */
    bool torn;        /* True if the shadow, or the copy from a peer, has wrong bytes. */
    bool serves_torn; /* True if the served bytes are wrong because all members voted for them. */
    /* How far it has come with the update. */
    enum member_phase phase;
};

/* The simulated source of updates. */
struct driver {
    bool alive;
    uint8_t incarnation;
    uint8_t update; /* Number of its update; 0 if it has none. */
    bool asked;     /* True while it does not know whether its BEGIN request was stored. */
};

/* A state of the simulation. */
struct simulation {
    struct tdm__version_record record;
    struct engine engines[MEMBERS];
    struct driver source;
    /* True if updates write over the weights that the engines serve, so that there is no shadow. */
    bool overwrites;
    bool engine_ended; /* True if an engine has ended, so that bytes may have gone with it. */
    uint8_t updates;   /* Number of update IDs that were used. */
    uint8_t crashes_left;
    uint8_t losses_left;
    uint8_t tears_left;
    /* Epoch, version and outcome of each update, for the invariants. */
    uint8_t epoch_of[UPDATES + 2];
    uint8_t version_of[UPDATES + 2];
    uint8_t outcome_of[UPDATES + 2];
};

/* What the exploration has visited, and how often each kind of step happened. */
static struct {
    uint64_t (*keys)[2];
    size_t slots;
    size_t states;
    size_t steps;
    size_t commits;
    size_t aborts;
    size_t joins;
    size_t torn; /* Engines that got the first bucket of an update over the version they served. */
} exploration;

static void visit(const struct simulation *simulation);

/* ---- names --------------------------------------------------------------------------- */

static struct tdm__id id_of(uint8_t kind, uint8_t number)
{
    return (struct tdm__id){{kind, number}};
}

static struct tdm__member member_of(const struct simulation *simulation, unsigned index)
{
    return (struct tdm__member){.actor = id_of('m', (uint8_t)(index + 1)),
                                .incarnation = simulation->engines[index].incarnation};
}

/* Lists all incarnations that have ended. */
static uint32_t list_dead(const struct simulation *simulation, struct tdm__member dead[8])
{
    uint32_t count = 0;

    for (unsigned i = 0; i < MEMBERS; i++) {
        uint8_t ended =
            (uint8_t)(simulation->engines[i].incarnation - simulation->engines[i].alive);

        for (uint8_t k = 1; k <= ended; k++) {
            dead[count++] = (struct tdm__member){id_of('m', (uint8_t)(i + 1)), k};
        }
    }
    return count;
}

/* ---- invariants ---------------------------------------------------------------------- */

#define REQUIRE(expression)                                                                        \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            print_simulation(simulation);                                                          \
            fail_msg("%s", #expression);                                                           \
        }                                                                                          \
    } while (0)

static void print_simulation(const struct simulation *simulation)
{
    printf("epoch %d version %d highest %d update %d outcome %d members %d\n",
           (int)simulation->record.epoch, (int)simulation->record.version,
           (int)simulation->record.version_highest, simulation->record.update.id.bytes[1],
           (int)simulation->record.update.outcome, (int)simulation->record.update.members_count);
    for (unsigned i = 0; i < MEMBERS; i++) {
        const struct engine *engine = &simulation->engines[i];

        printf("member %u: alive %d/%d generating %d serving %d shadow %d update %d phase %d\n", i,
               engine->alive, engine->incarnation, engine->generating, engine->serving,
               engine->shadow, engine->update, (int)engine->phase);
    }
}

static bool was_committed(const struct simulation *simulation, uint8_t version)
{
    for (uint8_t u = 1; u <= simulation->updates; u++) {
        if (simulation->version_of[u] == version &&
            simulation->outcome_of[u] == TDM__UPDATE_COMMITTED) {
            return true;
        }
    }
    return false;
}

/* Returns true if an engine has the bytes of the committed version. */
static bool is_held(const struct simulation *simulation)
{
    const struct tdm__version_record *record = &simulation->record;

    for (unsigned i = 0; i < MEMBERS; i++) {
        const struct engine *engine = &simulation->engines[i];

        if (engine->alive &&
            (engine->serving == record->version || engine->pulled == record->version ||
             engine->shadow == record->version)) {
            return true;
        }
    }
    return false;
}

static void check_state(const struct simulation *simulation)
{
    const struct tdm__update *update = &simulation->record.update;
    struct tdm__version_record record = simulation->record;
    const struct tdm__version_request forget = {.kind = TDM__VERSION_FORGET, .update = update->id};
    bool changed;
    bool may_forget = tdm__version_apply_request(&record, &forget, &changed) == TDM_OK;
    uint8_t served = 0;

    for (unsigned i = 0; i < MEMBERS; i++) {
        const struct engine *engine = &simulation->engines[i];

        REQUIRE(!may_forget || engine->phase == RESTING || engine->phase == FLIPPED);
        if (!engine->alive || !engine->generating) {
            continue;
        }
        REQUIRE(engine->serving != 0);
        REQUIRE(was_committed(simulation, engine->serving));
        REQUIRE(served == 0 || served == engine->serving);
        served = engine->serving;
    }
    REQUIRE(served <= simulation->record.version);
    REQUIRE(simulation->record.version == 0 || simulation->engine_ended ||
            simulation->record.bytes != TDM__BYTES_HELD || is_held(simulation));
    if (update->outcome != TDM__UPDATE_COMMITTED) {
        REQUIRE(served == 0 || served == simulation->record.version);
        return;
    }
    REQUIRE(update->version == simulation->record.version);
    for (uint32_t i = 0; i < update->members_count; i++) {
        unsigned index = update->members[i].member.actor.bytes[1] - 1U;
        const struct engine *engine = &simulation->engines[index];

        REQUIRE(update->members[i].voted);
        REQUIRE(tdm__hash_equal(&update->members[i].hash, &simulation->record.hash));
        if (engine->alive && engine->incarnation == update->members[i].member.incarnation) {
            REQUIRE(engine->serving == update->version || engine->shadow == update->version ||
                    engine->pulled == update->version);
        }
    }
}

/* Checks what may and what may not change from one record to the next. */
static void check_step(const struct simulation *before, struct simulation *simulation)
{
    const struct tdm__version_record *old = &before->record;
    const struct tdm__version_record *new = &simulation->record;
    uint8_t number = new->update.id.bytes[1];

    REQUIRE(new->version >= old->version);
    REQUIRE(new->version_highest >= old->version_highest);
    REQUIRE(new->epoch >= old->epoch);
    for (unsigned i = 0; i < MEMBERS; i++) {
        REQUIRE(simulation->engines[i].serving >= before->engines[i].serving ||
                simulation->engines[i].incarnation > before->engines[i].incarnation);
    }
    if (new->epoch > old->epoch) { /* A new update has begun. */
        REQUIRE(old->update.outcome != TDM__UPDATE_UNDECIDED);
        for (uint8_t u = 1; u <= UPDATES + 1; u++) {
            REQUIRE(simulation->version_of[u] < new->update.version);
        }
        simulation->epoch_of[number] = (uint8_t) new->epoch;
        simulation->version_of[number] = (uint8_t) new->update.version;
    }
    if (number != 0) {
        uint8_t known = simulation->outcome_of[number];

        REQUIRE(known <= TDM__UPDATE_UNDECIDED || known == new->update.outcome);
        simulation->outcome_of[number] = (uint8_t) new->update.outcome;
    }
}

/* ---- the store: an atomic step whose reply may be lost ------------------------------- */

enum answer { HEARD, LOST };

static tdm_status ask(struct simulation *simulation, const struct tdm__version_request *request)
{
    struct simulation before = *simulation;
    struct tdm__version_record record = simulation->record;
    bool changed;
    tdm_status status = tdm__version_apply_request(&record, request, &changed);

    if (status == TDM_OK && changed) {
        simulation->record = record;
        check_step(&before, simulation);
    }
    return status;
}

/* ---- the steps that are possible in a state ------------------------------------------ */

/* Requests a BEGIN. `left_out` is the index of an engine that is not a member; MEMBERS if none is
 * left out. */
static tdm_status ask_begin(struct simulation *simulation, bool knows_dead, uint64_t base,
                            unsigned left_out)
{
    struct tdm__member members[MEMBERS];
    struct tdm__member dead[8];
    uint32_t members_count = 0;
    uint32_t dead_count = list_dead(simulation, dead);

    for (unsigned i = 0; i < MEMBERS; i++) {
        if (simulation->engines[i].alive && i != left_out) {
            members[members_count++] = member_of(simulation, i);
        }
    }
    return ask(simulation, &(struct tdm__version_request){
                               .kind = TDM__VERSION_BEGIN,
                               .update = id_of('u', simulation->source.update),
                               .base = base,
                               .overwrites = simulation->overwrites,
                               .source = {id_of('s', 1), simulation->source.incarnation},
                               .members = members,
                               .members_count = members_count,
                               .dead = dead,
                               .dead_count = knows_dead ? dead_count : 0});
}

static tdm_status ask_decide(struct simulation *simulation, uint8_t update,
                             enum tdm__update_outcome proposal, bool knows_dead,
                             enum tdm__update_outcome *outcome_out)
{
    struct tdm__member dead[8];
    uint32_t dead_count = list_dead(simulation, dead);
    struct tdm__id id = id_of('u', update);
    tdm_status status =
        ask(simulation, &(struct tdm__version_request){.kind = TDM__VERSION_DECIDE,
                                                       .update = id,
                                                       .proposal = proposal,
                                                       .dead = dead,
                                                       .dead_count = knows_dead ? dead_count : 0});

    if (status == TDM_OK) {
        status = tdm__version_outcome(&simulation->record, &id, outcome_out);
    }
    return status;
}

/* Sends stage messages to all members. A message goes to one incarnation, so a restarted engine
 * does not get those of its predecessor. */
static void send_stages(struct simulation *simulation)
{
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct tdm__member member = member_of(simulation, i);
        uint32_t index = tdm__version_member_index(&simulation->record.update, &member);

        if (simulation->engines[i].alive && index < simulation->record.update.members_count) {
            simulation->engines[i].mail |= (uint8_t)(1U << simulation->source.update);
        }
    }
}

/* Checks that a BEGIN without a living member of the last update is refused, because that member
 * would serve the old version beside the new one. */
static void check_nobody_is_left_behind(struct simulation simulation)
{
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct tdm__member member = member_of(&simulation, i);

        if (simulation.engines[i].alive &&
            tdm__version_member_index(&simulation.record.update, &member) <
                simulation.record.update.members_count) {
            assert_int_not_equal(ask_begin(&simulation, true, simulation.record.version, i),
                                 TDM_OK);
        }
    }
}

static void source_begins(struct simulation simulation, enum answer answer, bool knows_dead)
{
    tdm_status status;
    bool repeated;

    if (!simulation.source.asked) {
        simulation.source.update = ++simulation.updates;
        assert_int_not_equal(ask_begin(&simulation, true, simulation.record.version + 1, MEMBERS),
                             TDM_OK);
        check_nobody_is_left_behind(simulation);
    }
    repeated = simulation.record.update.id.bytes[1] == simulation.source.update;
    status = ask_begin(&simulation, knows_dead, simulation.record.version, MEMBERS);
    assert_true(!repeated || status == TDM_OK);
    if (answer == LOST) {
        simulation.losses_left--;
        simulation.source.asked = true;
    } else if (status == TDM_OK) {
        simulation.source.asked = false;
        send_stages(&simulation);
    } else {
        simulation.source.asked = false;
        simulation.source.update = 0;
    }
    visit(&simulation);
}

static void source_decides(struct simulation simulation, enum answer answer, bool knows_dead,
                           enum tdm__update_outcome proposal)
{
    enum tdm__update_outcome outcome;
    uint8_t update = simulation.source.update;

    if (update == 0) { /* The update was begun by another source and was found in the record. */
        update = simulation.record.update.id.bytes[1];
    }
    if (ask_decide(&simulation, update, proposal, knows_dead, &outcome) == TDM_OK &&
        answer == HEARD) {
        simulation.source.update = 0;
    }
    simulation.losses_left = (uint8_t)(simulation.losses_left - (answer == LOST));
    visit(&simulation);
}

static void source_steps(const struct simulation *simulation)
{
    const struct driver *source = &simulation->source;
    bool undecided = simulation->record.update.outcome == TDM__UPDATE_UNDECIDED;

    for (enum answer answer = HEARD; answer <= (simulation->losses_left ? LOST : HEARD); answer++) {
        for (int knows = 0; knows < 2; knows++) {
            if (source->asked || (source->update == 0 && simulation->updates < UPDATES)) {
                source_begins(*simulation, answer, knows);
            }
            if ((source->update != 0 && !source->asked) || (source->update == 0 && undecided)) {
                source_decides(*simulation, answer, knows, TDM__UPDATE_COMMITTED);
                source_decides(*simulation, answer, knows, TDM__UPDATE_ABORTED);
            }
        }
    }
    /* The source sends a stage message again. */
    if (source->update != 0 && !source->asked && undecided) {
        struct simulation next = *simulation;

        send_stages(&next);
        visit(&next);
    }
}

static void rest(struct engine *engine)
{
    engine->phase = RESTING;
    engine->update = 0;
    engine->shadow = 0;
    engine->torn = false;
    engine->pulled = 0;
    engine->generating = engine->serving != 0;
}

static void engine_receives(struct simulation simulation, unsigned index, uint8_t update, bool torn)
{
    struct engine *engine = &simulation.engines[index];
    uint8_t epoch = simulation.epoch_of[update];

    engine->mail &= (uint8_t) ~(1U << update);
    simulation.tears_left = (uint8_t)(simulation.tears_left - torn);
    if (epoch > engine->epoch_seen || (epoch == engine->epoch_seen && engine->phase == STAGED)) {
        /* A higher epoch replaces everything; the same epoch replaces only what is staged. */
        rest(engine);
        engine->phase = STAGED;
        engine->epoch_seen = epoch;
        engine->update = update;
        engine->shadow = simulation.version_of[update];
        engine->torn = torn;
        if (simulation.overwrites) { /* It holds no version until it has all buckets of one. */
            exploration.torn += engine->serving != 0;
            engine->generating = false;
            engine->serving = 0;
        }
    }
    visit(&simulation);
}

static void engine_votes(struct simulation simulation, unsigned index, enum answer answer)
{
    struct engine *engine = &simulation.engines[index];
    tdm_status status;

    engine->generating = false; /* The engine stops serving before its vote is sent. */
    engine->phase = VOTING;     /* The shadow is frozen from now on. */
    status =
        ask(&simulation,
            &(struct tdm__version_request){.kind = TDM__VERSION_PREPARED,
                                           .update = id_of('u', engine->update),
                                           .member = member_of(&simulation, index),
                                           .hash = {.high = engine->torn, .low = engine->shadow}});
    if (answer == LOST) {
        simulation.losses_left--;
    } else if (status == TDM_OK) {
        engine->phase = VOTED;
    } else {
        assert_int_equal(status, TDM_E_ABORTED);
        rest(engine);
    }
    visit(&simulation);
}

static void engine_asks(struct simulation simulation, unsigned index, enum answer answer)
{
    struct engine *engine = &simulation.engines[index];
    enum tdm__update_outcome outcome = TDM__UPDATE_UNDECIDED;

    assert_int_equal(ask_decide(&simulation, engine->update, TDM__UPDATE_ABORTED, false, &outcome),
                     TDM_OK);
    assert_int_not_equal(outcome, TDM__UPDATE_UNDECIDED);
    if (answer == LOST) {
        simulation.losses_left--;
    } else if (outcome == TDM__UPDATE_COMMITTED) {
        engine->serving = engine->shadow;
        engine->serves_torn = engine->torn;
        engine->phase = FLIPPED;
    } else {
        rest(engine);
    }
    visit(&simulation);
}

static void engine_reports(struct simulation simulation, unsigned index, enum answer answer)
{
    struct engine *engine = &simulation.engines[index];

    assert_int_equal(
        ask(&simulation, &(struct tdm__version_request){.kind = TDM__VERSION_FLIPPED,
                                                        .update = id_of('u', engine->update),
                                                        .member = member_of(&simulation, index)}),
        TDM_OK);
    simulation.losses_left = (uint8_t)(simulation.losses_left - (answer == LOST));
    if (answer == HEARD) {
        rest(engine);
    }
    visit(&simulation);
}

/* Lets an engine copy the weights of a peer that serves them; the peer continues to serve. */
static void engine_pulls(struct simulation simulation, unsigned index, unsigned peer)
{
    rest(&simulation.engines[index]); /* Without a shadow it copies over what it has staged. */
    simulation.engines[index].pulled = simulation.engines[peer].serving;
    simulation.engines[index].torn = simulation.engines[peer].serves_torn;
    visit(&simulation);
}

static void engine_joins(struct simulation simulation, unsigned index, enum answer answer)
{
    struct engine *engine = &simulation.engines[index];
    bool undecided = simulation.record.update.outcome == TDM__UPDATE_UNDECIDED;
    bool stale = engine->pulled != simulation.record.version;
    tdm_status status =
        ask(&simulation,
            &(struct tdm__version_request){.kind = TDM__VERSION_JOIN,
                                           .member = member_of(&simulation, index),
                                           .version = engine->pulled,
                                           .hash = {.high = engine->torn, .low = engine->pulled}});

    assert_true((status == TDM_OK) == (!undecided && !stale));
    exploration.joins += status == TDM_OK;
    if (answer == LOST) {
        simulation.losses_left--;
    } else {
        engine->serving = status == TDM_OK ? engine->pulled : 0;
        engine->serves_torn = status == TDM_OK && engine->torn;
        engine->epoch_seen =
            status == TDM_OK ? (uint8_t)simulation.record.epoch : engine->epoch_seen;
        rest(engine);
    }
    visit(&simulation);
}

static void joiner_steps(const struct simulation *simulation, unsigned index)
{
    const struct engine *engine = &simulation->engines[index];

    for (unsigned i = 0; i < MEMBERS; i++) {
        const struct engine *peer = &simulation->engines[i];

        if (peer->alive && peer->generating && engine->pulled == 0) {
            engine_pulls(*simulation, index, i);
        }
    }
    if (engine->pulled != 0) {
        engine_joins(*simulation, index, HEARD);
        if (simulation->losses_left > 0) {
            engine_joins(*simulation, index, LOST);
        }
    }
}

static void engine_steps(const struct simulation *simulation, unsigned index)
{
    const struct engine *engine = &simulation->engines[index];

    for (uint8_t u = 1; u <= UPDATES; u++) {
        if ((engine->mail >> u & 1) != 0) {
            engine_receives(*simulation, index, u, false);
            if (simulation->tears_left > 0) {
                engine_receives(*simulation, index, u, true);
            }
        }
    }
    for (enum answer answer = HEARD; answer <= (simulation->losses_left ? LOST : HEARD); answer++) {
        switch (engine->phase) {
        case RESTING:
            if (answer == HEARD && engine->serving == 0) {
                joiner_steps(simulation, index);
            }
            break;
        case STAGED:
            if (answer == HEARD && simulation->overwrites && engine->pulled == 0) {
                joiner_steps(simulation, index);
            }
            engine_votes(*simulation, index, answer);
            break;
        case VOTING:
            engine_votes(*simulation, index, answer);
            break;
        case VOTED:
            engine_asks(*simulation, index, answer);
            break;
        case FLIPPED:
            engine_reports(*simulation, index, answer);
            break;
        }
    }
}

static void crash_or_restart_source(struct simulation simulation)
{
    if (simulation.source.alive) {
        simulation.crashes_left--;
        simulation.source.alive = false;
    } else {
        simulation.source.alive = true;
        simulation.source.incarnation++;
    }
    simulation.source.update = 0;
    simulation.source.asked = false;
    visit(&simulation);
}

static void crash_or_restart_engine(struct simulation simulation, unsigned index)
{
    struct engine *engine = &simulation.engines[index];
    bool alive = engine->alive;

    simulation.crashes_left = (uint8_t)(simulation.crashes_left - alive);
    simulation.engine_ended |= alive;
    *engine =
        (struct engine){.alive = !alive, .incarnation = (uint8_t)(engine->incarnation + !alive)};
    visit(&simulation);
}

static void name_the_dead(struct simulation simulation)
{
    struct tdm__member dead[8];
    uint32_t dead_count = list_dead(&simulation, dead);

    assert_int_equal(
        ask(&simulation, &(struct tdm__version_request){.kind = TDM__VERSION_DEAD,
                                                        .update = simulation.record.update.id,
                                                        .dead = dead,
                                                        .dead_count = dead_count}),
        TDM_OK);
    visit(&simulation);
}

/* ---- no state is stuck --------------------------------------------------------------- */

/* Checks that a way out exists from this state once crashes end: the living processes can finish
 * what is open, and a new source can bring a new version to all of them. */
static void check_way_out(struct simulation copy)
{
    struct simulation *simulation = &copy;
    enum tdm__update_outcome outcome;
    struct tdm__member dead[8];
    uint32_t dead_count = list_dead(simulation, dead);
    bool anybody = false;

    if (simulation->record.update.outcome == TDM__UPDATE_UNDECIDED) {
        REQUIRE(ask_decide(simulation, simulation->record.update.id.bytes[1], TDM__UPDATE_ABORTED,
                           false, &outcome) == TDM_OK);
    }
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct engine *engine = &simulation->engines[i];
        struct tdm__id update = id_of('u', engine->update);

        anybody = anybody || engine->alive;
        if (!engine->alive || engine->phase == RESTING) {
            continue;
        }
        REQUIRE(tdm__version_outcome(&simulation->record, &update, &outcome) == TDM_OK);
        if (outcome == TDM__UPDATE_COMMITTED) {
            REQUIRE(ask(simulation, &(struct tdm__version_request){
                                        .kind = TDM__VERSION_FLIPPED,
                                        .update = update,
                                        .member = member_of(simulation, i)}) == TDM_OK);
            engine->serving = engine->shadow;
        }
        rest(engine);
    }
    check_state(simulation);
    if (!anybody) {
        REQUIRE(
            simulation->record.version == 0 ||
            ask(simulation, &(struct tdm__version_request){.kind = TDM__VERSION_LOST,
                                                           .version = simulation->record.version,
                                                           .dead = dead,
                                                           .dead_count = dead_count}) == TDM_OK);
        return;
    }
    simulation->source.update = UPDATES + 1;
    simulation->updates = UPDATES + 1;
    REQUIRE(ask_begin(simulation, true, simulation->record.version, MEMBERS) == TDM_OK);
}

/* ---- the exploration ----------------------------------------------------------------- */

static size_t put(uint8_t *to, size_t at, const void *from, size_t bytes)
{
    memcpy(to + at, from, bytes);
    return at + bytes;
}

/* Returns a hash of everything that decides the future, without padding and without unused array
 * entries. */
static XXH128_hash_t key_of(const struct simulation *simulation)
{
    static uint8_t bytes[8192];
    const struct tdm__version_record *record = &simulation->record;
    const struct tdm__update *update = &record->update;
    size_t at = 0;

    at = put(bytes, at, &record->epoch, sizeof(uint64_t) * 3);
    at = put(bytes, at, &record->hash, sizeof(record->hash));
    at = put(bytes, at, &record->bytes, sizeof(record->bytes));
    at = put(bytes, at, &update->id, sizeof(update->id));
    at = put(bytes, at, &update->outcome, sizeof(update->outcome));
    for (uint32_t i = 0; i < update->members_count; i++) {
        at = put(bytes, at, &update->members[i].member, sizeof(struct tdm__member));
        at = put(bytes, at, &update->members[i].phase, sizeof(enum tdm__member_phase));
        at = put(bytes, at, &update->members[i].voted, sizeof(bool));
        at = put(bytes, at, &update->members[i].hash, sizeof(struct tdm__hash));
    }
    for (unsigned i = 0; i < MEMBERS; i++) {
        const struct engine *engine = &simulation->engines[i];
        const uint8_t fields[] = {engine->alive,   engine->generating,    engine->incarnation,
                                  engine->serving, engine->epoch_seen,    engine->shadow,
                                  engine->update,  engine->mail,          engine->pulled,
                                  engine->torn,    (uint8_t)engine->phase};

        at = put(bytes, at, fields, sizeof(fields));
    }
    const uint8_t rest_fields[] = {simulation->source.alive,  simulation->source.incarnation,
                                   simulation->source.update, simulation->source.asked,
                                   simulation->updates,       simulation->crashes_left,
                                   simulation->losses_left,   simulation->tears_left,
                                   simulation->engine_ended};

    at = put(bytes, at, rest_fields, sizeof(rest_fields));
    at = put(bytes, at, simulation->epoch_of, sizeof(simulation->epoch_of));
    at = put(bytes, at, simulation->version_of, sizeof(simulation->version_of));
    at = put(bytes, at, simulation->outcome_of, sizeof(simulation->outcome_of));
    return XXH3_128bits(bytes, at);
}

static bool insert(XXH128_hash_t key)
{
    size_t slot = key.low64 & (exploration.slots - 1);

    while (exploration.keys[slot][0] != 0 || exploration.keys[slot][1] != 0) {
        if (exploration.keys[slot][0] == key.low64 && exploration.keys[slot][1] == key.high64) {
            return false;
        }
        slot = (slot + 1) & (exploration.slots - 1);
    }
    exploration.keys[slot][0] = key.low64;
    exploration.keys[slot][1] = key.high64;
    return true;
}

/* Visits a state and all states that follow from it, depth first. */
static void visit(const struct simulation *simulation)
{
    exploration.steps++;
    if (!insert(key_of(simulation))) {
        return;
    }
    exploration.states++;
    assert_true(exploration.states < exploration.slots / 2);
    exploration.commits += simulation->record.update.outcome == TDM__UPDATE_COMMITTED;
    exploration.aborts += simulation->record.update.outcome == TDM__UPDATE_ABORTED;
    check_state(simulation);
    check_way_out(*simulation);
    if (simulation->source.alive) {
        source_steps(simulation);
    }
    if (!simulation->source.alive || simulation->crashes_left > 0) {
        crash_or_restart_source(*simulation);
    }
    for (unsigned i = 0; i < MEMBERS; i++) {
        if (simulation->engines[i].alive) {
            engine_steps(simulation, i);
        }
        if (!simulation->engines[i].alive || simulation->crashes_left > 0) {
            crash_or_restart_engine(*simulation, i);
        }
    }
    if (simulation->record.update.outcome != 0) {
        name_the_dead(*simulation);
    }
}

static void explore_from(bool overwrites, uint8_t crashes, uint8_t losses, uint8_t tears,
                         uint8_t updates)
{
    struct simulation simulation = {
        .crashes_left = crashes, .losses_left = losses, .tears_left = tears};

    simulation.overwrites = overwrites;
    simulation.updates = (uint8_t)(UPDATES - updates);
    simulation.source = (struct driver){.alive = true, .incarnation = 1};
    for (unsigned i = 0; i < MEMBERS; i++) {
        simulation.engines[i] = (struct engine){.alive = true, .incarnation = 1};
    }
    memset(&exploration, 0, sizeof(exploration));
    exploration.slots = (size_t)1 << 22;
    exploration.keys = calloc(exploration.slots, sizeof(exploration.keys[0]));
    assert_non_null(exploration.keys);
    visit(&simulation);
    printf("exploration of %u updates, %u crashes, %u lost replies, %u torn shadows: "
           "%zu states, %zu steps, %zu committed, %zu aborted, %zu joined, %zu overwritten\n",
           updates, crashes, losses, tears, exploration.states, exploration.steps,
           exploration.commits, exploration.aborts, exploration.joins, exploration.torn);
    assert_true(crashes == 0 || exploration.joins > 0);
    assert_true((exploration.torn > 0) == overwrites);
    assert_true(exploration.commits > 0 && exploration.aborts > 0);
    free(exploration.keys);
}

static void explore_all(bool overwrites)
{
    explore_from(overwrites, 1, 0, 0, 2);
    explore_from(overwrites, 2, 0, 0, 2);
    explore_from(overwrites, 0, 0, 0, 3);
    explore_from(overwrites, 1, 1, 1, 2);
}

static void no_interleaving_serves_two_versions_or_goes_back(void **state)
{
    (void)state;
    explore_all(false);
}

static void no_interleaving_serves_overwritten_weights(void **state)
{
    (void)state;
    explore_all(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_interleaving_serves_two_versions_or_goes_back),
        cmocka_unit_test(no_interleaving_serves_overwritten_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
