/* update_exploration_test.c - every order of an update's steps, with crashes, delays and lost
 * answers.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/state_explorer.h"
#include "tests/support/update_simulator.h"

#include "colocate/weights/commit_core.h"
#include "runtime/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STATES_MAX = 3 << 19, STEPS_MAX = 256 };

/* How a state was first reached. */
struct origin {
    uint32_t from;
    struct update_event event;
};

struct edge {
    uint32_t from;
    uint32_t to;
};

struct search {
    const struct update_limits *limits;
    struct state_explorer walk;
    struct origin *origins; /* owned; by number of state */
    struct edge *edges;     /* owned; good events only */
    size_t edges_count;
    size_t edges_max;
    const char *wrong; /* what was found; NULL: nothing */
    struct origin last;
};

static void open_search(struct search *search, const struct update_limits *limits)
{
    *search = (struct search){.limits = limits, .edges_max = (size_t)STATES_MAX * 8};
    state_explorer_init_plain(&search->walk, sizeof(struct update_simulator), STATES_MAX);
    search->origins = malloc(STATES_MAX * sizeof(*search->origins)); /* touched as used */
    search->edges = malloc(search->edges_max * sizeof(*search->edges));
    assert_true(search->origins != NULL && search->edges != NULL);
}

static void close_search(struct search *search)
{
    free(search->origins);
    free(search->edges);
    state_explorer_fini(&search->walk);
}

/* ---- the walk --------------------------------------------------------------------------- */

static void take_step(struct search *search, const struct update_simulator *world,
                      struct origin origin)
{
    struct update_simulator next = *world;
    uint32_t seen = search->walk.seen;
    uint32_t number;

    search->wrong = update_simulator_happen(search->limits, &next, origin.event);
    if (search->wrong != NULL) {
        search->last = origin;
        return;
    }
    number = state_explorer_add(&search->walk, &next, &next);
    if (number == seen) {
        search->origins[number] = origin;
    }
    if (update_event_is_good(origin.event)) {
        assert_true(search->edges_count < search->edges_max);
        search->edges[search->edges_count++] = (struct edge){origin.from, number};
    }
}

static void walk_all(struct search *search)
{
    struct update_event events[UPDATE_EVENTS_MAX];
    struct update_simulator world;

    update_simulator_init(&world, search->limits);
    (void)state_explorer_add(&search->walk, &world, &world);
    while (search->wrong == NULL && state_explorer_next(&search->walk, &world)) {
        struct origin origin = {.from = search->walk.visited - 1};
        size_t count = update_simulator_events(search->limits, &world, events);

        for (size_t i = 0; i < count && search->wrong == NULL; i++) {
            origin.event = events[i];
            take_step(search, &world, origin);
        }
    }
}

static const struct update_simulator *state_of(const struct search *search, uint32_t number)
{
    return state_explorer_state(&search->walk, number);
}

/* From the beginning to this event: the shortest there is, as nearer states come first. */
static size_t print_history(const struct search *search, struct origin last)
{
    struct origin steps[STEPS_MAX];
    size_t count = 0;

    steps[count++] = last;
    while (steps[count - 1].from != 0) {
        assert_true(count < STEPS_MAX);
        steps[count] = search->origins[steps[count - 1].from];
        count++;
    }
    for (size_t i = count; i-- > 0;) {
        struct update_simulator after = *state_of(search, steps[i].from);

        (void)update_simulator_happen(search->limits, &after, steps[i].event);
        update_event_print(state_of(search, steps[i].from), steps[i].event, &after);
    }
    return count;
}

/* ---- nobody is stuck -------------------------------------------------------------------- */

/* Which states have a way, without a further mishap, to one where all live engines serve. */
static void find_ways(const struct search *search, uint8_t *has_way)
{
    bool changed = true;

    for (uint32_t i = 0; i < search->walk.seen; i++) {
        has_way[i] = update_simulator_serves(state_of(search, i));
    }
    while (changed) {
        changed = false;
        for (size_t i = search->edges_count; i-- > 0;) {
            const struct edge *edge = &search->edges[i];

            if (has_way[edge->to] && !has_way[edge->from]) {
                has_way[edge->from] = 1;
                changed = true;
            }
        }
    }
}

