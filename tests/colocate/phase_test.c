/* phase_test.c - the GPU is shared safely in every state that a job can reach. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/phase.h"

#include "tests/support/state_explorer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ENGINES_COUNT = 2, ENGINES_MAX = 3, EVENTS_COUNT = TDM__PHASE_ACTION_FAILED + 1 };

/* ---- examples --------------------------------------------------------------------------- */

static struct tdm__phase job;

static int open_job(void **state)
{
    (void)state;
    tdm__phase_init(&job, ENGINES_COUNT, ENGINES_COUNT, 1);
    return 0;
}

static void tells(enum tdm__phase_event_kind kind, enum tdm__phase_action wanted)
{
    struct tdm__phase_event event = {.kind = kind, .version = job.committed_version + 1};
    enum tdm__phase_action action;

    assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_OK);
    assert_int_equal(action, wanted);
}

static void refuses(enum tdm__phase_event_kind kind)
{
    struct tdm__phase_event event = {.kind = kind, .version = job.committed_version + 1};
    enum tdm__phase_action action;

    assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_E_STATE);
}

static void reach_rollout(void)
{
    tells(TDM__PHASE_UPDATE_WANTED, TDM__PHASE_DO_RESUME_WEIGHTS);
    tells(TDM__PHASE_WEIGHTS_RESUMED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_COMMITTED, TDM__PHASE_DO_FLUSH);
    tells(TDM__PHASE_CACHES_FLUSHED, TDM__PHASE_DO_RESUME_KV);
    tells(TDM__PHASE_KV_RESUMED, TDM__PHASE_DO_NOTHING);
    assert_int_equal(job.phase, TDM__PHASE_ROLLOUT);
}

static void step_goes_once_around(void **state)
{
    (void)state;
    reach_rollout();
    tells(TDM__PHASE_GENERATE_REQUESTED, TDM__PHASE_DO_GENERATE);
    tells(TDM__PHASE_GENERATE_DONE, TDM__PHASE_DO_NOTHING);
    tells(TDM__PHASE_ROLLOUT_DONE, TDM__PHASE_DO_PAUSE_ENGINES);
    tells(TDM__PHASE_ENGINES_PAUSED, TDM__PHASE_DO_RESUME_TRAINER);
    tells(TDM__PHASE_TRAINER_RESUMED, TDM__PHASE_DO_TRAIN);
    tells(TDM__PHASE_STEP_DONE, TDM__PHASE_DO_PAUSE_TRAINER);
    tells(TDM__PHASE_TRAINER_PAUSED, TDM__PHASE_DO_RESUME_WEIGHTS);
    tells(TDM__PHASE_WEIGHTS_RESUMED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_COMMITTED, TDM__PHASE_DO_FLUSH);
    tells(TDM__PHASE_CACHES_FLUSHED, TDM__PHASE_DO_RESUME_KV);
    tells(TDM__PHASE_KV_RESUMED, TDM__PHASE_DO_NOTHING);
    assert_int_equal(job.serving_version, 2);
}

static void engines_are_paused_after_the_last_call(void **state)
{
    (void)state;
    reach_rollout();
    tells(TDM__PHASE_GENERATE_REQUESTED, TDM__PHASE_DO_GENERATE);
    tells(TDM__PHASE_ROLLOUT_DONE, TDM__PHASE_DO_NOTHING);
    refuses(TDM__PHASE_GENERATE_REQUESTED);
    assert_string_equal(tdm_error_detail(), "generate_requested does not belong in DRAIN");
    tells(TDM__PHASE_GENERATE_DONE, TDM__PHASE_DO_PAUSE_ENGINES);
}

static void aborted_update_is_tried_again_then_the_old_version_serves(void **state)
{
    (void)state;
    reach_rollout();
    tells(TDM__PHASE_ROLLOUT_DONE, TDM__PHASE_DO_PAUSE_ENGINES);
    tells(TDM__PHASE_ENGINES_PAUSED, TDM__PHASE_DO_RESUME_TRAINER);
    tells(TDM__PHASE_TRAINER_RESUMED, TDM__PHASE_DO_TRAIN);
    tells(TDM__PHASE_STEP_DONE, TDM__PHASE_DO_PAUSE_TRAINER);
    tells(TDM__PHASE_TRAINER_PAUSED, TDM__PHASE_DO_RESUME_WEIGHTS);
    tells(TDM__PHASE_WEIGHTS_RESUMED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_FLUSH);
    tells(TDM__PHASE_CACHES_FLUSHED, TDM__PHASE_DO_RESUME_KV);
    tells(TDM__PHASE_KV_RESUMED, TDM__PHASE_DO_NOTHING);
    assert_int_equal(job.serving_version, 1);
    assert_true(tdm__phase_allows_generate(&job));
}

