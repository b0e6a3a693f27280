/* source_state_test.c - a source restores a lost record, and no other process can. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/source_state.h"

#include "colocate/weights/commit_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { MEMBERS = 2 };

static const struct tdm__member members[MEMBERS] = {{{{1}}, 1}, {{{2}}, 1}};
static const struct tdm__member source = {{{9}}, 1};
static const struct tdm__hash hash = {7, 8};
static const struct tdm__id first = {{21}};
static const struct tdm__id second = {{22}};

/* The record in the store. Requests change it; a test that loses it sets it to zero. */
static struct tdm__version_record record;
static struct tdm__source_state source_state;

static void lose_all(void)
{
    memset(&record, 0, sizeof(record));
}

/* Applies a request and checks that the record can be encoded and decoded. */
static tdm_status ask(struct tdm__version_request request)
{
    static struct tdm__version_record again;
    bool changed = false;
    tdm_writer *writer;
    tdm_status status = tdm__version_apply_batched(&record, &request, &changed);

    TRY(tdm_writer_create(&writer));
    TRY(tdm__version_record_encode(&record, writer));
    TRY(tdm__version_record_decode(tdm_writer_bytes(writer), &again));
    assert_memory_equal(&again, &record, sizeof(record));
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status ask_member(enum tdm__version_request_kind kind, const struct tdm__id *update,
                             uint32_t member)
{
    return ask((struct tdm__version_request){
        .kind = kind, .update = *update, .member = members[member], .hash = hash});
}

static tdm_status ask_begin(const struct tdm__id *update)
{
    tdm_status status = ask((struct tdm__version_request){.kind = TDM__VERSION_BEGIN,
                                                          .update = *update,
                                                          .epoch = source_state.epoch,
                                                          .base = source_state.version,
                                                          .source = source,
                                                          .members = members,
                                                          .members_count = MEMBERS});

    if (status == TDM_OK) {
        tdm__source_state_on_begin(&source_state, update, record.epoch, record.update.version,
                                   record.version, &record.hash);
    }
    return status;
}

static enum tdm__update_outcome outcome_of(const struct tdm__id *update,
                                           enum tdm__update_outcome proposal)
{
    enum tdm__update_outcome outcome;

    TRY(ask((struct tdm__version_request){
        .kind = TDM__VERSION_DECIDE, .update = *update, .proposal = proposal}));
    TRY(tdm__version_outcome(&record, update, &outcome));
    return outcome;
}

static void decide(const struct tdm__id *update, enum tdm__update_outcome proposal)
{
    enum tdm__update_outcome outcome = outcome_of(update, proposal);

    tdm__source_state_on_decide(&source_state, outcome, record.version, &record.hash);
}

static void begin_and_vote(const struct tdm__id *update)
{
    TRY(ask_begin(update));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        TRY(ask_member(TDM__VERSION_PREPARED, update, i));
    }
}

static void flip(const struct tdm__id *update)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        TRY(ask_member(TDM__VERSION_FLIPPED, update, i));
    }
    tdm__source_state_on_settled(&source_state);
}

static struct tdm__version_request restore_of(void)
{
    struct tdm__version_request request = tdm__source_state_restore_request(&source_state);

    request.source = source;
    request.members = members;
    request.members_count = MEMBERS;
    return request;
}

static int start(void **state)
{
    (void)state;
    lose_all();
    source_state = (struct tdm__source_state){.settled = false};
    return 0;
}

static void source_without_replies_restores_nothing(void **state)
{
    (void)state;
    assert_false(tdm__source_state_is_ahead(&source_state, 0));
    assert_int_equal(ask(restore_of()), TDM_E_INVAL);
    assert_true(record.epoch == 0);
}

static void update_goes_on_where_all_had_flipped(void **state)
{
    (void)state;
    begin_and_vote(&first);
    decide(&first, TDM__UPDATE_COMMITTED);
    flip(&first);
    lose_all();
    assert_true(tdm__source_state_is_ahead(&source_state, record.epoch));
    assert_int_equal(ask_begin(&second), TDM_E_CONFLICT);
    TRY(ask(restore_of()));
    assert_false(tdm__source_state_is_ahead(&source_state, record.epoch));
    assert_true(record.version == 1 && tdm__hash_equal(&record.hash, &hash));
    begin_and_vote(&second);
    assert_true(record.epoch == 2 && record.update.version == 2);
    decide(&second, TDM__UPDATE_COMMITTED);
    flip(&second);
    assert_true(record.version == 2);
}

static void members_that_had_not_flipped_are_waited_for(void **state)
{
    (void)state;
    begin_and_vote(&first);
    decide(&first, TDM__UPDATE_COMMITTED);
    TRY(ask_member(TDM__VERSION_FLIPPED, &first, 0));
    lose_all();
    assert_int_equal(ask_member(TDM__VERSION_FLIPPED, &first, 1), TDM_E_NOT_FOUND);
    TRY(ask(restore_of()));
    TRY(ask_member(TDM__VERSION_FLIPPED, &first, 1));
    assert_int_equal(ask_begin(&second), TDM_E_STATE); /* Nothing is known of the other member. */
    TRY(ask_member(TDM__VERSION_FLIPPED, &first, 0));
    TRY(ask_begin(&second));
}

