/* version_set_test.c - one step for several records, and every order of the steps of two models. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/version_set.h"

#include "tests/support/state_explorer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- single steps -------------------------------------------------------------------- */

enum { MODELS = 2 };

static struct tdm__version_record records[MODELS];

static struct tdm__id id_of(uint8_t model, uint8_t number)
{
    return (struct tdm__id){{'u', model, number}};
}

static const struct tdm__member single_members[MODELS] = {{{{'m', 1}}, 1}, {{{'m', 2}}, 1}};

/* Applies a set of requests to copies of the records and keeps these on success, as a transaction
 * does. */
static tdm_status apply(const struct tdm__version_request requests[MODELS])
{
    static struct tdm__version_record next[MODELS];
    bool changed[MODELS] = {false, false};
    uint32_t refused = 0;
    tdm_status status;

    memcpy(next, records, sizeof(next));
    status = tdm__version_apply_set(next, requests, MODELS, changed, &refused);
    if (status == TDM_OK) {
        for (int i = 0; i < MODELS; i++) {
            assert_true(changed[i] || memcmp(&next[i], &records[i], sizeof(next[i])) == 0);
        }
        memcpy(records, next, sizeof(next));
    }
    return status;
}

static tdm_status begin(uint8_t number, uint64_t base)
{
    struct tdm__version_request requests[MODELS];

    for (uint8_t i = 0; i < MODELS; i++) {
        requests[i] = (struct tdm__version_request){.kind = TDM__VERSION_BEGIN,
                                                    .update = id_of(i, number),
                                                    .base = base,
                                                    .source = {{{'s'}}, 1},
                                                    .members = &single_members[i],
                                                    .members_count = 1};
    }
    return apply(requests);
}

static tdm_status decide(uint8_t number, enum tdm__update_outcome proposal)
{
    struct tdm__version_request requests[MODELS];

    for (uint8_t i = 0; i < MODELS; i++) {
        requests[i] = (struct tdm__version_request){
            .kind = TDM__VERSION_DECIDE, .update = id_of(i, number), .proposal = proposal};
    }
    return apply(requests);
}

/* Applies the request of one model alone, as its receivers do. */
static tdm_status apply_alone(uint8_t model, struct tdm__version_request request)
{
    bool changed = false;

    return tdm__version_apply_batched(&records[model], &request, &changed);
}

static tdm_status report(enum tdm__version_request_kind kind, uint8_t model, uint8_t number)
{
    return apply_alone(model, (struct tdm__version_request){.kind = kind,
                                                            .update = id_of(model, number),
                                                            .member = single_members[model]});
}

static void assert_outcomes(uint8_t number, enum tdm__update_outcome expected)
{
    for (uint8_t i = 0; i < MODELS; i++) {
        struct tdm__id id = id_of(i, number);
        enum tdm__update_outcome outcome;

        assert_int_equal(tdm__version_outcome(&records[i], &id, &outcome), TDM_OK);
        assert_int_equal(outcome, expected);
    }
}

static int forget_records(void **state)
{
    (void)state;
    memset(records, 0, sizeof(records));
    return 0;
}

static void set_gets_one_version_above_all_before(void **state)
{
    (void)state;
    records[1].version_highest = 7;
    assert_int_equal(begin(1, 0), TDM_OK);
    assert_true(records[0].update.version == 8 && records[1].update.version == 8);
    assert_int_equal(begin(1, 0), TDM_OK); /* The reply was lost. */
    assert_true(records[0].version_highest == 8 && records[1].version_highest == 8);
    assert_true(records[0].epoch == 1 && records[1].epoch == 1);
}

static void begin_that_one_record_refuses_begins_nothing(void **state)
{
    (void)state;
    assert_int_equal(apply_alone(1, (struct tdm__version_request){.kind = TDM__VERSION_BEGIN,
                                                                  .update = id_of(1, 9),
                                                                  .members = &single_members[1],
                                                                  .members_count = 1}),
                     TDM_OK);
    assert_int_equal(begin(1, 0), TDM_E_STATE);
    assert_true(records[0].epoch == 0);
    /* Updates that were not begun together do not become a set. */
    assert_int_equal(apply_alone(0, (struct tdm__version_request){.kind = TDM__VERSION_BEGIN,
                                                                  .update = id_of(0, 9),
                                                                  .version_floor = 40,
                                                                  .members = &single_members[0],
                                                                  .members_count = 1}),
                     TDM_OK);
    assert_int_equal(begin(9, 0), TDM_E_CONFLICT);
    assert_non_null(strstr(tdm_error_detail(), "version 41"));
}