/* Without its engine the update may succeed, also if it was aborted before for another reason. */
static void update_is_tried_again_after_each_death_of_an_engine(void **state)
{
    struct tdm__phase_event death = {.kind = TDM__PHASE_PARTICIPANT_DIED,
                                     .participant = TDM__PHASE_ENGINE};
    enum tdm__phase_action action;

    (void)state;
    tdm__phase_init(&job, ENGINES_COUNT, 0, 1);
    tells(TDM__PHASE_UPDATE_WANTED, TDM__PHASE_DO_RESUME_WEIGHTS);
    tells(TDM__PHASE_WEIGHTS_RESUMED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_UPDATE);
    assert_int_equal(tdm__phase_handle_event(&job, &death, &action), TDM_OK);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_FAIL);
}

static void aborted_update_that_overwrites_leaves_no_version(void **state)
{
    (void)state;
    tdm__phase_set_overwriting(&job);
    reach_rollout();
    tells(TDM__PHASE_ROLLOUT_DONE, TDM__PHASE_DO_PAUSE_ENGINES);
    tells(TDM__PHASE_ENGINES_PAUSED, TDM__PHASE_DO_RESUME_TRAINER);
    tells(TDM__PHASE_TRAINER_RESUMED, TDM__PHASE_DO_TRAIN);
    tells(TDM__PHASE_STEP_DONE, TDM__PHASE_DO_PAUSE_TRAINER);
    tells(TDM__PHASE_TRAINER_PAUSED, TDM__PHASE_DO_RESUME_WEIGHTS);
    tells(TDM__PHASE_WEIGHTS_RESUMED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_FAIL);
    assert_string_equal(job.failure,
                        "the update was aborted, and its engines hold no version, in UPDATE");
    assert_int_equal(job.serving_version, 0);
}

/* Torn engines copy the version of one that still holds it. */
static void aborted_update_that_overwrites_leaves_the_version_of_a_holder(void **state)
{
    struct tdm__phase_event aborted = {.kind = TDM__PHASE_UPDATE_ABORTED, .holders = 1};
    uint64_t version;
    enum tdm__phase_action action;

    (void)state;
    tdm__phase_set_overwriting(&job);
    reach_rollout();
    version = job.serving_version;
    tells(TDM__PHASE_ROLLOUT_DONE, TDM__PHASE_DO_PAUSE_ENGINES);
    tells(TDM__PHASE_ENGINES_PAUSED, TDM__PHASE_DO_RESUME_TRAINER);
    tells(TDM__PHASE_TRAINER_RESUMED, TDM__PHASE_DO_TRAIN);
    tells(TDM__PHASE_STEP_DONE, TDM__PHASE_DO_PAUSE_TRAINER);
    tells(TDM__PHASE_TRAINER_PAUSED, TDM__PHASE_DO_RESUME_WEIGHTS);
    tells(TDM__PHASE_WEIGHTS_RESUMED, TDM__PHASE_DO_UPDATE);
    assert_int_equal(tdm__phase_handle_event(&job, &aborted, &action), TDM_OK);
    assert_int_equal(action, TDM__PHASE_DO_UPDATE);
    assert_int_equal(tdm__phase_handle_event(&job, &aborted, &action), TDM_OK);
    assert_int_equal(action, TDM__PHASE_DO_FLUSH);
    tells(TDM__PHASE_CACHES_FLUSHED, TDM__PHASE_DO_RESUME_KV);
    assert_int_equal(job.serving_version, version);
}

static void the_first_update_cannot_be_done_without(void **state)
{
    (void)state;
    tells(TDM__PHASE_UPDATE_WANTED, TDM__PHASE_DO_RESUME_WEIGHTS);
    tells(TDM__PHASE_WEIGHTS_RESUMED, TDM__PHASE_DO_UPDATE);
    refuses(TDM__PHASE_UPDATE_SKIPPED);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_UPDATE);
    tells(TDM__PHASE_UPDATE_ABORTED, TDM__PHASE_DO_FAIL);
    assert_string_equal(job.failure, "the first update was aborted in UPDATE");
}

static void versions_never_go_back(void **state)
{
    struct tdm__phase_event event = {.kind = TDM__PHASE_UPDATE_COMMITTED, .version = 41};
    enum tdm__phase_action action;

    (void)state;
    tdm__phase_set_base_version(&job, 41);
    tells(TDM__PHASE_UPDATE_WANTED, TDM__PHASE_DO_RESUME_WEIGHTS);
    tells(TDM__PHASE_WEIGHTS_RESUMED, TDM__PHASE_DO_UPDATE);
    assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_E_STATE);
    tells(TDM__PHASE_UPDATE_COMMITTED, TDM__PHASE_DO_FLUSH);
    assert_int_equal(job.committed_version, 42);
}

