/* commit_set_test.c - requests about several models on a store: all records change or none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/commit_set.h"

#include "cli/faulty_store.h"
#include "colocate/weights/commit_record.h"
#include "runtime/clock.h"
#include "runtime/loop/loop.h"
#include "tests/support/memory_store.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MODELS = 2, ROUNDS = 40, DEADLINE_MS = 20000, REQUEST_MS = 2000 };

static const char *const models[MODELS] = {"actor", "critic"};
static const struct tdm__member members[MODELS] = {{{{1}}, 1}, {{{2}}, 1}};

/* A store, a client, and the result of the last request. */
struct fixture {
    struct tdm__loop *loop;
    struct tdm__store *store;
    struct tdm__version_client *versions;
    int64_t request_ms;
    bool done;
    tdm_status status;
    char detail[256];
    /* Records of the last reply; of a request about one model only the first. */
    struct tdm__version_record records[MODELS];
};

static struct fixture fixture;

static bool is_done(void *arg)
{
    return ((struct fixture *)arg)->done;
}

static void on_set(void *arg, tdm_status status, const char *detail,
                   const struct tdm__version_record *records, uint32_t count)
{
    struct fixture *to = arg;

    assert_true((status == TDM_OK) == (records != NULL));
    assert_int_equal(count, status == TDM_OK ? MODELS : 0);
    to->done = true;
    to->status = status;
    (void)snprintf(to->detail, sizeof(to->detail), "%s", detail);
    if (records != NULL) {
        memcpy(to->records, records, count * sizeof(records[0]));
    }
}

static void on_one(void *arg, tdm_status status, const char *detail,
                   const struct tdm__version_record *record)
{
    struct fixture *to = arg;

    to->done = true;
    to->status = status;
    (void)snprintf(to->detail, sizeof(to->detail), "%s", detail);
    if (record != NULL) {
        to->records[0] = *record;
    }
}

static tdm_status await(void)
{
    assert_int_equal(
        tdm__loop_run(fixture.loop, is_done, &fixture, tdm__deadline_after(DEADLINE_MS)), TDM_OK);
    return fixture.status;
}

static struct tdm__id id_of(uint8_t model, uint8_t number)
{
    return (struct tdm__id){{number, model}};
}

/* Submits a request of one kind about all models, which may be lost. */
static tdm_status ask_set(enum tdm__version_request_kind kind, uint8_t number, uint64_t base,
                          enum tdm__update_outcome proposal)
{
    struct tdm__version_set_item items[MODELS];
    struct tdm__member copies[MODELS];

    for (uint8_t i = 0; i < MODELS; i++) {
        copies[i] = members[i];
        items[i] = (struct tdm__version_set_item){
            models[i],
            {.kind = kind,
             .update = id_of(i, number),
             .base = base,
             .source = {{{9}}, 1},
             .members = kind == TDM__VERSION_BEGIN ? &copies[i] : NULL,
             .members_count = kind == TDM__VERSION_BEGIN,
             .proposal = proposal}};
    }
    fixture.done = false;
    assert_int_equal(tdm__version_client_submit_set(fixture.versions, items, MODELS,
                                                    tdm__deadline_after(fixture.request_ms), on_set,
                                                    &fixture),
                     TDM_OK);
    memset(copies, 0xff, sizeof(copies)); /* The requests and their lists were copied. */
    memset(items, 0xff, sizeof(items));
    return await();
}

static tdm_status ask_one(uint8_t model, const struct tdm__version_request *request)
{
    fixture.done = false;
    assert_int_equal(tdm__version_client_submit(fixture.versions, models[model],
                                                tdm__deadline_after(fixture.request_ms), request,
                                                on_one, &fixture),
                     TDM_OK);
    return await();
}

static tdm_status ask_member(enum tdm__version_request_kind kind, uint8_t model, uint8_t number)
{
    return ask_one(model, &(struct tdm__version_request){.kind = kind,
                                                         .update = id_of(model, number),
                                                         .member = members[model]});
}

/* Asks until a reply comes; returns it. */
static tdm_status insist(tdm_status (*ask)(uint8_t model, uint8_t number), uint8_t model,
                         uint8_t number)
{
    tdm_status status;

    do {
        status = ask(model, number);
    } while (status == TDM_E_STORE || status == TDM_E_TIMEOUT);
    return status;
}

