/* collective_join_test.c - actors join a group by name, exchange data, and learn which member
 * died. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { MEMBERS = 4, CALL_MS = 20000, DEATH_KNOWN_MS = 2000, COUNT = 3000 };

/* ---- the actor: one member of one group ------------------------------------------------- */

struct member {
    tdm_collective_group *group;
};

static tdm_status member_join(tdm_call *call, void *self)
{
    struct member *member = self;
    struct tdm_collective_options options = {.slot_bytes = 4096};
    uint64_t rank;
    uint64_t ranks_count;

    TDM_TRY(tdm_call_unpack(call, "suui", &options.name, &rank, &ranks_count, &options.timeout_ms));
    options.rank = (uint32_t)rank;
    options.ranks_count = (uint32_t)ranks_count;
    tdm_collective_leave(member->group);
    member->group = NULL;
    TDM_TRY(tdm_collective_join(tdm_runtime_current(), &options, &member->group));
    return tdm_call_reply(call, "uu", (uint64_t)tdm_collective_rank(member->group),
                          (uint64_t)tdm_collective_ranks_count(member->group));
}

static tdm_status expect(const char *what, double got, double wanted)
{
    return got == wanted ? TDM_OK : tdm_fail(TDM_E_METHOD, "%s: %g, not %g", what, got, wanted);
}

/* The data is larger than a slot, so that it is moved in chunks. */
static tdm_status reduce(tdm_collective_group *group)
{
    uint32_t rank = tdm_collective_rank(group);
    static float sums[COUNT];
    static float parts[MEMBERS * COUNT];
    static float part[COUNT];
    double largest = rank;

    for (uint32_t i = 0; i < COUNT; i++) {
        sums[i] = (float)(rank * i);
    }
    for (uint32_t i = 0; i < MEMBERS * COUNT; i++) {
        parts[i] = (float)(rank + i);
    }
    TDM_TRY(tdm_collective_all_reduce(group, sums, COUNT, TDM_SUM));
    TDM_TRY(tdm_collective_all_reduce_double(group, &largest, 1, TDM_MAX));
    TDM_TRY(tdm_collective_reduce_scatter(group, parts, COUNT, part));
    TDM_TRY(expect("the largest rank", largest, MEMBERS - 1));
    for (uint32_t i = 0; i < COUNT; i++) {
        TDM_TRY(expect("a sum", sums[i], 6.0 * i)); /* 0 + 1 + 2 + 3 ranks */
        TDM_TRY(expect("a part", part[i], 6.0 + 4.0 * (rank * COUNT + i)));
    }
    return TDM_OK;
}

static tdm_status move(tdm_collective_group *group)
{
    uint32_t rank = tdm_collective_rank(group);
    uint32_t all[MEMBERS] = {0};
    uint32_t collected[MEMBERS] = {0};
    uint32_t word = rank == 2 ? 77 : 0;

    TDM_TRY(tdm_collective_all_gather(group, &rank, sizeof(rank), all));
    TDM_TRY(tdm_collective_gather(group, &rank, sizeof(rank), collected, 1));
    TDM_TRY(tdm_collective_broadcast(group, &word, sizeof(word), 2));
    TDM_TRY(expect("the broadcast word", word, 77));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        TDM_TRY(expect("a gathered rank", all[i], i));
        TDM_TRY(expect("a collected rank", collected[i], rank == 1 ? i : 0));
    }
    return TDM_OK;
}

static tdm_status member_exchange(tdm_call *call, void *self)
{
    struct member *member = self;

    (void)call;
    TDM_TRY(tdm_collective_barrier(member->group));
    TDM_TRY(reduce(member->group));
    return move(member->group);
}

static tdm_status member_barrier(tdm_call *call, void *self)
{
    struct member *member = self;

    (void)call;
    return tdm_collective_barrier(member->group);
}

static void member_end(void *self)
{
    struct member *member = self;

    tdm_collective_leave(member->group);
}