static void failed_job_keeps_naming_process_and_phase(void **state)
{
    struct tdm__phase_event event = {.kind = TDM__PHASE_PARTICIPANT_DIED,
                                     .participant = TDM__PHASE_ENGINE,
                                     .participant_name = "engine 1 rank 0",
                                     .text = "signal 9"};
    enum tdm__phase_action action;

    (void)state;
    reach_rollout();
    assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_OK);
    assert_int_equal(action, TDM__PHASE_DO_FAIL);
    event.kind = TDM__PHASE_GENERATE_DONE;
    assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_E_ABORTED);
    assert_string_equal(tdm_error_detail(), "engine 1 rank 0 died in ROLLOUT: signal 9");
}

static void job_goes_on_while_enough_engines_live(void **state)
{
    struct tdm__phase_event event = {.kind = TDM__PHASE_PARTICIPANT_DIED,
                                     .participant = TDM__PHASE_ENGINE,
                                     .participant_name = "engine 1"};
    enum tdm__phase_action action;

    (void)state;
    tdm__phase_init(&job, 2, 1, 0);
    reach_rollout();
    assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_OK);
    assert_int_equal(action, TDM__PHASE_DO_NOTHING);
    assert_true(tdm__phase_allows_generate(&job));
    event.participant_name = "engine 0";
    assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_OK);
    assert_int_equal(action, TDM__PHASE_DO_FAIL);
}

static void many_engines_are_counted_one_by_one(void **state)
{
    struct tdm__phase_event event = {.kind = TDM__PHASE_PARTICIPANT_DIED,
                                     .participant = TDM__PHASE_ENGINE,
                                     .participant_name = "engine 70"};
    enum tdm__phase_action action;

    (void)state;
    tdm__phase_init(&job, 256, 70, 0);
    reach_rollout();
    for (uint32_t left = 256; left > 70; left--) {
        assert_int_equal(job.engines_alive, left);
        assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_OK);
        assert_int_equal(action, TDM__PHASE_DO_NOTHING);
        assert_true(tdm__phase_allows_generate(&job));
    }
    assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_OK);
    assert_int_equal(action, TDM__PHASE_DO_FAIL);
}

static void engine_that_is_back_counts_again(void **state)
{
    struct tdm__phase_event event = {.kind = TDM__PHASE_PARTICIPANT_DIED,
                                     .participant = TDM__PHASE_ENGINE,
                                     .participant_name = "engine 1"};
    enum tdm__phase_action action;

    (void)state;
    tdm__phase_init(&job, 2, 1, 0);
    reach_rollout();
    refuses(TDM__PHASE_ENGINE_RECOVERED);
    assert_string_equal(tdm_error_detail(), "engine_recovered does not belong in ROLLOUT");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm__phase_handle_event(&job, &event, &action), TDM_OK);
        assert_int_equal(action, TDM__PHASE_DO_NOTHING);
        tells(TDM__PHASE_ENGINE_RECOVERED, TDM__PHASE_DO_NOTHING);
    }
    assert_int_equal(job.engines_alive, 2);
}

static void added_engine_counts_when_it_runs(void **state)
{
    struct tdm__phase_event died = {.kind = TDM__PHASE_PARTICIPANT_DIED,
                                    .participant = TDM__PHASE_ENGINE,
                                    .participant_name = "engine 2"};
    enum tdm__phase_action action;

    (void)state;
    refuses(TDM__PHASE_ENGINE_ADDED);
    assert_string_equal(tdm_error_detail(), "engine_added does not belong in EMPTY");
    reach_rollout();
    tells(TDM__PHASE_ENGINE_ADDED, TDM__PHASE_DO_NOTHING);
    assert_int_equal(job.engines_count, ENGINES_COUNT + 1);
    assert_int_equal(job.engines_alive, ENGINES_COUNT);
    assert_true(tdm__phase_allows_generate(&job));
    tells(TDM__PHASE_ENGINE_RECOVERED, TDM__PHASE_DO_NOTHING);
    assert_int_equal(job.engines_alive, ENGINES_COUNT + 1);
    assert_int_equal(tdm__phase_handle_event(&job, &died, &action), TDM_OK);
    assert_int_equal(action, TDM__PHASE_DO_NOTHING);
}

