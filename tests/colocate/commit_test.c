/* commit_test.c - the commit protocol on a store, with racing requests and lost replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/commit.h"

#include "cli/faulty_store.h"
#include "runtime/clock.h"
#include "runtime/loop/loop.h"
#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ENGINES = 3, UPDATES = 60, TEST_DEADLINE_MS = 20000, REQUEST_DEADLINE_MS = 2000 };

enum phase { IDLE, BEGINNING, DRIVING, STAGED, VOTED, ASKING, FLIPPED };

/* The source (index 0) or an engine. It has at most one request in progress. */
struct participant {
    struct fleet *fleet;
    uint32_t index;
    enum phase phase;
    bool busy;
    struct tdm__id update;
    uint64_t version; /* Version number of its update. */
    uint64_t serving; /* Version that an engine serves; 0 if none. */
    bool generating;
};

/* All participants of the test and what they have learned. */
struct fleet {
    struct tdm__version_client *records;
    int64_t request_deadline_ms;
    struct tdm__member members[ENGINES];
    struct participant participants[ENGINES + 1];
    uint64_t random;
    bool news; /* True if a reply has arrived since the last step. */
    uint32_t begun;
    uint64_t base;
    uint32_t commits;
    uint32_t aborts;
    /* Outcome of each update, by its number. An outcome that is known never changes. */
    uint8_t outcomes[UPDATES + 1];
    uint64_t versions[UPDATES + 1];
};

static uint64_t random_below(struct fleet *fleet, uint64_t bound)
{
    uint64_t z = fleet->random += 0x9e3779b97f4a7c15U;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    return (z ^ z >> 31) % bound;
}

static uint8_t number_of(const struct tdm__id *update)
{
    return update->bytes[0];
}

/* Checks that a reply agrees with all replies before. */
static void check_record(struct fleet *fleet, const struct tdm__version_record *record)
{
    uint8_t number = number_of(&record->update.id);
    uint8_t known = fleet->outcomes[number];

    assert_true(record->version <= record->version_highest);
    if (number == 0) {
        return;
    }
    assert_true(known <= TDM__UPDATE_UNDECIDED || known == record->update.outcome ||
                record->update.outcome == TDM__UPDATE_UNDECIDED);
    if (record->update.outcome != TDM__UPDATE_UNDECIDED) {
        fleet->outcomes[number] = (uint8_t)record->update.outcome;
    }
    assert_true(fleet->versions[number] == 0 || fleet->versions[number] == record->update.version);
    fleet->versions[number] = record->update.version;
    assert_true(number == 1 || fleet->versions[number - 1] < record->update.version);
}

static void check_fleet(const struct fleet *fleet)
{
    uint64_t served = 0;

    for (uint32_t i = 1; i <= ENGINES; i++) {
        const struct participant *engine = &fleet->participants[i];

        if (engine->generating && engine->serving != 0) {
            assert_true(served == 0 || served == engine->serving);
            served = engine->serving;
        }
    }
}

/* Delivers the stage message of the current update. An engine accepts it when it does not wait for
 * a reply. */
static void take_stage(struct participant *engine)
{
    const struct participant *source = &engine->fleet->participants[0];

    if (source->phase == DRIVING && !tdm__id_equal(&engine->update, &source->update)) {
        engine->phase = STAGED;
        engine->update = source->update;
        engine->version = source->version;
    }
}

static void source_answered(struct participant *participant, tdm_status status,
                            const struct tdm__version_record *record)
{
    struct fleet *fleet = participant->fleet;
    enum tdm__update_outcome outcome;

    if (status != TDM_OK) {
        /* The source asks again, because not all members have voted or flipped, or the reply was
         * lost. */
        return;
    }
    if (participant->phase == BEGINNING) {
        assert_true(tdm__id_equal(&record->update.id, &participant->update));
        participant->version = record->update.version;
        participant->phase = DRIVING;
        return;
    }
    assert_int_equal(tdm__version_outcome(record, &participant->update, &outcome), TDM_OK);
    fleet->commits += outcome == TDM__UPDATE_COMMITTED;
    fleet->aborts += outcome == TDM__UPDATE_ABORTED;
    fleet->base = record->version;
    participant->phase = IDLE;
}

