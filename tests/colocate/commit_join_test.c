/* commit_join_test.c - members that join between updates, and requests that are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/commit_core.h"

#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Returns a record whose latest update has the members 1 and 2. */
static struct tdm__version_record update_of_two(enum tdm__update_outcome outcome, bool flips)
{
    static const struct tdm__member members[2] = {{{{'m', 1}}, 1}, {{{'m', 2}}, 3}};
    struct tdm__version_record record = {.epoch = 0};
    struct tdm__version_request request = {.kind = TDM__VERSION_BEGIN,
                                           .update = {{'u', 1}},
                                           .source = {{{'s', 1}}, 1},
                                           .members = members,
                                           .members_count = 2,
                                           .proposal = outcome,
                                           .hash = {7, 8}};
    bool changed;

    assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_OK);
    for (int i = 0; i < 2; i++) {
        request.kind = TDM__VERSION_PREPARED;
        request.member = members[i];
        assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_OK);
    }
    if (outcome != TDM__UPDATE_UNDECIDED) {
        request.kind = TDM__VERSION_DECIDE;
        assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_OK);
        assert_int_equal(record.update.outcome, outcome);
    }
    request.kind = TDM__VERSION_FLIPPED;
    request.member = members[0];
    if (flips) {
        assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_OK);
    }
    return record;
}

static tdm_status joins(struct tdm__version_record *record, uint8_t actor, uint64_t incarnation,
                        uint64_t version, bool *changed)
{
    const struct tdm__version_request request = {.kind = TDM__VERSION_JOIN,
                                                 .member = {{{'m', actor}}, incarnation},
                                                 .version = version,
                                                 .hash = {7, 8}};
    tdm_status status = tdm__version_apply_request(record, &request, changed);
    const char *cause = strstr(tdm_error_detail(), " failed: ");

    /* A refusal has the form "operation failed: cause. remedy". */
    assert_true(status == TDM_OK || (cause != NULL && strstr(cause, ". ") != NULL));
    return status;
}

static void joining_engine_becomes_a_flipped_member(void **state)
{
    struct tdm__version_record record = update_of_two(TDM__UPDATE_COMMITTED, true);
    bool changed;

    (void)state;
    assert_int_equal(joins(&record, 3, 1, 1, &changed), TDM_OK);
    assert_true(changed);
    assert_int_equal(record.update.members_count, 3);
    assert_int_equal(record.update.members[2].phase, TDM__MEMBER_FLIPPED);
    assert_true(record.update.members[2].voted);
    assert_int_equal(joins(&record, 3, 1, 1, &changed), TDM_OK);
    assert_false(changed); /* The request is a repetition. */
    assert_int_equal(record.version, 1);
    /* This member has flipped already. */
    assert_int_equal(joins(&record, 1, 1, 1, &changed), TDM_OK);
    assert_false(changed);
    /* This member has voted and must flip instead. */
    assert_int_equal(joins(&record, 2, 3, 1, &changed), TDM_E_STATE);
    assert_int_equal(joins(&record, 2, 2, 1, &changed), TDM_E_CONFLICT);
    assert_int_equal(joins(&record, 2, 4, 1, &changed), TDM_OK);
    /* The joining incarnation proves that the older one is dead. */
    assert_int_equal(record.update.members[1].phase, TDM__MEMBER_DEAD);
    assert_int_equal(joins(&record, 2, 3, 1, &changed), TDM_E_ACTOR_DIED);
}

static void engine_with_other_bytes_cannot_join(void **state)
{
    struct tdm__version_record record = update_of_two(TDM__UPDATE_UNDECIDED, false);
    bool changed;

    (void)state;
    assert_int_equal(joins(&record, 3, 1, 1, &changed), TDM_E_STATE);
    record = update_of_two(TDM__UPDATE_ABORTED, false);
    /* This version number belongs to an aborted update. */
    assert_int_equal(joins(&record, 3, 1, 1, &changed), TDM_E_CONFLICT);
    /* No version is committed. */
    assert_int_equal(joins(&record, 3, 1, 0, &changed), TDM_E_CONFLICT);
    record = update_of_two(TDM__UPDATE_COMMITTED, true);
    assert_int_equal(joins(&record, 3, 1, 2, &changed), TDM_E_CONFLICT);
    assert_int_equal(joins(&record, 0, 0, 1, &changed), TDM_E_INVAL);
    record.hash.low++;
    assert_int_equal(joins(&record, 3, 1, 1, &changed), TDM_E_CONFLICT);
    record.hash.low--;
    record.hash.high++; /* Both halves of the hash count. */
    assert_int_equal(joins(&record, 3, 1, 1, &changed), TDM_E_CONFLICT);
    record.hash.high--;
    record.bytes = TDM__BYTES_LOST;
    assert_int_equal(joins(&record, 3, 1, 1, &changed), TDM_E_STATE);
}