static void only_an_engine_that_does_not_run_and_is_not_needed_is_removed(void **state)
{
    struct tdm__phase_event died = {.kind = TDM__PHASE_PARTICIPANT_DIED,
                                    .participant = TDM__PHASE_ENGINE,
                                    .participant_name = "engine 1"};
    enum tdm__phase_action action;

    (void)state;
    tdm__phase_init(&job, 2, 0, 0);
    reach_rollout();
    refuses(TDM__PHASE_ENGINE_REMOVED); /* Both run. */
    assert_int_equal(tdm__phase_handle_event(&job, &died, &action), TDM_OK);
    tells(TDM__PHASE_ENGINE_REMOVED, TDM__PHASE_DO_NOTHING);
    assert_int_equal(job.engines_count, 1);
    assert_int_equal(job.engines_alive, 1);
    assert_int_equal(tdm__phase_handle_event(&job, &died, &action), TDM_OK);
    refuses(TDM__PHASE_ENGINE_REMOVED); /* It is the last one. */
    open_job(state);
    reach_rollout();
    tells(TDM__PHASE_ENGINE_ADDED, TDM__PHASE_DO_NOTHING);
    tells(TDM__PHASE_ENGINE_REMOVED, TDM__PHASE_DO_NOTHING);
    refuses(TDM__PHASE_ENGINE_REMOVED); /* Both of the others are needed. */
}

static void job_may_lose_all_engines_if_they_come_back(void **state)
{
    struct tdm__phase_event died = {.kind = TDM__PHASE_PARTICIPANT_DIED,
                                    .participant = TDM__PHASE_ENGINE,
                                    .participant_name = "engine 0"};
    struct tdm__phase_event resupplied = {.kind = TDM__PHASE_WEIGHTS_RECOVERED, .version = 1};
    enum tdm__phase_action action;

    (void)state;
    tdm__phase_init(&job, 1, 0, 0);
    reach_rollout();
    assert_int_equal(tdm__phase_handle_event(&job, &died, &action), TDM_OK);
    assert_int_equal(action, TDM__PHASE_DO_NOTHING);
    tells(TDM__PHASE_ENGINE_RECOVERED, TDM__PHASE_DO_NOTHING);
    assert_int_equal(tdm__phase_handle_event(&job, &resupplied, &action),
                     TDM_E_STATE); /* The version is not newer. */
    tells(TDM__PHASE_WEIGHTS_RECOVERED, TDM__PHASE_DO_NOTHING);
    assert_int_equal(job.serving_version, 2);
    assert_true(tdm__phase_allows_generate(&job));
    tells(TDM__PHASE_ROLLOUT_DONE, TDM__PHASE_DO_PAUSE_ENGINES);
    refuses(TDM__PHASE_WEIGHTS_RECOVERED);
}

/* ---- every state ------------------------------------------------------------------------ */

/* Sizes on a card of CARD: the two sides do not fit together, and during an update there is no
 * room for the KV cache beside the staged image. */
enum { CARD = 8, TRAINER = 6, WEIGHTS = 3, STAGED = 3, KV = 4, CALLS_MAX = 2, VERSIONS_MAX = 3 };

/* The true state of the job, independent of the state machine. */
struct world {
    uint8_t has_trainer;
    uint8_t has_weights;
    uint8_t has_kv;
    uint8_t calls;
    uint8_t engines;     /* Number of engines of the job. */
    uint64_t decided;    /* Last version that the cluster decided. */
    uint64_t installed;  /* Version in the engines' weights. */
    uint64_t flipped_to; /* Version that a flip would install while it is staged; else 0. */
};

struct place {
    struct tdm__phase job;
    struct world world;
};

enum violation {
    OVERFULL = 1 << 0, /* The resident memory exceeds the GPU's capacity. */
    FAULT = 1 << 1,    /* An action uses memory that is paused. */
    STALE = 1 << 2,    /* A generate call uses other weights than the committed ones. */
    UNTRUE = 1 << 3,   /* The resident bits differ from the true state. */
    MISLED = 1 << 4,   /* An impossible event was accepted, or a true one was refused. */
    STUCK = 1 << 5,    /* No sequence of events leads to a rollout. */
    NAMELESS = 1 << 6, /* a failure that does not say participant_name */
    EVERYTHING = (1 << 7) - 1
};

typedef tdm_status next_function(struct tdm__phase *state, const struct tdm__phase_event *event,
                                 enum tdm__phase_action *action_out);

enum { STATES_MAX = 1 << 14, EDGES_MAX = 1 << 17 };