static void check_ways(const struct search *search)
{
    uint8_t *has_way = calloc(search->walk.seen, 1);

    assert_non_null(has_way);
    find_ways(search, has_way);
    for (uint32_t i = 0; i < search->walk.seen; i++) {
        if (!has_way[i]) {
            (void)print_history(search, search->origins[i]);
            fail_msg("state %u: no way leads from here to engines that all serve", i);
        }
    }
    free(has_way);
}

/* ---- tests ------------------------------------------------------------------------------ */

/* States in which an engine asks to join: there are none where none comes back. */
static uint32_t count_joiners(const struct search *search)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < search->walk.seen; i++) {
        const struct update_simulator *world = state_of(search, i);

        for (unsigned k = 0; k < UPDATE_MEMBERS_MAX; k++) {
            count += world->members[k].todo == MEMBER_JOINS;
        }
    }
    return count;
}

/* States in which an engine need not get what it has. */
static uint32_t count_believed(const struct search *search)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < search->walk.seen; i++) {
        const struct update_order *work = &state_of(search, i)->trainer.work;

        for (unsigned k = 0; k < UPDATE_MEMBERS_MAX; k++) {
            count += work->resume_logs[k] > 0;
        }
    }
    return count;
}

/* States in which the record is about to be restored. */
static uint32_t count_restoring(const struct search *search)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < search->walk.seen; i++) {
        count += state_of(search, i)->driver.todo == DRIVER_RESTORES;
    }
    return count;
}

/* States in which all engines live and are torn after so many buckets, none of them half copied,
 * and the driver, or else the trainer, is dead. */
static uint32_t count_torn(const struct search *search, unsigned buckets, bool of_driver)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < search->walk.seen; i++) {
        const struct update_simulator *world = state_of(search, i);
        unsigned torn = 0;

        for (unsigned k = 0; k < search->limits->members; k++) {
            const struct update_member *member = &world->members[k];

            torn += member->alive && member->version == 0 && member->guard_epoch != 0 &&
                    member->resume_log_next == buckets && !member->resume_log_open;
        }
        count += torn == search->limits->members && world->record.version != 0 &&
                 world->record.bytes == TDM__BYTES_OVERWRITTEN &&
                 (of_driver ? !world->driver.alive : !world->trainer.alive);
    }
    return count;
}

/* Checks that the source has died after each bucket with all engines torn. */
static void check_torn(const struct search *search)
{
    for (unsigned buckets = 1; buckets <= UPDATE_TENSORS; buckets++) {
        uint32_t without_driver = count_torn(search, buckets, true);
        uint32_t without_trainer = count_torn(search, buckets, false);

        printf("    all engines torn after bucket %u: %u states without the driver, %u without the "
               "trainer\n",
               buckets, without_driver, without_trainer);
        assert_true(without_driver > 0 && without_trainer > 0);
    }
}