static tdm_status vote(uint8_t model, uint8_t number)
{
    return ask_member(TDM__VERSION_PREPARED, model, number);
}

static tdm_status flip(uint8_t model, uint8_t number)
{
    return ask_member(TDM__VERSION_FLIPPED, model, number);
}

static tdm_status abort_alone(uint8_t model, uint8_t number)
{
    return ask_one(model, &(struct tdm__version_request){.kind = TDM__VERSION_DECIDE,
                                                         .update = id_of(model, number),
                                                         .proposal = TDM__UPDATE_ABORTED});
}

static uint64_t base;

static tdm_status begin_set(uint8_t model, uint8_t number)
{
    (void)model;
    return ask_set(TDM__VERSION_BEGIN, number, base, 0);
}

static tdm_status commit_set(uint8_t model, uint8_t number)
{
    (void)model;
    return ask_set(TDM__VERSION_DECIDE, number, 0, TDM__UPDATE_COMMITTED);
}

static void open_fixture(struct tdm__store *store)
{
    fixture.store = store;
    fixture.request_ms = REQUEST_MS;
    base = 0;
    assert_int_equal(tdm__version_client_open(fixture.loop, store, &fixture.versions), TDM_OK);
}

static void close_fixture(void)
{
    tdm__version_client_close(fixture.versions);
    fixture.store->ops->close(fixture.store);
    tdm__loop_destroy(fixture.loop);
}

static void open_on_memory(void)
{
    struct tdm__store *store;

    assert_int_equal(tdm__loop_create(&fixture.loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(fixture.loop, &store), TDM_OK);
    open_fixture(store);
}

/* ---- the tests ----------------------------------------------------------------------- */

static void both_records_change_in_one_commit(void **state)
{
    (void)state;
    open_on_memory();
    assert_int_equal(begin_set(0, 1), TDM_OK);
    for (int i = 0; i < MODELS; i++) {
        assert_true(fixture.records[i].update.version == 1);
        assert_true(fixture.records[i].update.outcome == TDM__UPDATE_UNDECIDED);
    }
    assert_int_equal(vote(0, 1), TDM_OK);
    assert_int_equal(commit_set(0, 1), TDM_E_STATE);
    assert_non_null(
        strstr(fixture.detail, "weight/critic")); /* The record whose vote is missing. */
    assert_int_equal(vote(1, 1), TDM_OK);
    assert_int_equal(commit_set(0, 1), TDM_OK);
    for (uint8_t i = 0; i < MODELS; i++) {
        assert_true(fixture.records[i].version == 1);
    }
    assert_int_equal(flip(0, 1), TDM_OK);
    base = 1;
    assert_int_equal(begin_set(0, 2), TDM_E_STATE); /* The critic has not flipped. */
    assert_int_equal(ask_one(0, &(struct tdm__version_request){.kind = TDM__VERSION_READ}), TDM_OK);
    assert_true(fixture.records[0].epoch == 1);
    close_fixture();
}

static void sets_that_make_no_sense_are_refused(void **state)
{
    struct tdm__version_set_item items[MODELS] = {{"actor", {.kind = TDM__VERSION_BEGIN}},
                                                  {"actor", {.kind = TDM__VERSION_BEGIN}}};

    (void)state;
    open_on_memory();
    assert_int_equal(
        tdm__version_client_submit_set(fixture.versions, items, MODELS, 0, on_set, NULL),
        TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "model actor is named twice"));
    items[1].model = "a/b";
    assert_int_equal(
        tdm__version_client_submit_set(fixture.versions, items, MODELS, 0, on_set, NULL),
        TDM_E_INVAL);
    assert_int_equal(tdm__version_client_submit_set(fixture.versions, items, 0, 0, on_set, NULL),
                     TDM_E_INVAL);
    close_fixture();
}

/* Two requests at once: a set that commits and a receiver that aborts its model. Whichever is
 * stored first, both models have one outcome in the end. */
