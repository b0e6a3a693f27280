/* commit_session_test.c - numbered commits are carried out once, whatever a network does to them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/commit_session.h"

#include "tests/support/memory_store.h"
#include "tests/support/test_random.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- numbers ---------------------------------------------------------------------------- */

static void lowest_number_is_that_of_the_oldest_commit_without_an_outcome(void **state)
{
    struct tdm__redis_commit_session session;
    struct tdm__redis_numbered_commit commits[3] = {{.stamp.number = 0}};

    (void)state;
    assert_int_equal(tdm__redis_commit_session_init(&session), TDM_OK);
    assert_int_equal(tdm__redis_commit_session_lowest(&session), 1);
    session.number = 77;
    for (uint32_t i = 0; i < 3; i++) {
        tdm__redis_commit_session_stamp(&session, &commits[i]);
        assert_int_equal(commits[i].stamp.session, 77);
        assert_int_equal(commits[i].stamp.number, i + 1);
        assert_int_equal(commits[i].stamp.lowest, 1);
    }
    tdm__redis_commit_session_settle(&session, &commits[1]);
    assert_int_equal(tdm__redis_commit_session_lowest(&session), 1);
    tdm__redis_commit_session_settle(&session, &commits[0]);
    assert_int_equal(tdm__redis_commit_session_lowest(&session), 3);
    tdm__redis_commit_session_settle(&session, &commits[0]);
    tdm__redis_commit_session_settle(&session, &commits[2]);
    assert_int_equal(tdm__redis_commit_session_lowest(&session), 4);
}

static void only_the_session_in_use_is_forgotten(void **state)
{
    struct tdm__redis_commit_session session;

    (void)state;
    assert_int_equal(tdm__redis_commit_session_init(&session), TDM_OK);
    session.number = 8;
    tdm__redis_commit_session_forget(&session, 7);
    assert_int_equal(session.number, 8);
    tdm__redis_commit_session_forget(&session, 8);
    assert_int_equal(session.number, 0);
}

/* ---- a network -------------------------------------------------------------------------- */

enum { COMMITS = 40, COPIES_MAX = 200, STEPS = 600 };

/* A commit of the writer. */
struct commit {
    struct tdm__redis_numbered_commit numbered;
    char key[16];
    uint32_t sends_count;
    bool is_ended;
    tdm_status status; /* What the writer was told. */
    uint64_t version;
};

/* A copy of a commit on its way to the server. */
struct copy {
    uint32_t commit;
    struct tdm__redis_commit_stamp stamp;
};

struct world {
    struct test_random random;
    struct tdm__store *store;
    struct tdm__redis_commit_session session;
    struct commit commits[COMMITS];
    uint32_t commits_count;
    struct copy copies[COPIES_MAX];
    uint32_t copies_count;
    uint32_t applied[COMMITS]; /* How often the store carried out each commit. */
    uint64_t last_version;
};

static void end_commit(struct world *world, struct commit *commit, tdm_status status,
                       uint64_t version)
{
    tdm__redis_commit_session_settle(&world->session, &commit->numbered);
    commit->is_ended = true;
    commit->status = status;
    commit->version = version;
}

/* Sends a commit, again if it was sent before. */
static void send_commit(struct world *world, uint32_t index)
{
    struct commit *commit = &world->commits[index];

    if (commit->is_ended || world->copies_count == COPIES_MAX) {
        return;
    }
    if (commit->numbered.stamp.number == 0) {
        if (world->session.number == 0) {
            world->session.number =
                memory_store_open_session(world->store, world->session.writer,
                                          tdm__redis_commit_session_lowest(&world->session));
            world->last_version = world->session.number;
        }
        tdm__redis_commit_session_stamp(&world->session, &commit->numbered);
    }
    commit->sends_count++;
    world->copies[world->copies_count++] = (struct copy){index, commit->numbered.stamp};
}

/* What the writer does with a reply, as runtime/redis/store.c does. */
static void take_reply(struct world *world, const struct copy *copy, tdm_status status,
                       uint64_t version)
{
    struct commit *commit = &world->commits[copy->commit];

    if (commit->is_ended || copy->stamp.number != commit->numbered.stamp.number) {
        return;
    }
    if (status != TDM_E_NOT_FOUND) {
        end_commit(world, commit, status, version);
        return;
    }
    tdm__redis_commit_session_forget(&world->session, copy->stamp.session);
    if (commit->sends_count == 1) {
        tdm__redis_commit_session_settle(&world->session, &commit->numbered);
        commit->sends_count = 0;
    } else {
        end_commit(world, commit, TDM_E_STORE, 0);
    }
}