struct phase_exploration {
    struct state_explorer walk;
    next_function *next;
    unsigned checked;
    unsigned violations;
    /* Fault of the simulated job: resuming the weights also resumes the KV cache. */
    bool resume_widens;
    uint32_t number; /* Number of the state that is visited. */
    uint32_t edges_count;
    uint32_t edges[EDGES_MAX][2]; /* Transitions without deaths and failures. */
    bool is_end[STATES_MAX];      /* True for an open rollout or a failed job. */
};

static void violate(struct phase_exploration *walk, unsigned violation)
{
    walk->violations |= violation & walk->checked;
}

static void need(struct phase_exploration *walk, bool holds, unsigned violation)
{
    if (!holds) {
        violate(walk, violation);
    }
}

/* Checks the true state while the action that was returned is carried out. */
static void check_action(struct phase_exploration *walk, const struct place *place)
{
    const struct world *world = &place->world;

    switch (place->job.open) {
    case TDM__PHASE_DO_PAUSE_ENGINES:
        need(walk, world->calls == 0, FAULT);
        return;
    case TDM__PHASE_DO_TRAIN:
        need(walk, world->has_trainer, FAULT);
        return;
    case TDM__PHASE_DO_UPDATE:
    case TDM__PHASE_DO_FLUSH:
        need(walk, world->has_weights, FAULT);
        return;
    case TDM__PHASE_DO_NOTHING:
    case TDM__PHASE_DO_RESUME_TRAINER:
    case TDM__PHASE_DO_PAUSE_TRAINER:
    case TDM__PHASE_DO_RESUME_WEIGHTS:
    case TDM__PHASE_DO_RESUME_KV:
    case TDM__PHASE_DO_GENERATE:
    case TDM__PHASE_DO_FAIL:
        return;
    }
}

static void check_place(struct phase_exploration *walk, const struct place *place)
{
    const struct world *world = &place->world;
    bool stages = place->job.open == TDM__PHASE_DO_UPDATE || place->job.open == TDM__PHASE_DO_FLUSH;
    uint32_t resident = (world->has_trainer ? TDM__PHASE_HAS_TRAINER : 0u) |
                        (world->has_weights ? TDM__PHASE_HAS_WEIGHTS : 0u) |
                        (world->has_kv ? TDM__PHASE_HAS_KV : 0u);
    int used = TRAINER * world->has_trainer + WEIGHTS * world->has_weights + KV * world->has_kv +
               STAGED * stages;

    if (place->job.phase == TDM__PHASE_FAILED) {
        need(walk, place->job.failure[0] != '\0', NAMELESS);
        return;
    }
    need(walk, used <= CARD, OVERFULL);
    need(walk, resident == place->job.resident, UNTRUE);
    need(walk, place->job.engines_count == world->engines, UNTRUE);
    need(walk, place->job.engines_alive <= world->engines, UNTRUE);
    need(walk, world->calls == 0 || (world->has_weights && world->has_kv), FAULT);
    check_action(walk, place);
}

/* Adds or removes an engine. The last one, and one that runs, are needed. */
static bool world_changes_engines(struct place *place, enum tdm__phase_event_kind kind)
{
    struct world *world = &place->world;

    world->engines =
        (uint8_t)(kind == TDM__PHASE_ENGINE_ADDED ? world->engines + 1 : world->engines - 1);
    return place->job.phase == TDM__PHASE_ROLLOUT && world->engines >= 1 &&
           world->engines <= ENGINES_MAX && place->job.engines_alive <= world->engines;
}

/* Changes the true state as the event requires. Returns false if the event cannot happen here. */
static bool world_does(struct phase_exploration *walk, struct place *place,
                       enum tdm__phase_event_kind kind)
{
    struct world *world = &place->world;
    enum tdm__phase_action open = place->job.open;

