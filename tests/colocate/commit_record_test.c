/* commit_record_test.c - a version record survives encoding, and malformed records are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/commit_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void apply(struct tdm__version_record *record, struct tdm__version_request request)
{
    bool changed;

    assert_int_equal(tdm__version_apply_request(record, &request, &changed), TDM_OK);
    assert_true(changed);
}

static const struct tdm__member members[] = {{{{1}}, 1}, {{{2}}, 3}};

/* Makes the record after `steps` steps: 1 begun, 2 aborted, 3 begun again, 4 and 5 voted, 6
 * committed, 7 one member has flipped. */
static struct tdm__version_record make_record(unsigned steps)
{
    struct tdm__version_record record;
    struct tdm__id first = {{'a'}};
    struct tdm__id second = {{'b'}};
    const struct tdm__version_request requests[] = {
        {.kind = TDM__VERSION_BEGIN, .update = first, .members = members, .members_count = 2},
        {.kind = TDM__VERSION_DECIDE, .update = first, .proposal = TDM__UPDATE_ABORTED},
        {.kind = TDM__VERSION_BEGIN,
         .update = second,
         .version_floor = 56,
         .members = members,
         .members_count = 2},
        {.kind = TDM__VERSION_PREPARED, .update = second, .member = members[0], .hash = {7, 8}},
        {.kind = TDM__VERSION_PREPARED, .update = second, .member = members[1], .hash = {7, 8}},
        {.kind = TDM__VERSION_DECIDE, .update = second, .proposal = TDM__UPDATE_COMMITTED},
        {.kind = TDM__VERSION_FLIPPED, .update = second, .member = members[1]}};

    memset(&record, 0, sizeof(record));
    for (unsigned i = 0; i < steps; i++) {
        apply(&record, requests[i]);
    }
    return record;
}

static struct tdm_bytes encode(const struct tdm__version_record *record, tdm_writer *writer)
{
    tdm_writer_clear(writer);
    assert_int_equal(tdm__version_record_encode(record, writer), TDM_OK);
    return tdm_writer_bytes(writer);
}

static void record_survives_the_store_after_every_step(void **state)
{
    tdm_writer *writer;
    tdm_writer *again;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm_writer_create(&again), TDM_OK);
    for (unsigned steps = 0; steps <= 7; steps++) {
        struct tdm__version_record record = make_record(steps);
        struct tdm_bytes bytes = encode(&record, writer);
        struct tdm__version_record back;
        struct tdm_bytes same;

        assert_int_equal(tdm__version_record_decode(bytes, &back), TDM_OK);
        same = encode(&back, again);
        assert_int_equal(bytes.size_bytes, same.size_bytes);
        assert_memory_equal(bytes.data, same.data, bytes.size_bytes);
        while (bytes.size_bytes > 0) {
            bytes.size_bytes--;
            assert_int_equal(tdm__version_record_decode(bytes, &back), TDM_E_PROTOCOL);
        }
    }
    tdm_writer_destroy(writer);
    tdm_writer_destroy(again);
}

/* A store keeps records that an earlier program wrote. If this test fails because a table has
 * changed, the number of the format must change too. */
static void the_stored_form_has_not_changed(void **state)
{
    static const char stored[] =
        "\x99\x02\x02\x39\x39\x07\x08\x00\x99\xc4\x10\x62\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        "\x02\x39\0\xc4\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0"
        "\x92\x96\xc4\x10\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02\xc3\x07\x08"
        "\x96\xc4\x10\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\x03\xc3\x07\x08"
        "\x91\x94\xc4\x10\x61\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\x03";
    struct tdm__version_record record = make_record(7);
    struct tdm_bytes bytes;
    tdm_writer *writer;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    bytes = encode(&record, writer);
    assert_int_equal(bytes.size_bytes, sizeof(stored) - 1);
    assert_memory_equal(bytes.data, stored, bytes.size_bytes);
    tdm_writer_destroy(writer);
}

#define BREAKS(place, value)                                                                       \
    do {                                                                                           \
        struct tdm__version_record record = make_record(7);                                        \
        struct tdm__version_record back;                                                           \
        record.place = (value);                                                                    \
        assert_int_equal(tdm__version_record_decode(encode(&record, writer), &back),               \
                         TDM_E_PROTOCOL);                                                          \
    } while (0)

static void record_that_no_step_could_write_is_refused(void **state)
{
    tdm_writer *writer;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    BREAKS(epoch, 9);
    BREAKS(version, 99);
    BREAKS(version, 0);
    BREAKS(version_highest, 58);
    BREAKS(hash.low, 9);
    BREAKS(update.outcome, TDM__UPDATE_ABORTED);
    BREAKS(update.outcome, (enum tdm__update_outcome)4);
    BREAKS(update.members[0].voted, false);
    BREAKS(update.members[0].phase, (enum tdm__member_phase)0);
    BREAKS(update.members_count, 0);
    BREAKS(past_updates[0].outcome, TDM__UPDATE_UNDECIDED);
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_survives_the_store_after_every_step),
        cmocka_unit_test(the_stored_form_has_not_changed),
        cmocka_unit_test(record_that_no_step_could_write_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
