/* commit_members_test.c - an update with as many members as a job may have engine ranks, and more
 * that join it or die. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/job_limits.h"
#include "colocate/weights/commit_core.h"
#include "colocate/weights/commit_record.h"
#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Engine ranks of the largest job, and one of them with a high number. */
enum { RANKS = TDM__JOB_ENGINE_RANKS_MAX, HIGH = 70 };

static struct tdm__version_record record;
static struct tdm__member members[TDM__UPDATE_MEMBERS_MAX + 1];

static int begin_with_all_ranks(void **state)
{
    const struct tdm__version_request begin = {.kind = TDM__VERSION_BEGIN,
                                               .update = {{'u', 1}},
                                               .source = {{{'s', 1}}, 1},
                                               .members = members,
                                               .members_count = RANKS};
    bool changed;

    (void)state;
    for (uint32_t i = 0; i <= TDM__UPDATE_MEMBERS_MAX; i++) {
        members[i] = (struct tdm__member){{{'m', (uint8_t)(i >> 8), (uint8_t)(i & 255)}}, 1};
    }
    memset(&record, 0, sizeof(record));
    assert_int_equal(tdm__version_apply_request(&record, &begin, &changed), TDM_OK);
    return 0;
}

/* Sends one request of the member with this number, as the daemon does with a batch. */
static tdm_status send(enum tdm__version_request_kind kind, uint32_t member)
{
    const struct tdm__version_request request = {.kind = kind,
                                                 .update = {{'u', 1}},
                                                 .proposal = TDM__UPDATE_COMMITTED,
                                                 .member = members[member],
                                                 .hash = {7, 8},
                                                 .version = record.version};
    bool changed = false;

    return tdm__version_apply_batched(&record, &request, &changed);
}

/* Lets all ranks vote, except the one with the number `silent`. */
static void vote(uint32_t silent)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        if (i != silent) {
            assert_int_equal(send(TDM__VERSION_PREPARED, i), TDM_OK);
        }
    }
}

/* Checks that the stored form of the record is read as the same record. */
static void assert_is_stored(void)
{
    static struct tdm__version_record back;
    tdm_writer *writer;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__version_record_encode(&record, writer), TDM_OK);
    assert_int_equal(tdm__version_record_decode(tdm_writer_bytes(writer), &back), TDM_OK);
    assert_int_equal(back.update.members_count, record.update.members_count);
    for (uint32_t i = 0; i < record.update.members_count; i++) {
        assert_memory_equal(&back.update.members[i].member, &record.update.members[i].member,
                            sizeof(members[i]));
        assert_int_equal(back.update.members[i].phase, record.update.members[i].phase);
        assert_int_equal(back.update.members[i].voted, record.update.members[i].voted);
    }
    tdm_writer_destroy(writer);
}

static void all_ranks_vote_and_flip(void **state)
{
    (void)state;
    vote(RANKS);
    assert_int_equal(send(TDM__VERSION_DECIDE, 0), TDM_OK);
    assert_int_equal(record.update.outcome, TDM__UPDATE_COMMITTED);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(send(TDM__VERSION_FLIPPED, i), TDM_OK);
        assert_int_equal(record.update.members[i].phase, TDM__MEMBER_FLIPPED);
    }
    assert_is_stored();
}

/* Without its vote there is no commit; with its death there is an abort. */
static void rank_with_a_high_number_decides(void **state)
{
    const struct tdm__version_request dead = {.kind = TDM__VERSION_DECIDE,
                                              .update = {{'u', 1}},
                                              .proposal = TDM__UPDATE_COMMITTED,
                                              .dead = &members[HIGH],
                                              .dead_count = 1};
    bool changed;

    (void)state;
    vote(HIGH);
    assert_int_not_equal(send(TDM__VERSION_DECIDE, 0), TDM_OK);
    assert_int_equal(record.update.outcome, TDM__UPDATE_UNDECIDED);
    assert_int_equal(tdm__version_apply_request(&record, &dead, &changed), TDM_OK);
    assert_int_equal(record.update.outcome, TDM__UPDATE_ABORTED);
    assert_int_equal(record.update.reason, TDM__UPDATE_MEMBER_DIED);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(record.update.members[i].phase == TDM__MEMBER_DEAD, i == HIGH);
    }
    assert_is_stored();
}

/* Each rank may be replaced once between two updates. */
static void as_many_ranks_may_join_as_there_were(void **state)
{
    (void)state;
    vote(RANKS);
    assert_int_equal(send(TDM__VERSION_DECIDE, 0), TDM_OK);
    for (uint32_t i = RANKS; i < TDM__UPDATE_MEMBERS_MAX; i++) {
        assert_int_equal(send(TDM__VERSION_JOIN, i), TDM_OK);
    }
    assert_int_equal(record.update.members_count, 2 * RANKS);
    assert_is_stored();
    assert_int_equal(send(TDM__VERSION_JOIN, TDM__UPDATE_MEMBERS_MAX), TDM_E_LIMIT);
    assert_string_equal(
        tdm_error_detail(),
        "joining the members of a version failed: the update of epoch 1 has 512 members, which is "
        "the limit. Use fewer receivers of the model");
}

static void more_members_than_a_record_has_are_refused(void **state)
{
    const struct tdm__version_request begin = {.kind = TDM__VERSION_BEGIN,
                                               .update = {{'u', 2}},
                                               .source = {{{'s', 1}}, 1},
                                               .members = members,
                                               .members_count = TDM__UPDATE_MEMBERS_MAX + 1};
    struct tdm__version_record empty = {.epoch = 0};
    bool changed;

    (void)state;
    assert_int_equal(tdm__version_apply_request(&empty, &begin, &changed), TDM_E_INVAL);
    assert_string_equal(tdm_error_detail(), "beginning a weight update failed: 513 members are "
                                            "listed, expected 1 to 512. Start at least "
                                            "one receiver of the model and at most 512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_ranks_vote_and_flip, begin_with_all_ranks),
        cmocka_unit_test_setup(rank_with_a_high_number_decides, begin_with_all_ranks),
        cmocka_unit_test_setup(as_many_ranks_may_join_as_there_were, begin_with_all_ranks),
        cmocka_unit_test_setup(more_members_than_a_record_has_are_refused, begin_with_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