static void engine_answered(struct participant *participant, tdm_status status,
                            const struct tdm__version_record *record)
{
    enum tdm__update_outcome outcome;

    if (participant->phase == STAGED && status == TDM_E_ABORTED) {
        participant->phase = IDLE;
        participant->generating = true;
    } else if (status == TDM_OK && participant->phase == STAGED) {
        participant->phase = VOTED;
    } else if (status == TDM_OK && participant->phase == ASKING) {
        assert_int_equal(tdm__version_outcome(record, &participant->update, &outcome), TDM_OK);
        participant->phase = outcome == TDM__UPDATE_COMMITTED ? FLIPPED : IDLE;
        if (outcome == TDM__UPDATE_COMMITTED) {
            assert_true(participant->version > participant->serving);
            participant->serving = participant->version;
        }
        participant->generating = outcome != TDM__UPDATE_COMMITTED;
    } else if (status == TDM_OK && participant->phase == FLIPPED) {
        participant->phase = IDLE;
        participant->generating = true;
    } else {
        assert_true(status == TDM_E_STORE || status == TDM_E_TIMEOUT);
    }
}

static void answered(void *arg, tdm_status status, const char *detail,
                     const struct tdm__version_record *record)
{
    struct participant *participant = arg;

    participant->busy = false;
    participant->fleet->news = true;
    assert_true((status == TDM_OK) == (record != NULL));
    if (status != TDM_OK && status != TDM_E_STATE && status != TDM_E_ABORTED &&
        status != TDM_E_STORE && status != TDM_E_TIMEOUT) {
        fail_msg("%s: %s", tdm_strerror(status), detail);
    }
    if (record != NULL) {
        check_record(participant->fleet, record);
    }
    if (participant->index == 0) {
        source_answered(participant, status, record);
    } else {
        engine_answered(participant, status, record);
    }
    check_fleet(participant->fleet);
}

static void ask(struct fleet *fleet, struct participant *participant,
                const struct tdm__version_request *request)
{
    assert_int_equal(tdm__version_client_submit(fleet->records, "policy",
                                                fleet->request_deadline_ms, request, answered,
                                                participant),
                     TDM_OK);
}

static void source_asks(struct fleet *fleet, struct participant *participant)
{
    struct tdm__version_request request = {.source = {{{99}}, 1}};

    if (participant->phase == IDLE) {
        if (fleet->begun == UPDATES) {
            return;
        }
        participant->update = (struct tdm__id){{(uint8_t)++fleet->begun}};
        participant->phase = BEGINNING;
    }
    request.update = participant->update;
    if (participant->phase == BEGINNING) {
        request.kind = TDM__VERSION_BEGIN;
        request.base = fleet->base;
        request.members = fleet->members;
        request.members_count = ENGINES;
    } else {
        request.kind = TDM__VERSION_DECIDE;
        request.proposal =
            random_below(fleet, 20) == 0 ? TDM__UPDATE_ABORTED : TDM__UPDATE_COMMITTED;
    }
    participant->busy = true;
    ask(fleet, participant, &request);
}

static void engine_asks(struct fleet *fleet, struct participant *participant)
{
    struct tdm__version_request request = {.member = fleet->members[participant->index - 1]};

    take_stage(participant);
    request.update = participant->update;
    switch (participant->phase) {
    case STAGED:
        participant->generating = false;
        request.kind = TDM__VERSION_PREPARED;
        /* In one of ten updates an engine has wrong bytes. */
        request.hash.low = participant->index == 2 && number_of(&participant->update) % 10 == 0;
        break;
    case VOTED: /* The engine waits for the source until its patience ends. */
        if (fleet->outcomes[number_of(&participant->update)] <= TDM__UPDATE_UNDECIDED &&
            random_below(fleet, 12) != 0) {
            return;
        }
        participant->phase = ASKING;
        /* fall through */
    case ASKING:
        request.kind = TDM__VERSION_DECIDE;
        request.proposal = TDM__UPDATE_ABORTED;
        break;
    case FLIPPED:
        request.kind = TDM__VERSION_FLIPPED;
        break;
    case IDLE:
    case BEGINNING:
    case DRIVING:
        return;
    }
    participant->busy = true;
    ask(fleet, participant, &request);
}