/* The latest update was aborted, so the committed version is the one before it. */
static void after_an_abort_one_joins_the_base(void **state)
{
    static const struct tdm__member members[1] = {{{{'m', 1}}, 1}};
    static const struct tdm__member dead[1] = {{{{'m', 2}}, 3}};
    struct tdm__version_record record = update_of_two(TDM__UPDATE_COMMITTED, true);
    struct tdm__version_request request = {.kind = TDM__VERSION_BEGIN,
                                           .update = {{'u', 2}},
                                           .base = 1,
                                           .source = {{{'s', 1}}, 1},
                                           .members = members,
                                           .members_count = 1,
                                           .dead = dead,
                                           .dead_count = 1,
                                           .proposal = TDM__UPDATE_ABORTED};
    bool changed;

    (void)state;
    assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_OK);
    request.kind = TDM__VERSION_DECIDE;
    assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_OK);
    assert_int_equal(joins(&record, 3, 1, 1, &changed), TDM_OK);
    request.kind = TDM__VERSION_BEGIN;
    request.update = (struct tdm__id){{'u', 3}};
    assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_E_STATE);
    /* The member that joined serves the version, too. */
    assert_non_null(strstr(tdm_error_detail(), "is left out"));
}

/* An update that overwrote the served weights was aborted: the base version counts as lost, until
 * a member shows that it holds all of it. */
static void overwritten_base_is_held_again_by_one_that_joins(void **state)
{
    static const struct tdm__member members[2] = {{{{'m', 1}}, 1}, {{{'m', 2}}, 3}};
    struct tdm__version_record record = update_of_two(TDM__UPDATE_COMMITTED, true);
    struct tdm__version_request request = {.kind = TDM__VERSION_BEGIN,
                                           .update = {{'u', 2}},
                                           .base = 1,
                                           .overwrites = true,
                                           .source = {{{'s', 1}}, 1},
                                           .members = members,
                                           .members_count = 2,
                                           .proposal = TDM__UPDATE_ABORTED};
    const struct tdm__version_request lost = {.kind = TDM__VERSION_LOST, .version = 1};
    bool changed;

    (void)state;
    record.update.members[1].phase = TDM__MEMBER_FLIPPED;
    assert_int_equal(record.bytes, TDM__BYTES_HELD);
    assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_OK);
    assert_int_equal(record.bytes, TDM__BYTES_OVERWRITTEN);
    assert_int_equal(joins(&record, 1, 1, 1, &changed), TDM_E_STATE); /* It is undecided. */
    request.kind = TDM__VERSION_DECIDE;
    assert_int_equal(tdm__version_apply_request(&record, &request, &changed), TDM_OK);
    assert_int_equal(record.bytes, TDM__BYTES_OVERWRITTEN);
    /* A member that lives may have been spared. */
    assert_int_equal(tdm__version_apply_request(&record, &lost, &changed), TDM_E_STATE);
    record.hash.low++;
    assert_int_equal(joins(&record, 1, 1, 1, &changed), TDM_E_CONFLICT);
    record.hash.low--;
    assert_int_equal(joins(&record, 1, 1, 1, &changed), TDM_OK);
    assert_true(changed);
    assert_int_equal(record.bytes, TDM__BYTES_HELD);
    assert_int_equal(record.update.members[0].phase, TDM__MEMBER_FLIPPED);
    assert_int_equal(record.update.members[1].phase, TDM__MEMBER_STAGING);
    assert_int_equal(joins(&record, 1, 1, 1, &changed), TDM_OK);
    assert_false(changed); /* The request is a repetition. */
}

static void refused_request_changes_nothing_for_the_next(void **state)
{
    static const struct tdm__member members[] = {{{{1}}, 1}, {{{2}}, 1}};
    static const struct tdm__version_request begin = {.kind = TDM__VERSION_BEGIN,
                                                      .update = {{1}},
                                                      .source = {{{9}}, 1},
                                                      .members = members,
                                                      .members_count = 2};
    /* The request first marks a member as dead, and is then refused because the other member has
     * not voted. */
    static const struct tdm__version_request other = {.kind = TDM__VERSION_BEGIN,
                                                      .update = {{2}},
                                                      .source = {{{9}}, 1},
                                                      .members = members,
                                                      .members_count = 2,
                                                      .dead = members,
                                                      .dead_count = 1};
    static const struct tdm__version_request read = {.kind = TDM__VERSION_READ};
    static struct tdm__version_record record;
    static struct tdm__version_record before;
    bool changed = false;

    (void)state;
    assert_int_equal(tdm__version_apply_batched(&record, &begin, &changed), TDM_OK);
    assert_true(changed);
    before = record;
    assert_int_equal(tdm__version_apply_batched(&record, &other, &changed), TDM_E_STATE);
    assert_memory_equal(&record, &before, sizeof(record));
    assert_true(changed); /* The change of the request before is still to be written. */
    changed = false;
    assert_int_equal(tdm__version_apply_batched(&record, &other, &changed), TDM_E_STATE);
    assert_int_equal(tdm__version_apply_batched(&record, &read, &changed), TDM_OK);
    assert_false(changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joining_engine_becomes_a_flipped_member),
        cmocka_unit_test(engine_with_other_bytes_cannot_join),
        cmocka_unit_test(after_an_abort_one_joins_the_base),
        cmocka_unit_test(refused_request_changes_nothing_for_the_next),
        cmocka_unit_test(overwritten_base_is_held_again_by_one_that_joins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