    switch (kind) {
    case TDM__PHASE_TRAIN_WANTED:
    case TDM__PHASE_UPDATE_WANTED:
        return place->job.phase == TDM__PHASE_EMPTY;
    /* Can happen at any time and must be accepted where it is allowed. */
    case TDM__PHASE_GENERATE_REQUESTED:
    case TDM__PHASE_ROLLOUT_DONE:
        return place->job.phase == TDM__PHASE_ROLLOUT;
    case TDM__PHASE_GENERATE_DONE:
        return world->calls > 0 && world->calls-- > 0;
    case TDM__PHASE_ENGINES_PAUSED:
        world->has_weights = world->has_kv = 0;
        return open == TDM__PHASE_DO_PAUSE_ENGINES;
    case TDM__PHASE_TRAINER_RESUMED:
        world->has_trainer = 1;
        return open == TDM__PHASE_DO_RESUME_TRAINER;
    case TDM__PHASE_STEP_DONE:
        return open == TDM__PHASE_DO_TRAIN;
    case TDM__PHASE_TRAINER_PAUSED:
        world->has_trainer = 0;
        return open == TDM__PHASE_DO_PAUSE_TRAINER;
    case TDM__PHASE_WEIGHTS_RESUMED:
        world->has_weights = 1;
        world->has_kv = walk->resume_widens;
        return open == TDM__PHASE_DO_RESUME_WEIGHTS;
    case TDM__PHASE_UPDATE_COMMITTED:
        world->flipped_to = ++world->decided;
        return open == TDM__PHASE_DO_UPDATE && world->decided <= VERSIONS_MAX;
    case TDM__PHASE_UPDATE_ABORTED:
        return open == TDM__PHASE_DO_UPDATE;
    case TDM__PHASE_UPDATE_SKIPPED:
        return open == TDM__PHASE_DO_UPDATE && world->installed > 0;
    case TDM__PHASE_CACHES_FLUSHED:
        world->installed = world->flipped_to > 0 ? world->flipped_to : world->installed;
        world->flipped_to = 0;
        return open == TDM__PHASE_DO_FLUSH;
    case TDM__PHASE_KV_RESUMED:
        world->has_kv = 1;
        return open == TDM__PHASE_DO_RESUME_KV;
    case TDM__PHASE_WEIGHTS_RECOVERED:
        world->installed = ++world->decided;
        return (place->job.phase == TDM__PHASE_ROLLOUT ||
                place->job.phase == TDM__PHASE_RESUME_ENGINE) &&
               world->decided <= VERSIONS_MAX;
    case TDM__PHASE_ENGINE_RECOVERED:
        return place->job.engines_alive < world->engines;
    case TDM__PHASE_ENGINE_ADDED:
    case TDM__PHASE_ENGINE_REMOVED:
        return world_changes_engines(place, kind);
    case TDM__PHASE_PARTICIPANT_DIED:
    case TDM__PHASE_ACTION_FAILED:
        return true;
    }
    return false;
}

static void begin_call(struct phase_exploration *walk, struct world *world)
{
    need(walk, world->has_weights && world->has_kv, FAULT);
    need(walk, world->installed == world->decided && world->installed > 0, STALE);
    world->calls++;
}

static void add_place(struct phase_exploration *walk, const struct place *place, bool is_failure)
{
    uint32_t number = state_explorer_add(&walk->walk, place, place);

    assert_in_range(number, 0, STATES_MAX - 1);
    walk->is_end[number] =
        place->job.phase == TDM__PHASE_ROLLOUT || place->job.phase == TDM__PHASE_FAILED;
    if (!is_failure) {
        assert_in_range(walk->edges_count, 0, EDGES_MAX - 1);
        walk->edges[walk->edges_count][0] = walk->number;
        walk->edges[walk->edges_count++][1] = number;
    }
}

static struct tdm__phase_event event_of(const struct place *place, enum tdm__phase_event_kind kind,
                                        int participant)
{
    return (struct tdm__phase_event){
        .kind = kind,
        .version = place->world.decided,
        .participant = (enum tdm__phase_participant)participant,
        .participant_name = participant == TDM__PHASE_TRAINER ? "trainer rank 0" : "engine 1"};
}

/* Applies an event. An impossible event must be refused and change nothing. */
static void go(struct phase_exploration *walk, const struct place *from,
               enum tdm__phase_event_kind kind, int participant)
{
    struct place place = *from;
    bool is_true = world_does(walk, &place, kind);
    bool is_failure = kind == TDM__PHASE_PARTICIPANT_DIED || kind == TDM__PHASE_ACTION_FAILED;
    enum tdm__phase_action action = TDM__PHASE_DO_NOTHING;
    struct tdm__phase_event event = event_of(&place, kind, participant);

    if ((kind == TDM__PHASE_UPDATE_COMMITTED || kind == TDM__PHASE_WEIGHTS_RECOVERED) &&
        place.world.decided > VERSIONS_MAX) {
        return; /* Limits the exploration. */
    }
    if ((kind == TDM__PHASE_GENERATE_REQUESTED && from->world.calls == CALLS_MAX) ||
        (kind == TDM__PHASE_ENGINE_ADDED && from->world.engines == ENGINES_MAX)) {
        return;
    }
    if (walk->next(&place.job, &event, &action) != TDM_OK) {
        need(walk, !is_true && memcmp(&place.job, &from->job, sizeof(place.job)) == 0, MISLED);
        return;
    }
    if (action == TDM__PHASE_DO_GENERATE) {
        begin_call(walk, &place.world);
    }
    need(walk, is_true, MISLED);
    if (walk->violations == 0 && is_true) {
        add_place(walk, &place, is_failure);
    }
}