static bool is_over(const struct fleet *fleet)
{
    for (uint32_t i = 0; i <= ENGINES; i++) {
        if (fleet->participants[i].busy || fleet->participants[i].phase != IDLE) {
            return false;
        }
    }
    return fleet->begun == UPDATES;
}

/* Returns true if a reply has arrived or no participant waits for one. */
static bool may_go_on(void *arg)
{
    const struct fleet *fleet = arg;

    for (uint32_t i = 0; i <= ENGINES && !fleet->news; i++) {
        if (fleet->participants[i].busy) {
            return false;
        }
    }
    return true;
}

static void run_fleet(struct tdm__loop *loop, struct tdm__store *store, uint64_t seed)
{
    struct fleet fleet = {.random = seed};
    int64_t deadline_ms = tdm__clock_ms() + TEST_DEADLINE_MS;

    assert_int_equal(tdm__version_client_open(loop, store, &fleet.records), TDM_OK);
    for (uint32_t i = 0; i <= ENGINES; i++) {
        fleet.participants[i] = (struct participant){.fleet = &fleet, .index = i};
    }
    for (uint32_t i = 0; i < ENGINES; i++) {
        fleet.members[i] = (struct tdm__member){{{(uint8_t)(i + 1)}}, 1};
    }
    while (!is_over(&fleet)) {
        assert_true(tdm__clock_ms() < deadline_ms);
        fleet.news = false;
        fleet.request_deadline_ms = tdm__clock_ms() + REQUEST_DEADLINE_MS;
        for (uint32_t i = 0; i <= ENGINES; i++) {
            struct participant *participant = &fleet.participants[i];

            if (participant->busy || random_below(&fleet, 3) == 0) {
                continue;
            }
            if (i == 0) {
                source_asks(&fleet, participant);
            } else {
                engine_asks(&fleet, participant);
            }
        }
        assert_int_equal(tdm__loop_run(loop, may_go_on, &fleet, deadline_ms), TDM_OK);
    }
    printf("seed %llu: %u committed, %u aborted\n", (unsigned long long)seed, fleet.commits,
           fleet.aborts);
    assert_true(fleet.commits > 0 && fleet.aborts > 0);
    for (uint32_t i = 1; i <= ENGINES; i++) {
        assert_int_equal(fleet.participants[i].serving, fleet.base);
    }
    tdm__version_client_close(fleet.records);
}

static void racing_parties_agree_on_a_memory_store(void **state)
{
    uint64_t seed = (uint64_t)tdm__clock_ns();
    struct tdm__loop *loop;
    struct tdm__store *store;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    for (uint64_t round = 0; round < 5; round++) {
        assert_int_equal(tdm__store_memory_open(loop, &store), TDM_OK);
        run_fleet(loop, store, seed + round);
        store->ops->close(store);
    }
    tdm__loop_destroy(loop);
}

static void racing_parties_agree_although_answers_are_lost(void **state)
{
    uint64_t seed = (uint64_t)tdm__clock_ns();
    struct tdm__loop *loop;
    struct tdm__store *memory;
    struct tdm__store *faulty;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(loop, &memory), TDM_OK);
    assert_int_equal(tdm__store_faulty_open(loop, memory, seed, 10, &faulty), TDM_OK);
    run_fleet(loop, faulty, seed);
    faulty->ops->close(faulty);
    memory->ops->close(memory);
    tdm__loop_destroy(loop);
}

static void wrong_model_name_is_refused(void **state)
{
    const char *names[] = {"", "a*", "a/b", "a b"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(tdm__version_client_submit(NULL, names[i], 0,
                                                    &(struct tdm__version_request){0}, NULL, NULL),
                         TDM_E_INVAL);
    }
}

/* ---- requests that share a transaction ----------------------------------------------- */

enum { VOTERS = 8 };