static void missing_vote_of_one_model_keeps_both_undecided(void **state)
{
    (void)state;
    assert_int_equal(begin(1, 0), TDM_OK);
    assert_int_equal(report(TDM__VERSION_PREPARED, 0, 1), TDM_OK);
    assert_int_equal(decide(1, TDM__UPDATE_COMMITTED), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "has not voted"));
    assert_outcomes(1, TDM__UPDATE_UNDECIDED);
    assert_int_equal(report(TDM__VERSION_PREPARED, 1, 1), TDM_OK);
    assert_int_equal(decide(1, TDM__UPDATE_COMMITTED), TDM_OK);
    assert_outcomes(1, TDM__UPDATE_COMMITTED);
    assert_int_equal(decide(1, TDM__UPDATE_ABORTED), TDM_OK); /* The first outcome stays. */
    assert_outcomes(1, TDM__UPDATE_COMMITTED);
}

static void abort_of_one_model_aborts_the_other(void **state)
{
    (void)state;
    assert_int_equal(begin(1, 0), TDM_OK);
    for (uint8_t i = 0; i < MODELS; i++) {
        assert_int_equal(report(TDM__VERSION_PREPARED, i, 1), TDM_OK);
    }
    /* A receiver of the second model proposes this after its deadline. */
    assert_int_equal(apply_alone(1, (struct tdm__version_request){.kind = TDM__VERSION_DECIDE,
                                                                  .update = id_of(1, 1),
                                                                  .proposal = TDM__UPDATE_ABORTED}),
                     TDM_OK);
    for (int i = 0; i < 2; i++) { /* The second time after a lost reply. */
        assert_int_equal(decide(1, TDM__UPDATE_COMMITTED), TDM_OK);
        assert_outcomes(1, TDM__UPDATE_ABORTED);
    }
    assert_int_equal(begin(2, 0), TDM_OK);
    assert_true(records[0].update.version == 2 && records[1].update.version == 2);
}

static void dead_member_of_one_model_aborts_both(void **state)
{
    struct tdm__version_request requests[MODELS];

    (void)state;
    assert_int_equal(begin(1, 0), TDM_OK);
    for (uint8_t i = 0; i < MODELS; i++) {
        requests[i] = (struct tdm__version_request){.kind = TDM__VERSION_DECIDE,
                                                    .update = id_of(i, 1),
                                                    .proposal = TDM__UPDATE_COMMITTED,
                                                    .dead = &single_members[1],
                                                    .dead_count = 1};
    }
    assert_int_equal(apply(requests), TDM_OK); /* Although a vote is missing for the first model. */
    assert_outcomes(1, TDM__UPDATE_ABORTED);
    assert_int_equal(records[1].update.reason, TDM__UPDATE_MEMBER_DIED);
    assert_int_equal(records[0].update.reason, TDM__UPDATE_ABORT_PROPOSED);
}

static void outcomes_that_were_stored_apart_are_a_conflict(void **state)
{
    (void)state;
    assert_int_equal(begin(1, 0), TDM_OK);
    for (uint8_t i = 0; i < MODELS; i++) {
        assert_int_equal(report(TDM__VERSION_PREPARED, i, 1), TDM_OK);
        assert_int_equal(
            apply_alone(i, (struct tdm__version_request){.kind = TDM__VERSION_DECIDE,
                                                         .update = id_of(i, 1),
                                                         .proposal = i == 0 ? TDM__UPDATE_COMMITTED
                                                                            : TDM__UPDATE_ABORTED}),
            TDM_OK);
    }
    assert_int_equal(decide(1, TDM__UPDATE_COMMITTED), TDM_E_CONFLICT);
    assert_non_null(strstr(tdm_error_detail(), "not decided together"));
}