static void check(struct update_limits limits, uint32_t states_min)
{
    static const char *const ways[UPDATE_WAYS] = {"names", "copy", "donate", "bucket"};

    for (int way = 0; way < UPDATE_WAYS; way++) {
        struct search search;
        int64_t begin_ms = tdm__clock_ms();

        limits.way = (enum update_way)way;
        open_search(&search, &limits);
        walk_all(&search);
        if (search.wrong != NULL) {
            (void)print_history(&search, search.last);
            fail_msg("%s", search.wrong);
        }
        check_ways(&search);
        printf("%s, engines %d, updates wanted %d, crashes %d, lost answers %d, repeated messages "
               "%d, wrong bytes %d, deadlines %d, losses of all data %d: %u states (%u joining, "
               "%u "
               "with resume_logs, %u restored), %llu steps, %lld ms\n",
               ways[way], limits.members, limits.updates, limits.crashes, limits.losses,
               limits.repeats, limits.tears, limits.hurries, limits.wipes, search.walk.seen,
               count_joiners(&search), count_believed(&search), count_restoring(&search),
               (unsigned long long)search.walk.transitions,
               (long long)(tdm__clock_ms() - begin_ms));
        assert_true(search.walk.seen >= states_min);
        assert_true(limits.crashes == 0 || count_joiners(&search) > 0);
        assert_true((limits.wipes > 0) == (count_restoring(&search) > 0));
        if (limits.way == UPDATE_BY_BUCKET && limits.crashes > 0) {
            check_torn(&search);
        }
        assert_true(limits.crashes == 0 ||
                    (count_believed(&search) > 0) == (limits.way != UPDATE_BY_NAME));
        close_search(&search);
    }
}

static void crash_at_any_step_does_no_harm(void **state)
{
    (void)state;
    check((struct update_limits){.members = 2, .updates = 1, .crashes = 1}, 9000);
    check((struct update_limits){.members = 2, .updates = 1, .crashes = 2}, 400000);
    check((struct update_limits){.members = 3, .updates = 1, .crashes = 1}, 15000);
}

static void message_late_or_twice_and_a_lost_answer_do_no_harm(void **state)
{
    (void)state;
    check((struct update_limits){.members = 2, .updates = 1, .losses = 1, .repeats = 1}, 2500);
    check((struct update_limits){.members = 2, .updates = 1, .tears = 1, .repeats = 1}, 4000);
    check((struct update_limits){.members = 2, .updates = 2, .repeats = 1}, 2500);
}

static void crash_with_any_other_mishap_does_no_harm(void **state)
{
    (void)state;
    check((struct update_limits){.members = 2, .updates = 1, .crashes = 1, .losses = 1}, 20000);
    check((struct update_limits){.members = 2, .updates = 1, .crashes = 1, .repeats = 1}, 100000);
    check((struct update_limits){.members = 2, .updates = 1, .crashes = 1, .tears = 1}, 30000);
    check((struct update_limits){.members = 2, .updates = 1, .crashes = 1, .hurries = 1}, 50000);
}

static void store_that_loses_its_data_does_no_harm(void **state)
{
    (void)state;
    check((struct update_limits){.members = 2, .updates = 2, .wipes = 1}, 900);
    check((struct update_limits){.members = 2, .updates = 1, .wipes = 2}, 1800);
    check((struct update_limits){.members = 3, .updates = 1, .wipes = 1}, 1300);
}

static void store_that_loses_its_data_and_any_other_mishap_do_no_harm(void **state)
{
    (void)state;
    check((struct update_limits){.members = 2, .updates = 1, .wipes = 1, .crashes = 1}, 100000);
    check((struct update_limits){.members = 2, .updates = 1, .wipes = 1, .losses = 2}, 2000);
    check((struct update_limits){.members = 2, .updates = 1, .wipes = 2, .repeats = 1}, 40000);
    check((struct update_limits){.members = 2, .updates = 1, .wipes = 1, .hurries = 1, .losses = 1},
          500);
}

static void find(enum update_bug bug, const char *name, struct update_limits limits)
{
    struct search search;
    size_t steps;

    limits.bug = bug;
    open_search(&search, &limits);
    walk_all(&search);
    printf("%s: ", name);
    if (search.wrong == NULL) {
        fail_msg("not found in %u states", search.walk.seen);
    }
    printf("%s\n", search.wrong);
    steps = print_history(&search, search.last);
    printf("    found after %zu events, in %u states\n", steps, search.walk.seen);
    close_search(&search);
}