static void race_with_a_receiver_that_aborts(bool receiver_is_first)
{
    struct tdm__version_set_item items[MODELS];
    static struct fixture receiver;

    open_on_memory();
    assert_int_equal(begin_set(0, 1), TDM_OK);
    assert_int_equal(vote(0, 1), TDM_OK);
    assert_int_equal(vote(1, 1), TDM_OK);
    for (uint8_t i = 0; i < MODELS; i++) {
        items[i] = (struct tdm__version_set_item){models[i],
                                                  {.kind = TDM__VERSION_DECIDE,
                                                   .update = id_of(i, 1),
                                                   .proposal = TDM__UPDATE_COMMITTED}};
    }
    fixture.done = false;
    receiver = (struct fixture){.done = false};
    for (int i = 0; i < 2; i++) {
        if ((i == 0) == receiver_is_first) {
            assert_int_equal(tdm__version_client_submit(
                                 fixture.versions, models[1], tdm__deadline_after(REQUEST_MS),
                                 &(struct tdm__version_request){.kind = TDM__VERSION_DECIDE,
                                                                .update = id_of(1, 1),
                                                                .proposal = TDM__UPDATE_ABORTED},
                                 on_one, &receiver),
                             TDM_OK);
        } else {
            assert_int_equal(tdm__version_client_submit_set(fixture.versions, items, MODELS,
                                                            tdm__deadline_after(REQUEST_MS), on_set,
                                                            &fixture),
                             TDM_OK);
        }
    }
    assert_int_equal(
        tdm__loop_run(fixture.loop, is_done, &receiver, tdm__deadline_after(DEADLINE_MS)), TDM_OK);
    assert_int_equal(await(), TDM_OK);
    assert_int_equal(receiver.status, TDM_OK);
    assert_int_equal(fixture.records[0].update.outcome, fixture.records[1].update.outcome);
    assert_int_equal(receiver.records[0].update.outcome, fixture.records[1].update.outcome);
    close_fixture();
}

static void race_has_one_outcome_for_both_models(void **state)
{
    (void)state;
    race_with_a_receiver_that_aborts(true);
    race_with_a_receiver_that_aborts(false);
}

/* Runs one update to its end, in which a receiver of the critic may give up. Both records must then
 * have the same outcome. */
static void run_update(uint8_t number, bool gives_up, uint32_t *commits)
{
    enum tdm__update_outcome outcome;
    tdm_status status;

    assert_int_equal(insist(begin_set, 0, number), TDM_OK);
    assert_true(fixture.records[0].update.version == fixture.records[1].update.version);
    assert_int_equal(insist(vote, 0, number), TDM_OK);
    assert_int_equal(insist(vote, 1, number), TDM_OK);
    if (gives_up) {
        assert_int_equal(insist(abort_alone, 1, number), TDM_OK);
    }
    status = insist(commit_set, 0, number);
    assert_int_equal(status, TDM_OK);
    outcome = fixture.records[0].update.outcome;
    assert_int_equal(outcome, gives_up ? TDM__UPDATE_ABORTED : TDM__UPDATE_COMMITTED);
    assert_int_equal(fixture.records[1].update.outcome, outcome);
    assert_true(fixture.records[0].version == fixture.records[1].version);
    base = fixture.records[0].version;
    for (uint8_t i = 0; i < MODELS && !gives_up; i++) {
        assert_int_equal(insist(flip, i, number), TDM_OK);
    }
    *commits += !gives_up;
}

static void set_stays_a_set_although_replies_are_lost(void **state)
{
    uint64_t seed = test_random_first_seed("commit_set");
    struct tdm__store *memory;
    struct tdm__store *faulty;
    uint32_t commits = 0;

    (void)state;
    assert_int_equal(tdm__loop_create(&fixture.loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(fixture.loop, &memory), TDM_OK);
    assert_int_equal(tdm__store_faulty_open(fixture.loop, memory, seed, 15, &faulty), TDM_OK);
    open_fixture(faulty);
    for (uint8_t number = 1; number <= ROUNDS; number++) {
        run_update(number, number % 4 == 0, &commits);
    }
    assert_int_equal(commits, ROUNDS - ROUNDS / 4);
    tdm__version_client_close(fixture.versions);
    faulty->ops->close(faulty);
    memory->ops->close(memory);
    tdm__loop_destroy(fixture.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_records_change_in_one_commit),
        cmocka_unit_test(sets_that_make_no_sense_are_refused),
        cmocka_unit_test(race_has_one_outcome_for_both_models),
        cmocka_unit_test(set_stays_a_set_although_replies_are_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