static void requests_that_are_no_set_are_refused(void **state)
{
    struct tdm__version_request requests[MODELS] = {{.kind = TDM__VERSION_READ},
                                                    {.kind = TDM__VERSION_READ}};
    bool changed[MODELS];
    uint32_t refused;

    (void)state;
    assert_int_equal(apply(requests), TDM_E_INVAL);
    requests[1].kind = TDM__VERSION_BEGIN;
    assert_int_equal(apply(requests), TDM_E_INVAL);
    assert_int_equal(tdm__version_apply_set(records, requests, 0, changed, &refused), TDM_E_INVAL);
    assert_int_equal(
        tdm__version_apply_set(records, requests, TDM__VERSION_SET_MAX + 1, changed, &refused),
        TDM_E_INVAL);
    assert_int_equal(decide(1, TDM__UPDATE_COMMITTED), TDM_E_NOT_FOUND);
}

/* ---- every order of the steps -------------------------------------------------------- */

/* The exploration has two models, a source, and two processes. The first process has receivers of
 * both models and a reader of both; the second one has a receiver of the second model. Every step
 * is taken in every order, with crashes and lost replies. */
enum { RECEIVERS = 3, PROCESSES = 2, UPDATES_MAX = 3, PAST_MAX = 3, STATES_MAX = 1 << 22 };

static const uint8_t model_of[RECEIVERS] = {0, 1, 1};
static const uint8_t process_of[RECEIVERS] = {0, 0, 1};

/* Mistakes that the exploration must find. */
enum mutation {
    NO_MUTATION,
    DECIDED_APART,       /* The source decides about one model after the other. */
    READER_PASSES_GATE,  /* A reader does not care whether a gate is shut. */
    VOTE_DURING_READING, /* A receiver votes while it has a reader. */
    MUTATIONS
};

/* What differs between the records of the exploration, in few bytes. */
struct small_record {
    uint8_t epoch;
    uint8_t version_highest;
    uint8_t version;
    uint8_t number; /* Number of the latest update; 0 if there is none. */
    uint8_t update_version;
    uint8_t base;
    uint8_t outcome;
    uint8_t members_count;
    uint8_t members[PROCESSES]; /* Process of each member. */
    uint8_t phases[PROCESSES];
    uint8_t voted[PROCESSES];
    uint8_t past_count;
    uint8_t past_numbers[PAST_MAX];
    uint8_t past_versions[PAST_MAX];
    uint8_t past_outcomes[PAST_MAX];
};

enum phase { RESTING, STAGED, VOTED, FLIPPED };

struct receiver {
    uint8_t phase;
    uint8_t gate_is_shut;
    uint8_t serving; /* Version; 0 if none. */
    uint8_t shadow;  /* Version that it has staged. */
    uint8_t update;  /* Number of the update that it has heard of last. */
    uint8_t mail;    /* Number of the update whose offer is on its way; 0 if none. */
};

/* A state of the exploration. All members are bytes, so that it has no padding. */
struct world {
    struct small_record records[MODELS];
    struct receiver receivers[RECEIVERS];
    uint8_t alive[PROCESSES];
    uint8_t source_alive;
    uint8_t undecided;        /* True while the source does not know the outcome of its update. */
    uint8_t begun_count;      /* Number of updates that the source has tried to begin. */
    uint8_t entered_count;    /* Number of gates that the reader of the first process has passed. */
    uint8_t versions[MODELS]; /* Versions that it reads. */
    uint8_t crashes_left;
    uint8_t losses_left;
};

struct search {
    struct state_explorer explorer;
    enum mutation mutation;
    const char *wrong; /* The first violation; NULL if none. */
    uint32_t commits;
    uint32_t aborts;
    uint32_t reads;
    uint32_t mixed_proposals; /* Decisions of the set after a receiver had aborted one model. */
};

static struct tdm__member member_of(uint8_t process)
{
    return (struct tdm__member){{{'m', process}}, 1};
}

static struct tdm__version_record expand(const struct small_record *small, uint8_t model)
{
    struct tdm__version_record record = {.epoch = small->epoch,
                                         .version_highest = small->version_highest,
                                         .version = small->version,
                                         .hash = {0, small->version},
                                         .past_updates_count = small->past_count};