/* A memory store that counts its commits. */
struct counted {
    struct tdm__loop *loop;
    struct tdm__store *store;
    struct tdm__version_client *versions;
    struct tdm__member members[VOTERS];
    uint32_t due;
    tdm_status statuses[VOTERS + 1];
    uint64_t prepared[VOTERS + 1]; /* Number of votes in the record of each reply. */
};

static const struct tdm__store_ops *memory_ops;
static uint32_t commits_count;
static uint32_t reads_count;

static void count_read(struct tdm__store *store, const char *const *patterns,
                       uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                       void *arg)
{
    reads_count++;
    memory_ops->read(store, patterns, patterns_count, deadline_ms, fn, arg);
}

static void count_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                         uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                         void *arg)
{
    commits_count++;
    memory_ops->commit(store, writes, writes_count, deadline_ms, fn, arg);
}

static void open_counted(struct counted *counted)
{
    static struct tdm__store_ops ops;

    assert_int_equal(tdm__loop_create(&counted->loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(counted->loop, &counted->store), TDM_OK);
    memory_ops = counted->store->ops;
    ops = *memory_ops;
    ops.commit = count_commit;
    ops.read = count_read;
    counted->store->ops = &ops;
    assert_int_equal(tdm__version_client_open(counted->loop, counted->store, &counted->versions),
                     TDM_OK);
    for (uint32_t i = 0; i < VOTERS; i++) {
        counted->members[i] = (struct tdm__member){{{(uint8_t)(i + 1)}}, 1};
    }
}

static void close_counted(struct counted *counted)
{
    counted->store->ops->close(counted->store);
    tdm__loop_destroy(counted->loop);
}

struct place {
    struct counted *counted;
    uint32_t index;
};

static void note(void *arg, tdm_status status, const char *detail,
                 const struct tdm__version_record *record)
{
    const struct place *place = arg;
    struct counted *counted = place->counted;

    assert_true((status == TDM_OK) == (record != NULL));
    assert_true(status == TDM_OK || detail[0] != '\0');
    counted->statuses[place->index] = status;
    for (uint32_t i = 0; record != NULL && i < record->update.members_count; i++) {
        counted->prepared[place->index] += record->update.members[i].phase == TDM__MEMBER_PREPARED;
    }
    counted->due--;
}

static bool none_is_due(void *arg)
{
    return ((struct counted *)arg)->due == 0;
}

static void await_answers(struct counted *counted)
{
    assert_int_equal(
        tdm__loop_run(counted->loop, none_is_due, counted, tdm__deadline_after(TEST_DEADLINE_MS)),
        TDM_OK);
}

static void ask_counted(struct place *place, const struct tdm__version_request *request)
{
    place->counted->due++;
    assert_int_equal(tdm__version_client_submit(place->counted->versions, "policy",
                                                tdm__deadline_after(TEST_DEADLINE_MS), request,
                                                note, place),
                     TDM_OK);
}

/* Begins an update through another client, so that this one has to read the record. */
static void begin_counted(struct counted *counted)
{
    struct tdm__version_client *here = counted->versions;
    struct place place = {counted, 0};

    assert_int_equal(tdm__version_client_open(counted->loop, counted->store, &counted->versions),
                     TDM_OK);
    ask_counted(&place, &(struct tdm__version_request){.kind = TDM__VERSION_BEGIN,
                                                       .update = {{1}},
                                                       .source = {{{99}}, 1},
                                                       .members = counted->members,
                                                       .members_count = VOTERS});
    await_answers(counted);
    tdm__version_client_close(counted->versions);
    counted->versions = here;
    memset(counted->prepared, 0, sizeof(counted->prepared));
    commits_count = 0;
    reads_count = 0;
}

/* Submits the votes of all members, and in the middle one of a process that is not a member. */
static void ask_votes(struct counted *counted, struct place places[VOTERS + 1])
{
    for (uint32_t i = 0; i <= VOTERS; i++) {
        struct tdm__version_request vote = {.kind = TDM__VERSION_PREPARED, .update = {{1}}};

        vote.member = i == VOTERS / 2  ? (struct tdm__member){{{77}}, 1}
                      : i < VOTERS / 2 ? counted->members[i]
                                       : counted->members[i - 1];
        places[i] = (struct place){counted, i};
        ask_counted(&places[i], &vote);
    }
}

static tdm_status ask_and_wait(struct counted *counted, const struct tdm__version_request *request)
{
    struct place place = {counted, 0};

    ask_counted(&place, request);
    await_answers(counted);
    return counted->statuses[0];
}

static void on_records(void *arg, tdm_status status, const struct tdm__store_record *records,
                       uint32_t records_count)
{
    struct counted *counted = arg;

    (void)records;
    assert_int_equal(status, TDM_OK);
    counted->prepared[0] = records_count;
    counted->due--;
}

static uint64_t stored_records(struct counted *counted)
{
    static const char *const patterns[] = {"weight/*"};

    counted->due = 1;
    counted->store->ops->read(counted->store, patterns, 1, tdm__deadline_after(TEST_DEADLINE_MS),
                              on_records, counted);
    await_answers(counted);
    return counted->prepared[0];
}

static void record_is_forgotten_when_no_request_can_need_it(void **state)
{
    const struct tdm__version_request forget = {.kind = TDM__VERSION_FORGET, .update = {{1}}};
    struct tdm__version_request step = {
        .kind = TDM__VERSION_DECIDE, .update = {{1}}, .proposal = TDM__UPDATE_COMMITTED};
    struct counted counted = {.due = 0};
    struct place places[VOTERS + 1];

    (void)state;
    open_counted(&counted);
    assert_int_equal(ask_and_wait(&counted, &forget), TDM_OK); /* there is none */
    begin_counted(&counted);
    ask_votes(&counted, places);
    await_answers(&counted);
    assert_int_equal(ask_and_wait(&counted, &forget), TDM_E_STATE);
    assert_int_equal(ask_and_wait(&counted, &step), TDM_OK);
    step.kind = TDM__VERSION_FLIPPED;
    for (uint32_t i = 0; i < VOTERS; i++) {
        /* One member has not flipped. */
        assert_int_equal(ask_and_wait(&counted, &forget), TDM_E_STATE);
        step.member = counted.members[i];
        assert_int_equal(ask_and_wait(&counted, &step), TDM_OK);
    }
    assert_int_equal(
        ask_and_wait(&counted,
                     &(struct tdm__version_request){.kind = TDM__VERSION_FORGET, .update = {{2}}}),
        TDM_E_CONFLICT);
    assert_int_equal(stored_records(&counted), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask_and_wait(&counted, &forget), TDM_OK);
        assert_int_equal(stored_records(&counted), 0);
    }
    assert_int_equal(ask_and_wait(&counted, &step), TDM_E_NOT_FOUND);
    tdm__version_client_close(counted.versions);
    close_counted(&counted);
}