static void visit(struct phase_exploration *walk, const struct place *place)
{
    check_place(walk, place);
    if (place->job.phase == TDM__PHASE_FAILED) {
        return;
    }
    for (int kind = 0; kind < EVENTS_COUNT; kind++) {
        go(walk, place, (enum tdm__phase_event_kind)kind, TDM__PHASE_ENGINE);
    }
    go(walk, place, TDM__PHASE_PARTICIPANT_DIED, TDM__PHASE_TRAINER);
}

/* Follows the transitions backwards from the end states until no new state is reached. */
static void check_not_stuck(struct phase_exploration *walk)
{
    bool grows = true;

    while (grows) {
        grows = false;
        for (uint32_t i = 0; i < walk->edges_count; i++) {
            if (walk->is_end[walk->edges[i][1]] && !walk->is_end[walk->edges[i][0]]) {
                walk->is_end[walk->edges[i][0]] = true;
                grows = true;
            }
        }
    }
    for (uint32_t i = 0; i < walk->walk.seen; i++) {
        need(walk, walk->is_end[i], STUCK);
    }
}

static unsigned walk_all(next_function *next, bool resume_widens, unsigned checked)
{
    static struct phase_exploration walk;
    struct place place;

    memset(&walk, 0, sizeof(walk));
    memset(&place, 0, sizeof(place));
    walk.next = next;
    walk.resume_widens = resume_widens;
    walk.checked = checked;
    state_explorer_init(&walk.walk, sizeof(place), sizeof(place));
    tdm__phase_init(&place.job, ENGINES_COUNT, 1, 1);
    place.world.engines = ENGINES_COUNT;
    (void)state_explorer_add(&walk.walk, &place, &place);
    while (walk.violations == 0 && state_explorer_next(&walk.walk, &place)) {
        walk.number = walk.walk.visited - 1;
        visit(&walk, &place);
    }
    if (walk.violations == 0) {
        check_not_stuck(&walk);
    }
    print_message("%u states, %llu transitions, violations %#x\n", walk.walk.seen,
                  (unsigned long long)walk.walk.transitions, walk.violations);
    state_explorer_fini(&walk.walk);
    return walk.violations;
}

static void the_card_is_safe_in_every_state(void **state)
{
    (void)state;
    assert_int_equal(walk_all(tdm__phase_handle_event, false, EVERYTHING), 0);
}

/* ---- mutations must be found --------------------------------------------------------------- */

/* Mutation: assumes the result of an action as soon as it is returned. */
static tdm_status next_answering(struct tdm__phase *state, const struct tdm__phase_event *event,
                                 enum tdm__phase_action action, enum tdm__phase_event_kind answer,
                                 enum tdm__phase_action *action_out)
{
    struct tdm__phase_event given = {.kind = answer};
    tdm_status status = tdm__phase_handle_event(state, event, action_out);

    if (status == TDM_OK && *action_out == action) {
        status = tdm__phase_handle_event(state, &given, action_out);
    }
    return status;
}

/* Mutation: counts the engines' release before it has happened. */
static tdm_status next_books_early(struct tdm__phase *state, const struct tdm__phase_event *event,
                                   enum tdm__phase_action *action_out)
{
    return next_answering(state, event, TDM__PHASE_DO_PAUSE_ENGINES, TDM__PHASE_ENGINES_PAUSED,
                          action_out);
}

static tdm_status next_trains_on_paused(struct tdm__phase *state,
                                        const struct tdm__phase_event *event,
                                        enum tdm__phase_action *action_out)
{
    return next_answering(state, event, TDM__PHASE_DO_RESUME_TRAINER, TDM__PHASE_TRAINER_RESUMED,
                          action_out);
}

/* Mutation: reports the new version before the engines have switched to it. */
static tdm_status next_skips_flush(struct tdm__phase *state, const struct tdm__phase_event *event,
                                   enum tdm__phase_action *action_out)
{
    return next_answering(state, event, TDM__PHASE_DO_FLUSH, TDM__PHASE_CACHES_FLUSHED, action_out);
}

/* Mutation: accepts generate calls as soon as the weights are resident. */
static tdm_status next_generates_without_kv(struct tdm__phase *state,
                                            const struct tdm__phase_event *event,
                                            enum tdm__phase_action *action_out)
{
    if (event->kind == TDM__PHASE_GENERATE_REQUESTED && state->phase == TDM__PHASE_RESUME_ENGINE) {
        state->calls_in_flight++;
        *action_out = TDM__PHASE_DO_GENERATE;
        return TDM_OK;
    }
    return tdm__phase_handle_event(state, event, action_out);
}