    if (small->number != 0) {
        record.update = (struct tdm__update){.id = id_of(model, small->number),
                                             .epoch = small->epoch,
                                             .version = small->update_version,
                                             .base = small->base,
                                             .outcome = (enum tdm__update_outcome)small->outcome,
                                             .members_count = small->members_count};
    }
    for (uint8_t i = 0; i < small->members_count; i++) {
        record.update.members[i] =
            (struct tdm__update_member){.member = member_of(small->members[i]),
                                        .phase = (enum tdm__member_phase)small->phases[i],
                                        .voted = small->voted[i] != 0,
                                        .hash = {0, small->voted[i] ? small->update_version : 0U}};
    }
    for (uint8_t i = 0; i < small->past_count; i++) {
        record.past_updates[i] =
            (struct tdm__past_update){.id = id_of(model, small->past_numbers[i]),
                                      .version = small->past_versions[i],
                                      .outcome = (enum tdm__update_outcome)small->past_outcomes[i]};
    }
    return record;
}

static struct small_record compress(const struct tdm__version_record *record)
{
    struct small_record small = {.epoch = (uint8_t)record->epoch,
                                 .version_highest = (uint8_t)record->version_highest,
                                 .version = (uint8_t)record->version,
                                 .number = record->update.id.bytes[2],
                                 .update_version = (uint8_t)record->update.version,
                                 .base = (uint8_t)record->update.base,
                                 .outcome = (uint8_t)record->update.outcome,
                                 .members_count = (uint8_t)record->update.members_count,
                                 .past_count = (uint8_t)record->past_updates_count};

    for (uint8_t i = 0; i < small.members_count; i++) {
        small.members[i] = record->update.members[i].member.actor.bytes[1];
        small.phases[i] = (uint8_t)record->update.members[i].phase;
        small.voted[i] = record->update.members[i].voted;
    }
    for (uint8_t i = 0; i < small.past_count; i++) {
        small.past_numbers[i] = record->past_updates[i].id.bytes[2];
        small.past_versions[i] = (uint8_t)record->past_updates[i].version;
        small.past_outcomes[i] = (uint8_t)record->past_updates[i].outcome;
    }
    return small;
}

static void require(struct search *search, bool holds, const char *what)
{
    if (!holds && search->wrong == NULL) {
        search->wrong = what;
    }
}

#define REQUIRE(expression) require(search, (expression), #expression)

static void check_world(struct search *search, const struct world *world)
{
    const struct small_record *first = &world->records[0];
    const struct small_record *second = &world->records[1];
    uint8_t served = 0;

    for (int i = 0; i < RECEIVERS; i++) {
        const struct receiver *receiver = &world->receivers[i];

        if (world->alive[process_of[i]] && !receiver->gate_is_shut && receiver->serving != 0) {
            REQUIRE(served == 0 || served == receiver->serving);
            served = receiver->serving;
        }
        if (world->alive[process_of[i]] && receiver->phase == VOTED &&
            world->records[model_of[i]].outcome == TDM__UPDATE_COMMITTED) {
            REQUIRE(receiver->shadow == world->records[model_of[i]].version);
        }
    }
    REQUIRE(first->version == second->version);
    REQUIRE(first->version_highest == second->version_highest);
    REQUIRE(first->number == second->number);
    REQUIRE((first->outcome == TDM__UPDATE_COMMITTED) ==
            (second->outcome == TDM__UPDATE_COMMITTED));
    REQUIRE(world->entered_count < MODELS || world->versions[0] == world->versions[1]);
}

static void add_world(struct search *search, const struct world *world)
{
    check_world(search, world);
    (void)state_explorer_add(&search->explorer, world, world);
}

/* Adds the next state with the source's or receiver's reply, and one in which the reply was lost.
 */
static bool may_lose(struct world *world)
{
    if (world->losses_left == 0) {
        return false;
    }
    world->losses_left--;
    return true;
}

/* ---- the source ---------------------------------------------------------------------- */

static uint32_t list_processes(const struct world *world, uint8_t model, uint8_t alive,
                               struct tdm__member members[PROCESSES])
{
    uint32_t count = 0;

    for (int i = 0; i < RECEIVERS; i++) {
        if (model_of[i] == model && world->alive[process_of[i]] == alive) {
            members[count++] = member_of(process_of[i]);
        }
    }
    return count;
}