TDM_ACTOR_CLASS(member, .state_bytes = sizeof(struct member), .destruct = member_end,
                .methods = {{"join", member_join},
                            {"exchange", member_exchange},
                            {"barrier", member_barrier}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;

struct fixture {
    tdm_actor *members[MEMBERS];
    tdm_ref *refs[MEMBERS];
};

static int set_up(void **state)
{
    static struct fixture fixture;

    for (uint32_t i = 0; i < MEMBERS; i++) {
        fixture.members[i] = one_node_actor(runtime, "member", NULL, 0);
    }
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < MEMBERS; i++) {
        TRY(tdm_actor_kill(f->members[i], CALL_MS));
        tdm_actor_destroy(f->members[i]);
    }
    return 0;
}

static tdm_status finish(tdm_ref *ref)
{
    const tdm_value *value;
    tdm_status status = tdm_get_value(ref, CALL_MS, &value);

    tdm_ref_release(ref);
    return status;
}

static void start_join(struct fixture *f, uint32_t index, uint32_t ranks_count, int64_t timeout_ms)
{
    TRY(tdm_actor_call(f->members[index], "join", &f->refs[index], "suui", "the group",
                       (uint64_t)index, (uint64_t)ranks_count, timeout_ms));
}

static void join_all(struct fixture *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        start_join(f, i, count, CALL_MS);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t rank = 99;
        uint64_t ranks_count = 99;

        TRY(tdm_get(f->refs[i], CALL_MS, "uu", &rank, &ranks_count));
        assert_true(rank == i && ranks_count == count);
        tdm_ref_release(f->refs[i]);
    }
}

static void start_all(struct fixture *f, const char *method, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        TRY(tdm_actor_call(f->members[i], method, &f->refs[i], ""));
    }
}

static void actors_that_met_exchange_by_every_collective(void **state)
{
    struct fixture *f = *state;

    join_all(f, MEMBERS);
    start_all(f, "exchange", MEMBERS);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        tdm_status status = finish(f->refs[i]);

        if (status != TDM_OK) {
            fail_msg("rank %u: %s", i, tdm_error_detail());
        }
    }
}

static void death_of_one_rank_aborts_the_others_and_names_it(void **state)
{
    struct fixture *f = *state;
    int64_t shot_ms;

    join_all(f, MEMBERS);
    start_all(f, "barrier", MEMBERS - 1);
    shot_ms = tdm__clock_ms();
    one_node_kill_actor(f->members[MEMBERS - 1]);
    for (uint32_t i = 0; i < MEMBERS - 1; i++) {
        assert_int_equal(finish(f->refs[i]), TDM_E_ABORTED);
        assert_non_null(strstr(tdm_error_detail(), "rank 3"));
    }
    assert_true(tdm__clock_ms() - shot_ms < DEATH_KNOWN_MS);
    start_all(f, "barrier", MEMBERS - 1); /* All later calls fail, too. */
    for (uint32_t i = 0; i < MEMBERS - 1; i++) {
        assert_int_equal(finish(f->refs[i]), TDM_E_ABORTED);
    }
    join_all(f, MEMBERS - 1); /* The other members can join again under the same name. */
}

static void missing_rank_is_named_and_the_group_name_is_free_again(void **state)
{
    struct fixture *f = *state;

    start_join(f, 0, 3, 300);
    start_join(f, 2, 3, 300);
    assert_int_equal(finish(f->refs[0]), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "did not come in time: rank 1"));
    assert_int_equal(finish(f->refs[2]), TDM_E_TIMEOUT);
    join_all(f, 2);
}

static void group_of_one_rank_works_alone(void **state)
{
    struct fixture *f = *state;

    join_all(f, 1);
    start_all(f, "barrier", 1);
    TRY(finish(f->refs[0]));
}

static void group_without_a_name_is_refused(void **state)
{
    const struct tdm_collective_options options = {.name = "", .ranks_count = 1};
    tdm_collective_group *group;

    (void)state;
    assert_int_equal(tdm_collective_join(runtime, &options, &group), TDM_E_INVAL);
    tdm_collective_leave(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(actors_that_met_exchange_by_every_collective),
        TEST(death_of_one_rank_aborts_the_others_and_names_it),
        TEST(missing_rank_is_named_and_the_group_name_is_free_again),
        TEST(group_of_one_rank_works_alone),
        cmocka_unit_test(group_without_a_name_is_refused),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