/* Mutation: pauses the engines without waiting for their calls. */
static tdm_status next_does_not_drain(struct tdm__phase *state,
                                      const struct tdm__phase_event *event,
                                      enum tdm__phase_action *action_out)
{
    uint32_t calls = state->calls_in_flight;
    tdm_status status;

    if (event->kind != TDM__PHASE_ROLLOUT_DONE) {
        return tdm__phase_handle_event(state, event, action_out);
    }
    state->calls_in_flight = 0;
    status = tdm__phase_handle_event(state, event, action_out);
    state->calls_in_flight = calls;
    return status;
}

/* Mutation: an aborted update has no consequence. */
static tdm_status next_loses_abort(struct tdm__phase *state, const struct tdm__phase_event *event,
                                   enum tdm__phase_action *action_out)
{
    if (event->kind == TDM__PHASE_UPDATE_ABORTED && state->open == TDM__PHASE_DO_UPDATE) {
        state->open = TDM__PHASE_DO_NOTHING;
        *action_out = TDM__PHASE_DO_NOTHING;
        return TDM_OK;
    }
    return tdm__phase_handle_event(state, event, action_out);
}

/* Mutation: counts an added engine twice as running. */
static tdm_status next_counts_added_as_running(struct tdm__phase *state,
                                               const struct tdm__phase_event *event,
                                               enum tdm__phase_action *action_out)
{
    tdm_status status = tdm__phase_handle_event(state, event, action_out);

    if (status == TDM_OK && event->kind == TDM__PHASE_ENGINE_ADDED) {
        state->engines_alive = state->engines_count + 1;
    }
    return status;
}

/* Mutation: removes an engine that runs. */
static tdm_status next_removes_running(struct tdm__phase *state,
                                       const struct tdm__phase_event *event,
                                       enum tdm__phase_action *action_out)
{
    if (event->kind == TDM__PHASE_ENGINE_REMOVED && state->phase == TDM__PHASE_ROLLOUT &&
        state->engines_count > 1) {
        state->engines_count--;
        *action_out = TDM__PHASE_DO_NOTHING;
        return TDM_OK;
    }
    return tdm__phase_handle_event(state, event, action_out);
}

static void broken_machines_are_found(void **state)
{
    (void)state;
    assert_int_equal(walk_all(next_books_early, false, OVERFULL), OVERFULL);
    assert_int_equal(walk_all(next_trains_on_paused, false, FAULT), FAULT);
    assert_int_equal(walk_all(next_skips_flush, false, STALE), STALE);
    assert_int_equal(walk_all(next_generates_without_kv, false, FAULT), FAULT);
    assert_int_equal(walk_all(next_does_not_drain, false, FAULT), FAULT);
    assert_int_equal(walk_all(next_loses_abort, false, STUCK), STUCK);
    assert_int_equal(walk_all(next_counts_added_as_running, false, UNTRUE), UNTRUE);
    assert_int_equal(walk_all(next_removes_running, false, MISLED), MISLED);
    assert_int_equal(walk_all(tdm__phase_handle_event, true, OVERFULL), OVERFULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(step_goes_once_around, open_job),
        cmocka_unit_test_setup(engines_are_paused_after_the_last_call, open_job),
        cmocka_unit_test_setup(aborted_update_is_tried_again_then_the_old_version_serves, open_job),
        cmocka_unit_test_setup(update_is_tried_again_after_each_death_of_an_engine, open_job),
        cmocka_unit_test_setup(aborted_update_that_overwrites_leaves_no_version, open_job),
        cmocka_unit_test_setup(aborted_update_that_overwrites_leaves_the_version_of_a_holder,
                               open_job),
        cmocka_unit_test_setup(the_first_update_cannot_be_done_without, open_job),
        cmocka_unit_test_setup(versions_never_go_back, open_job),
        cmocka_unit_test_setup(failed_job_keeps_naming_process_and_phase, open_job),
        cmocka_unit_test_setup(job_goes_on_while_enough_engines_live, open_job),
        cmocka_unit_test_setup(many_engines_are_counted_one_by_one, open_job),
        cmocka_unit_test_setup(engine_that_is_back_counts_again, open_job),
        cmocka_unit_test_setup(added_engine_counts_when_it_runs, open_job),
        cmocka_unit_test_setup(only_an_engine_that_does_not_run_and_is_not_needed_is_removed,
                               open_job),
        cmocka_unit_test_setup(job_may_lose_all_engines_if_they_come_back, open_job),
        cmocka_unit_test(the_card_is_safe_in_every_state),
        cmocka_unit_test(broken_machines_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