static tdm_status apply_to_world(struct world *world,
                                 const struct tdm__version_request requests[MODELS])
{
    static struct tdm__version_record next[MODELS];
    bool changed[MODELS];
    uint32_t refused;
    tdm_status status;

    for (uint8_t i = 0; i < MODELS; i++) {
        next[i] = expand(&world->records[i], i);
    }
    status = tdm__version_apply_set(next, requests, MODELS, changed, &refused);
    for (uint8_t i = 0; i < MODELS && status == TDM_OK; i++) {
        world->records[i] = compress(&next[i]);
    }
    return status;
}

static tdm_status apply_to_model(struct world *world, uint8_t model,
                                 const struct tdm__version_request *request)
{
    static struct tdm__version_record record;
    bool changed = false;
    tdm_status status;

    record = expand(&world->records[model], model);
    status = tdm__version_apply_batched(&record, request, &changed);
    if (status == TDM_OK) {
        world->records[model] = compress(&record);
    }
    return status;
}

static void source_begins(struct search *search, struct world world)
{
    struct tdm__member members[MODELS][PROCESSES];
    struct tdm__member dead[MODELS][PROCESSES];
    struct tdm__version_request requests[MODELS];
    struct world lost;
    tdm_status status;

    world.begun_count++;
    for (uint8_t i = 0; i < MODELS; i++) {
        requests[i] =
            (struct tdm__version_request){.kind = TDM__VERSION_BEGIN,
                                          .update = id_of(i, world.begun_count),
                                          .base = world.records[i].version,
                                          .members = members[i],
                                          .members_count = list_processes(&world, i, 1, members[i]),
                                          .dead = dead[i],
                                          .dead_count = list_processes(&world, i, 0, dead[i])};
        if (requests[i].members_count == 0) {
            return; /* A model without receivers is not sent. */
        }
    }
    status = apply_to_world(&world, requests);
    lost = world;
    if (may_lose(&lost)) {
        lost.undecided = true;
        add_world(search, &lost);
    }
    if (status == TDM_OK) {
        world.undecided = true;
        for (int i = 0; i < RECEIVERS; i++) {
            world.receivers[i].mail = world.alive[process_of[i]] ? world.begun_count : 0;
        }
    }
    add_world(search, &world);
}

static void source_decides(struct search *search, struct world world,
                           enum tdm__update_outcome proposal, bool knows_dead)
{
    struct tdm__member dead[MODELS][PROCESSES];
    struct tdm__version_request requests[MODELS];
    bool mixed = (world.records[0].outcome == TDM__UPDATE_ABORTED) !=
                 (world.records[1].outcome == TDM__UPDATE_ABORTED);
    struct world lost;
    tdm_status status;

    for (uint8_t i = 0; i < MODELS; i++) {
        uint32_t dead_count = list_processes(&world, i, 0, dead[i]);

        requests[i] = (struct tdm__version_request){.kind = TDM__VERSION_DECIDE,
                                                    .update = id_of(i, world.begun_count),
                                                    .proposal = proposal,
                                                    .dead = dead[i],
                                                    .dead_count = knows_dead ? dead_count : 0};
        if (search->mutation == DECIDED_APART) {
            struct world apart = world;

            (void)apply_to_model(&apart, i, &requests[i]);
            add_world(search, &apart);
        }
    }
    if (search->mutation == DECIDED_APART) {
        return;
    }
    status = apply_to_world(&world, requests);
    REQUIRE(status == TDM_OK || status == TDM_E_STATE || status == TDM_E_NOT_FOUND);
    search->mixed_proposals += mixed && status == TDM_OK;
    if (status == TDM_OK) {
        search->commits += world.records[0].outcome == TDM__UPDATE_COMMITTED;
        search->aborts += world.records[0].outcome == TDM__UPDATE_ABORTED;
    }
    lost = world;
    if (may_lose(&lost)) {
        add_world(search, &lost);
    }
    world.undecided = status == TDM_E_STATE;
    add_world(search, &world);
}