static void votes_that_come_together_are_one_transaction(void **state)
{
    struct counted counted = {.due = 0};
    struct place places[VOTERS + 1];

    (void)state;
    open_counted(&counted);
    begin_counted(&counted);
    ask_votes(&counted, places);
    await_answers(&counted);
    assert_int_equal(commits_count, 1);
    for (uint32_t i = 0; i <= VOTERS; i++) {
        if (i == VOTERS / 2) {
            assert_int_equal(counted.statuses[i], TDM_E_NOT_FOUND);
        } else {
            assert_int_equal(counted.statuses[i], TDM_OK);
            assert_int_equal(counted.prepared[i], i < VOTERS / 2 ? i + 1 : i);
        }
    }
    tdm__version_client_close(counted.versions);
    close_counted(&counted);
}

static void vote(struct counted *counted, struct tdm__version_client *where, uint32_t index)
{
    struct tdm__version_request request = {
        .kind = TDM__VERSION_PREPARED, .update = {{1}}, .member = counted->members[index]};
    struct place place = {counted, index};

    counted->due = 1;
    assert_int_equal(tdm__version_client_submit(where, "policy",
                                                tdm__deadline_after(TEST_DEADLINE_MS), &request,
                                                note, &place),
                     TDM_OK);
    await_answers(counted);
    assert_int_equal(counted->statuses[index], TDM_OK);
    assert_int_equal(counted->prepared[index], index + 1);
}