static void unheard_update_is_aborted_and_its_version_is_not_reused(void **state)
{
    (void)state;
    begin_and_vote(&first);
    assert_int_equal(outcome_of(&first, TDM__UPDATE_COMMITTED), TDM__UPDATE_COMMITTED);
    lose_all(); /* The record is lost before the source learns the outcome. */
    TRY(ask(restore_of()));
    assert_int_equal(outcome_of(&first, TDM__UPDATE_COMMITTED), TDM__UPDATE_ABORTED);
    assert_true(record.version == 0);
    TRY(ask_begin(&second));
    assert_true(record.epoch == 2 && record.update.version == 2);
}

static void base_of_nothing_does_not_begin_at_one_again(void **state)
{
    (void)state;
    TRY(ask_begin(&first));
    decide(&first, TDM__UPDATE_ABORTED);
    lose_all();
    assert_int_equal(ask_begin(&second), TDM_E_CONFLICT);
    TRY(ask(restore_of()));
    TRY(ask_begin(&second));
    assert_true(record.epoch == 2 && record.update.version == 2);
}

static void the_dead_are_restored_as_dead(void **state)
{
    struct tdm__version_request request;

    (void)state;
    begin_and_vote(&first);
    decide(&first, TDM__UPDATE_COMMITTED);
    lose_all();
    request = restore_of();
    request.dead = &members[1];
    request.dead_count = 1;
    TRY(ask(request));
    TRY(ask_member(TDM__VERSION_FLIPPED, &first, 0));
    assert_int_equal(ask_member(TDM__VERSION_FLIPPED, &first, 1), TDM_E_ACTOR_DIED);
}

static void record_that_knows_more_stays(void **state)
{
    struct tdm__version_request late;
    struct tdm__version_request other;

    (void)state;
    begin_and_vote(&first);
    decide(&first, TDM__UPDATE_COMMITTED);
    lose_all();
    late = restore_of();
    TRY(ask(late));
    flip(&first);
    TRY(ask(late)); /* The request is a repetition; members that flipped stay flipped. */
    assert_int_equal(record.update.members[0].phase, TDM__MEMBER_FLIPPED);
    TRY(ask_begin(&second));
    assert_int_equal(ask(late), TDM_E_CONFLICT);
    other = restore_of();
    other.epoch = 9;
    other.update = (struct tdm__id){{23}};
    other.update_version = 9;
    other.source.actor = (struct tdm__id){{8}}; /* This is not the source that began the update. */
    assert_int_equal(ask(other), TDM_E_CONFLICT);
    assert_true(tdm__id_equal(&record.update.id, &second));
}

static void older_record_of_the_same_source_is_replaced(void **state)
{
    static struct tdm__version_record old;

    (void)state;
    begin_and_vote(&first);
    decide(&first, TDM__UPDATE_COMMITTED);
    flip(&first);
    old = record;
    begin_and_vote(&second);
    decide(&second, TDM__UPDATE_COMMITTED);
    flip(&second);
    record = old;
    assert_int_equal(ask_begin(&(struct tdm__id){{23}}), TDM_E_CONFLICT);
    TRY(ask(restore_of()));
    assert_true(record.version == 2 && record.epoch == 2);
    TRY(ask_begin(&(struct tdm__id){{23}}));
}

static void impossible_state_of_a_source_is_refused(void **state)
{
    struct tdm__version_request request;

    (void)state;
    begin_and_vote(&first);
    decide(&first, TDM__UPDATE_COMMITTED);
    lose_all();
    request = restore_of();
    request.update_version = 2; /* Another version is committed. */
    assert_int_equal(ask(request), TDM_E_INVAL);
    request = restore_of();
    request.proposal = TDM__UPDATE_UNDECIDED;
    assert_int_equal(ask(request), TDM_E_INVAL);
    request = restore_of();
    request.proposal = TDM__UPDATE_ABORTED; /* The request aborts the committed version. */
    assert_int_equal(ask(request), TDM_E_INVAL);
    request = restore_of();
    request.members_count = 0;
    assert_int_equal(ask(request), TDM_E_INVAL);
    assert_true(record.epoch == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(source_without_replies_restores_nothing, start),
        cmocka_unit_test_setup(update_goes_on_where_all_had_flipped, start),
        cmocka_unit_test_setup(members_that_had_not_flipped_are_waited_for, start),
        cmocka_unit_test_setup(unheard_update_is_aborted_and_its_version_is_not_reused, start),
        cmocka_unit_test_setup(base_of_nothing_does_not_begin_at_one_again, start),
        cmocka_unit_test_setup(the_dead_are_restored_as_dead, start),
        cmocka_unit_test_setup(record_that_knows_more_stays, start),
        cmocka_unit_test_setup(older_record_of_the_same_source_is_replaced, start),
        cmocka_unit_test_setup(impossible_state_of_a_source_is_refused, start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