static void source_steps(struct search *search, const struct world *world, uint8_t updates)
{
    struct world crashed = *world;

    if (!world->source_alive) {
        return;
    }
    if (world->undecided) {
        for (int knows = 0; knows < 2; knows++) {
            source_decides(search, *world, TDM__UPDATE_COMMITTED, knows != 0);
            source_decides(search, *world, TDM__UPDATE_ABORTED, knows != 0);
        }
    } else if (world->begun_count < updates) {
        source_begins(search, *world);
    }
    if (crashed.crashes_left > 0) {
        crashed.crashes_left--;
        crashed.source_alive = false;
        add_world(search, &crashed);
    }
}

/* ---- receivers ----------------------------------------------------------------------- */

static void receiver_rests(struct receiver *receiver)
{
    receiver->phase = RESTING;
    receiver->shadow = 0;
    receiver->gate_is_shut = false;
}

static void receiver_stages(struct search *search, struct world world, int index)
{
    struct receiver *receiver = &world.receivers[index];
    const struct small_record *record = &world.records[model_of[index]];

    receiver->update = receiver->mail;
    receiver->mail = 0;
    if (record->number == receiver->update) {
        receiver->phase = STAGED;
        receiver->shadow = record->update_version;
    }
    add_world(search, &world);
}

static void receiver_votes(struct search *search, struct world world, int index)
{
    struct receiver *receiver = &world.receivers[index];
    struct world lost;
    tdm_status status;

    receiver->gate_is_shut = true;
    status = apply_to_model(
        &world, model_of[index],
        &(struct tdm__version_request){.kind = TDM__VERSION_PREPARED,
                                       .update = id_of(model_of[index], receiver->update),
                                       .member = member_of(process_of[index]),
                                       .hash = {0, receiver->shadow}});
    lost = world;
    if (may_lose(&lost)) {
        lost.receivers[index].phase = VOTED; /* The vote may count. */
        add_world(search, &lost);
    }
    if (status == TDM_OK) {
        receiver->phase = VOTED;
    } else {
        receiver_rests(receiver);
    }
    add_world(search, &world);
}

/* Lets a receiver that waits too long propose to abort its own model and obey what is stored. It
 * may do so at any time. */
static void receiver_asks(struct search *search, struct world world, int index)
{
    struct receiver *receiver = &world.receivers[index];
    struct tdm__id id = id_of(model_of[index], receiver->update);
    enum tdm__update_outcome outcome = TDM__UPDATE_UNDECIDED;
    struct tdm__version_record record;
    struct world lost;
    tdm_status status = apply_to_model(
        &world, model_of[index],
        &(struct tdm__version_request){
            .kind = TDM__VERSION_DECIDE, .update = id, .proposal = TDM__UPDATE_ABORTED});

    REQUIRE(status == TDM_OK);
    lost = world;
    if (may_lose(&lost)) {
        add_world(search, &lost);
    }
    record = expand(&world.records[model_of[index]], model_of[index]);
    (void)tdm__version_outcome(&record, &id, &outcome);
    if (outcome == TDM__UPDATE_COMMITTED) {
        receiver->serving = receiver->shadow;
        receiver->gate_is_shut = false;
        receiver->phase = FLIPPED;
    } else {
        receiver_rests(receiver);
    }
    add_world(search, &world);
}

static void receiver_reports(struct search *search, struct world world, int index)
{
    struct receiver *receiver = &world.receivers[index];

    REQUIRE(apply_to_model(
                &world, model_of[index],
                &(struct tdm__version_request){.kind = TDM__VERSION_FLIPPED,
                                               .update = id_of(model_of[index], receiver->update),
                                               .member = member_of(process_of[index])}) == TDM_OK);
    receiver_rests(receiver);
    add_world(search, &world);
}

static void receiver_steps(struct search *search, const struct world *world, int index)
{
    const struct receiver *receiver = &world->receivers[index];
    bool has_reader = process_of[index] == 0 && model_of[index] < world->entered_count;

    if (!world->alive[process_of[index]]) {
        return;
    }
    if (receiver->mail != 0 && receiver->phase <= STAGED) {
        receiver_stages(search, *world, index);
    }
    if (receiver->phase == STAGED && (!has_reader || search->mutation == VOTE_DURING_READING)) {
        receiver_votes(search, *world, index);
    }
    if (receiver->phase == VOTED) {
        receiver_asks(search, *world, index);
    }
    if (receiver->phase == FLIPPED) {
        receiver_reports(search, *world, index);
    }
}