static void votes_one_after_the_other_read_the_record_once(void **state)
{
    struct counted counted = {.due = 0};

    (void)state;
    open_counted(&counted);
    begin_counted(&counted);
    for (uint32_t i = 0; i < VOTERS; i++) {
        vote(&counted, counted.versions, i);
    }
    assert_int_equal(commits_count, VOTERS);
    assert_int_equal(reads_count, 1);
    tdm__version_client_close(counted.versions);
    close_counted(&counted);
}

static void two_nodes_that_vote_in_turn_are_both_right(void **state)
{
    struct counted counted = {.due = 0};
    struct tdm__version_client *elsewhere;

    (void)state;
    open_counted(&counted);
    begin_counted(&counted);
    assert_int_equal(tdm__version_client_open(counted.loop, counted.store, &elsewhere), TDM_OK);
    for (uint32_t i = 0; i < VOTERS; i++) {
        vote(&counted, i % 2 == 0 ? counted.versions : elsewhere, i);
    }
    /* Some transactions start from a guess of the record, but not each of them. */
    assert_in_range(commits_count, VOTERS + 1, VOTERS + 4);
    tdm__version_client_close(elsewhere);
    tdm__version_client_close(counted.versions);
    close_counted(&counted);
}

/* Another node votes in between, so the transaction has to run again, for which the first of both
 * requests has no time left. */
static void request_with_time_left_does_not_fail_with_an_expired_one(void **state)
{
    struct counted counted = {.due = 0};
    struct tdm__version_request vote = {.kind = TDM__VERSION_PREPARED, .update = {{1}}};
    struct tdm__version_client *elsewhere;
    struct place places[3];

    (void)state;
    open_counted(&counted);
    begin_counted(&counted);
    assert_int_equal(tdm__version_client_open(counted.loop, counted.store, &elsewhere), TDM_OK);
    counted.due = 3;
    for (uint32_t i = 0; i < 3; i++) {
        int64_t timeout_ms = i == 1 ? 0 : TEST_DEADLINE_MS;

        places[i] = (struct place){&counted, i};
        vote.member = counted.members[i];
        assert_int_equal(tdm__version_client_submit(i == 0 ? elsewhere : counted.versions, "policy",
                                                    tdm__deadline_after(timeout_ms), &vote, note,
                                                    &places[i]),
                         TDM_OK);
    }
    await_answers(&counted);
    assert_int_equal(counted.statuses[0], TDM_OK);
    assert_int_equal(counted.statuses[1], TDM_E_TIMEOUT);
    assert_int_equal(counted.statuses[2], TDM_OK);
    assert_int_equal(counted.prepared[2], 2); /* The request that failed has left no trace. */
    tdm__version_client_close(elsewhere);
    tdm__version_client_close(counted.versions);
    close_counted(&counted);
}

static void closing_the_client_answers_all_requests(void **state)
{
    struct counted counted = {.due = 0};
    struct place places[VOTERS + 1];

    (void)state;
    open_counted(&counted);
    begin_counted(&counted);
    ask_votes(&counted, places);
    tdm__version_client_close(counted.versions);
    close_counted(&counted);
    assert_int_equal(counted.due, 0);
    for (uint32_t i = 0; i <= VOTERS; i++) {
        assert_int_equal(counted.statuses[i], TDM_E_STORE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(racing_parties_agree_on_a_memory_store),
        cmocka_unit_test(racing_parties_agree_although_answers_are_lost),
        cmocka_unit_test(wrong_model_name_is_refused),
        cmocka_unit_test(record_is_forgotten_when_no_request_can_need_it),
        cmocka_unit_test(votes_that_come_together_are_one_transaction),
        cmocka_unit_test(votes_one_after_the_other_read_the_record_once),
        cmocka_unit_test(two_nodes_that_vote_in_turn_are_both_right),
        cmocka_unit_test(request_with_time_left_does_not_fail_with_an_expired_one),
        cmocka_unit_test(closing_the_client_answers_all_requests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