/* Delivers any copy, in any order. Its reply may be lost. */
static void deliver(struct world *world)
{
    uint32_t index = test_random_below(&world->random, world->copies_count);
    struct copy copy = world->copies[index];
    const struct tdm__store_write write = {.kind = TDM__STORE_PUT,
                                           .key = world->commits[copy.commit].key,
                                           .version = TDM__VERSION_ANY};
    uint64_t version;
    tdm_status status =
        memory_store_deliver(world->store, world->session.writer, &copy.stamp, &write, 1, &version);

    if (version > world->last_version) {
        world->last_version = version;
        world->applied[copy.commit]++;
    }
    world->copies[index] = world->copies[--world->copies_count];
    if (test_random_below(&world->random, 3) != 0) {
        take_reply(world, &copy, status, version);
    }
}

static void world_step(struct world *world)
{
    uint32_t choice = test_random_below(&world->random, 16);

    if (choice < 5 && world->commits_count < COMMITS) {
        struct commit *commit = &world->commits[world->commits_count];

        (void)snprintf(commit->key, sizeof(commit->key), "c/%u", world->commits_count);
        send_commit(world, world->commits_count++);
    } else if (choice < 8 && world->commits_count > 0) {
        send_commit(world, test_random_below(&world->random, world->commits_count));
    } else if (choice == 8 && test_random_below(&world->random, 8) == 0) {
        /* The outcomes go with the writer's record, while its copies are under way. */
        (void)memory_store_open_session(world->store, world->session.writer, 1);
        world->last_version++;
    } else if (choice == 9 && world->commits_count > 0) { /* A deadline passes. */
        struct commit *commit =
            &world->commits[test_random_below(&world->random, world->commits_count)];

        if (!commit->is_ended && commit->numbered.stamp.number != 0) {
            end_commit(world, commit, TDM_E_STORE, 0);
        }
    } else if (world->copies_count > 0) {
        deliver(world);
    }
}

/* No commit is carried out twice. One that succeeded was carried out; one whose outcome is unknown
 * may have been. */
static void each_commit_is_carried_out_once(void **state)
{
    struct tdm__loop *loop;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct world world = {.random = {seed}};

        assert_int_equal(tdm__store_memory_open(loop, &world.store), TDM_OK);
        assert_int_equal(tdm__redis_commit_session_init(&world.session), TDM_OK);
        for (uint32_t i = 0; i < STEPS; i++) {
            world_step(&world);
        }
        for (uint32_t i = 0; i < world.commits_count; i++) {
            const struct commit *commit = &world.commits[i];

            if (world.applied[i] > 1 ||
                (commit->is_ended && commit->status == TDM_OK && world.applied[i] != 1) ||
                (commit->is_ended && commit->status != TDM_OK && commit->status != TDM_E_STORE)) {
                fail_msg("seed %" PRIu64 ": commit %u was carried out %u times, and reported as %d",
                         seed, i, world.applied[i], (int)commit->status);
            }
        }
        world.store->ops->close(world.store);
    }
    tdm__loop_destroy(loop);
}

static void settled_outcomes_are_dropped(void **state)
{
    static const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "x", .version = TDM__VERSION_ANY};
    struct tdm__redis_commit_stamp stamp;
    struct tdm__loop *loop;
    struct tdm__store *store;
    uint64_t version;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(loop, &store), TDM_OK);
    stamp.session = memory_store_open_session(store, "w", 1);
    for (uint64_t number = 1; number <= 100; number++) {
        stamp.number = number;
        stamp.lowest = number > 3 ? number - 3 : 1;
        assert_int_equal(memory_store_deliver(store, "w", &stamp, &write, 1, &version), TDM_OK);
    }
    assert_int_equal(memory_store_outcomes_count(store, "w"), 4);
    stamp.number = 96;
    assert_int_equal(memory_store_deliver(store, "w", &stamp, &write, 1, &version), TDM_E_STATE);
    store->ops->close(store);
    tdm__loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowest_number_is_that_of_the_oldest_commit_without_an_outcome),
        cmocka_unit_test(only_the_session_in_use_is_forgotten),
        cmocka_unit_test(each_commit_is_carried_out_once),
        cmocka_unit_test(settled_outcomes_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