/* ---- the reader and crashes ---------------------------------------------------------- */

/* Lets the reader of the first process pass the next gate, or give up the gates that it has passed.
 * Receiver `i` of that process is that of model `i`. */
static void reader_steps(struct search *search, struct world world)
{
    const struct receiver *next = &world.receivers[world.entered_count];
    struct world leaves = world;

    if (!world.alive[0]) {
        return;
    }
    if (world.entered_count > 0) {
        leaves.entered_count = 0;
        memset(leaves.versions, 0, sizeof(leaves.versions));
        add_world(search, &leaves);
    }
    if (world.entered_count < MODELS && next->serving != 0 &&
        (!next->gate_is_shut || search->mutation == READER_PASSES_GATE)) {
        world.versions[world.entered_count++] = next->serving;
        search->reads += world.entered_count == MODELS;
        add_world(search, &world);
    }
}

static void process_crashes(struct search *search, struct world world, int process)
{
    if (world.crashes_left == 0 || !world.alive[process]) {
        return;
    }
    world.crashes_left--;
    world.alive[process] = false;
    for (int i = 0; i < RECEIVERS; i++) {
        if (process_of[i] == process) {
            memset(&world.receivers[i], 0, sizeof(world.receivers[i]));
        }
    }
    if (process == 0) {
        world.entered_count = 0;
        memset(world.versions, 0, sizeof(world.versions));
    }
    add_world(search, &world);
}

/* Visits all states; returns the first violation, or NULL. */
static const char *explore(enum mutation mutation, uint8_t updates, uint8_t crashes, uint8_t losses)
{
    struct search search = {.mutation = mutation};
    struct world world;

    memset(&world, 0, sizeof(world));
    world.source_alive = true;
    world.alive[0] = world.alive[1] = true;
    world.crashes_left = crashes;
    world.losses_left = losses;
    state_explorer_init_plain(&search.explorer, sizeof(world), STATES_MAX);
    add_world(&search, &world);
    while (search.wrong == NULL && state_explorer_next(&search.explorer, &world)) {
        source_steps(&search, &world, updates);
        for (int i = 0; i < RECEIVERS; i++) {
            receiver_steps(&search, &world, i);
        }
        reader_steps(&search, world);
        for (int i = 0; i < PROCESSES; i++) {
            process_crashes(&search, world, i);
        }
    }
    printf("mutation %d, %u updates, %u crashes, %u lost replies: %u states, %u decisions to "
           "commit, %u to abort, %u after an abort of one model, %u reads of both models%s%s\n",
           mutation, updates, crashes, losses, search.explorer.seen, search.commits, search.aborts,
           search.mixed_proposals, search.reads, search.wrong == NULL ? "" : ": ",
           search.wrong == NULL ? "" : search.wrong);
    assert_true(search.wrong != NULL || (search.commits > 0 && search.aborts > 0 &&
                                         search.mixed_proposals > 0 && search.reads > 0));
    state_explorer_fini(&search.explorer);
    return search.wrong;
}

static void no_order_lets_one_model_go_live_without_the_other(void **state)
{
    (void)state;
    assert_null(explore(NO_MUTATION, 2, 2, 2));
    assert_null(explore(NO_MUTATION, 3, 1, 1));
}

static void mutations_are_found(void **state)
{
    (void)state;
    for (int mutation = NO_MUTATION + 1; mutation < MUTATIONS; mutation++) {
        assert_non_null(explore((enum mutation)mutation, 2, 1, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(set_gets_one_version_above_all_before, forget_records),
        cmocka_unit_test_setup(begin_that_one_record_refuses_begins_nothing, forget_records),
        cmocka_unit_test_setup(missing_vote_of_one_model_keeps_both_undecided, forget_records),
        cmocka_unit_test_setup(abort_of_one_model_aborts_the_other, forget_records),
        cmocka_unit_test_setup(dead_member_of_one_model_aborts_both, forget_records),
        cmocka_unit_test_setup(outcomes_that_were_stored_apart_are_a_conflict, forget_records),
        cmocka_unit_test_setup(requests_that_are_no_set_are_refused, forget_records),
        cmocka_unit_test(no_order_lets_one_model_go_live_without_the_other),
        cmocka_unit_test(mutations_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