static void known_mistakes_of_others_are_found(void **state)
{
    const struct update_limits calm = {.members = 2, .updates = 1};
    const struct update_limits crash = {.members = 2, .updates = 1, .crashes = 1};

    (void)state;
    find(UPDATE_BUG_NUMBER_AFTER_FIRST_BUCKET, "slime", calm);
    find(UPDATE_BUG_NUMBER_IN_MEMORY, "miles#2244, #2835", crash);
    find(UPDATE_BUG_UPDATE_ASLEEP, "vllm#57853", calm);
    find(UPDATE_BUG_FORWARD_WITHOUT_KV, "vllm#44395, PR45700", calm);
    find(UPDATE_BUG_AWAKE_WHEN_ASKED, "vllm PR45398", calm);
}

static void drop_that_names_no_update_is_found(void **state)
{
    (void)state;
    find(UPDATE_BUG_DROP_OF_NOTHING, "drop",
         (struct update_limits){.members = 2, .updates = 1, .crashes = 1, .repeats = 1});
}

static void resume_log_written_too_soon_is_found(void **state)
{
    struct update_limits limits = {.members = 2, .updates = 1, .tears = 1};

    (void)state;
    limits.way = UPDATE_BY_COPY;
    find(UPDATE_BUG_JOURNAL_BEFORE_BYTES, "resume_log, copy", limits);
    limits.way = UPDATE_IN_PLACE;
    find(UPDATE_BUG_JOURNAL_BEFORE_BYTES, "resume_log, donate", limits);
}

static void bucket_written_before_all_have_read_is_found(void **state)
{
    (void)state;
    find(UPDATE_BUG_WAITS_FOR_ONE_ENGINE, "halves",
         (struct update_limits){.members = 2, .updates = 1, .way = UPDATE_BY_COPY});
}

static void records_restored_wrongly_are_found(void **state)
{
    const struct update_limits wipe = {.members = 2, .updates = 1, .wipes = 1};
    struct update_limits limits = wipe;

    (void)state;
    find(UPDATE_BUG_RESTORES_LOWER, "restored lower", wipe);
    limits.wipes = 2;
    find(UPDATE_BUG_BEGINS_ANEW, "begun anew", limits);
    limits = wipe;
    limits.repeats = 1;
    find(UPDATE_BUG_RESTORES_OVER, "restored over a record", limits);
    limits = wipe;
    limits.hurries = 1;
    find(UPDATE_BUG_LOST_IS_ABORTED, "not found is no abort", limits);
    limits.losses = 1;
    find(UPDATE_BUG_RESTORES_IN_DOUBT, "restored in doubt", limits);
    limits = wipe;
    limits.crashes = 1;
    find(UPDATE_BUG_KEEPS_OLD_MEMBERS, "strangers", limits);
}

static void torn_engines_that_serve_are_found(void **state)
{
    struct update_limits limits = {.members = 2, .updates = 1, .tears = 2, .way = UPDATE_BY_BUCKET};

    (void)state;
    find(UPDATE_BUG_GOES_ON_WITHOUT_BASE, "no base after an abort", limits);
    limits.crashes = 1;
    limits.tears = 0;
    find(UPDATE_BUG_BASE_AFTER_ABORT, "slime, torn weights", limits);
    limits.repeats = 1;
    find(UPDATE_BUG_PULL_KEEPS_LOG, "pulled over what was staged", limits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crash_at_any_step_does_no_harm),
        cmocka_unit_test(message_late_or_twice_and_a_lost_answer_do_no_harm),
        cmocka_unit_test(crash_with_any_other_mishap_does_no_harm),
        cmocka_unit_test(store_that_loses_its_data_does_no_harm),
        cmocka_unit_test(store_that_loses_its_data_and_any_other_mishap_do_no_harm),
        cmocka_unit_test(known_mistakes_of_others_are_found),
        cmocka_unit_test(drop_that_names_no_update_is_found),
        cmocka_unit_test(resume_log_written_too_soon_is_found),
        cmocka_unit_test(bucket_written_before_all_have_read_is_found),
        cmocka_unit_test(records_restored_wrongly_are_found),
        cmocka_unit_test(torn_engines_that_serve_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
