/* version_service_test.c - a process asks its daemon for the steps of an update. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/version_service.h"

#include "runtime/clock.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 10000, MEMBERS = 2 };

static tdm_runtime *runtime;
static const struct tdm__member members[MEMBERS] = {{{{1}}, 1}, {{{2}}, 1}};
static const struct tdm__hash hash = {7, 8};

static tdm_status ask(const char *model, struct tdm__version_request request,
                      struct tdm__version_reply *answer)
{
    return tdm__version_service_call(runtime, model, &request, WAIT_MS, answer);
}

static struct tdm__version_request begin_of(const struct tdm__id *update, uint64_t base)
{
    return (struct tdm__version_request){.kind = TDM__VERSION_BEGIN,
                                         .update = *update,
                                         .base = base,
                                         .source = {{{9}}, 1},
                                         .members = members,
                                         .members_count = MEMBERS};
}

static struct tdm__version_request of_member(enum tdm__version_request_kind kind,
                                             const struct tdm__id *update, uint32_t member)
{
    return (struct tdm__version_request){
        .kind = kind, .update = *update, .member = members[member], .hash = hash};
}

static struct tdm__version_request decide(const struct tdm__id *update,
                                          enum tdm__update_outcome proposal)
{
    return (struct tdm__version_request){
        .kind = TDM__VERSION_DECIDE, .update = *update, .proposal = proposal};
}

static void assert_refused(const char *model, struct tdm__version_request request)
{
    struct tdm__version_reply answer = {.version = 77};

    assert_int_equal(ask(model, request, &answer), TDM_E_STATE);
    assert_true(answer.version == 77);
}

/* Runs a whole update, up to the last report of a flip. */
static struct tdm__version_reply commit(const char *model, const struct tdm__id *update,
                                        uint64_t base)
{
    struct tdm__version_reply answer;

    TRY(ask(model, begin_of(update, base), &answer));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        TRY(ask(model, of_member(TDM__VERSION_PREPARED, update, i), &answer));
    }
    TRY(ask(model, decide(update, TDM__UPDATE_COMMITTED), &answer));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        TRY(ask(model, of_member(TDM__VERSION_FLIPPED, update, i), &answer));
    }
    return answer;
}

static void model_without_updates_has_no_version(void **state)
{
    const struct tdm__version_request read = {.kind = TDM__VERSION_READ};
    struct tdm__version_reply answer;

    (void)state;
    TRY(ask("nobody", read, &answer));
    assert_true(answer.version == 0 && answer.epoch == 0 && answer.bytes == TDM__BYTES_HELD);
}

static void update_goes_from_begin_to_flip(void **state)
{
    const struct tdm__id update = {.bytes = {1}};
    struct tdm__version_reply answer;

    (void)state;
    TRY(ask("whole", begin_of(&update, 0), &answer));
    assert_true(answer.version == 0 && answer.epoch == 1 && answer.update_version == 1);
    assert_int_equal(answer.outcome, TDM__UPDATE_UNDECIDED);
    /* The reply was lost, so the same request is sent again. */
    TRY(ask("whole", begin_of(&update, 0), &answer));
    assert_true(answer.epoch == 1 && answer.update_version == 1);
    TRY(ask("whole", of_member(TDM__VERSION_PREPARED, &update, 0), &answer));
    assert_refused("whole", decide(&update, TDM__UPDATE_COMMITTED)); /* One vote is missing. */
    assert_refused("whole", of_member(TDM__VERSION_FLIPPED, &update, 0));
    TRY(ask("whole", of_member(TDM__VERSION_PREPARED, &update, 1), &answer));
    TRY(ask("whole", decide(&update, TDM__UPDATE_COMMITTED), &answer));
    assert_int_equal(answer.outcome, TDM__UPDATE_COMMITTED);
    assert_true(answer.version == 1);
    TRY(ask("whole", decide(&update, TDM__UPDATE_ABORTED), &answer)); /* The first outcome stays. */
    assert_int_equal(answer.outcome, TDM__UPDATE_COMMITTED);
    TRY(ask("whole", of_member(TDM__VERSION_FLIPPED, &update, 0), &answer));
}

static void aborted_version_is_never_given_out_again(void **state)
{
    const struct tdm__id first = {.bytes = {1}};
    const struct tdm__id second = {.bytes = {2}};
    struct tdm__version_reply answer;

    (void)state;
    TRY(ask("burned", begin_of(&first, 0), &answer));
    assert_refused("burned", begin_of(&second, 0)); /* One update is in progress. */
    TRY(ask("burned", decide(&first, TDM__UPDATE_ABORTED), &answer));
    assert_int_equal(answer.outcome, TDM__UPDATE_ABORTED);
    answer = commit("burned", &second, 0);
    assert_true(answer.version == 2 && answer.epoch == 2);
}

static void set_of_models_is_committed_by_one_request(void **state)
{
    static const char *const models[MEMBERS] = {"set.actor", "set.critic"};
    const struct tdm__id update = {.bytes = {1}};
    struct tdm__version_set_item items[MEMBERS];
    struct tdm__version_reply answers[MEMBERS];
    struct tdm__version_reply answer;

    (void)state;
    (void)commit("set.critic", &(struct tdm__id){.bytes = {7}}, 0);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        items[i] = (struct tdm__version_set_item){models[i], begin_of(&update, i)};
    }
    TRY(tdm__version_service_call_set(runtime, items, MEMBERS, WAIT_MS, answers));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_true(answers[i].update_version == 2); /* Above all versions of both models. */
        assert_true(answers[i].epoch == i + 1);
        items[i].request = decide(&update, TDM__UPDATE_COMMITTED);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        for (uint32_t k = 0; k < MEMBERS; k++) { /* Votes are missing. */
            assert_int_equal(
                tdm__version_service_call_set(runtime, items, MEMBERS, WAIT_MS, answers),
                TDM_E_STATE);
            assert_non_null(strstr(tdm_error_detail(), models[i]));
            TRY(ask(models[i], of_member(TDM__VERSION_PREPARED, &update, k), &answer));
        }
    }
    TRY(tdm__version_service_call_set(runtime, items, MEMBERS, WAIT_MS, answers));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(answers[i].outcome, TDM__UPDATE_COMMITTED);
        assert_true(answers[i].version == 2);
    }
    assert_int_equal(tdm__version_service_call_set(runtime, items, 0, WAIT_MS, answers),
                     TDM_E_PROTOCOL);
}

static void older_update_is_answered_by_its_own_numbers(void **state)
{
    struct tdm__id updates[3] = {{.bytes = {1}}, {.bytes = {2}}, {.bytes = {3}}};
    struct tdm__version_reply answer;

    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        (void)commit("older", &updates[i], i);
    }
    TRY(ask("older", decide(&updates[1], TDM__UPDATE_ABORTED), &answer));
    assert_int_equal(answer.outcome, TDM__UPDATE_COMMITTED);
    assert_true(answer.version == 3 && answer.epoch == 2 && answer.update_version == 2);
}

static void floor_lifts_the_version(void **state)
{
    const struct tdm__id update = {.bytes = {1}};
    struct tdm__version_request request = begin_of(&update, 0);
    struct tdm__version_reply answer;

    (void)state;
    request.version_floor = 40;
    TRY(ask("resumed", request, &answer));
    assert_true(answer.update_version == 41);
}

static void dead_member_spoils_the_commit(void **state)
{
    const struct tdm__id update = {.bytes = {1}};
    struct tdm__version_request request = decide(&update, TDM__UPDATE_COMMITTED);
    struct tdm__version_reply answer;

    (void)state;
    TRY(ask("death", begin_of(&update, 0), &answer));
    TRY(ask("death", of_member(TDM__VERSION_PREPARED, &update, 0), &answer));
    request.dead = &members[1];
    request.dead_count = 1;
    TRY(ask("death", request, &answer));
    assert_int_equal(answer.outcome, TDM__UPDATE_ABORTED);
}

static void strangers_and_wrong_bases_are_refused(void **state)
{
    const struct tdm__id update = {.bytes = {1}};
    struct tdm__version_request vote = of_member(TDM__VERSION_PREPARED, &update, 0);
    struct tdm__version_reply answer;

    (void)state;
    assert_int_not_equal(ask("strange", begin_of(&update, 5), &answer), TDM_OK);
    assert_int_not_equal(ask("strange", vote, &answer), TDM_OK);
    TRY(ask("strange", begin_of(&update, 0), &answer));
    vote.member.incarnation = 2;
    assert_int_not_equal(ask("strange", vote, &answer), TDM_OK);
    assert_int_not_equal(ask("a/b*", begin_of(&update, 0), &answer), TDM_OK);
    assert_int_not_equal(ask("", begin_of(&update, 0), &answer), TDM_OK);
}

static void lost_record_is_restored_by_the_source(void **state)
{
    const struct tdm__id update = {.bytes = {1}};
    struct tdm__version_request request = {.kind = TDM__VERSION_RESTORE,
                                           .update = update,
                                           .epoch = 3,
                                           .update_version = 5,
                                           .base = 4,
                                           .proposal = TDM__UPDATE_COMMITTED,
                                           .version = 5,
                                           .hash = hash,
                                           .settled = true,
                                           .source = {{{9}}, 1},
                                           .members = members,
                                           .members_count = MEMBERS};
    struct tdm__version_request begin = begin_of(&(struct tdm__id){{2}}, 0);
    struct tdm__version_reply answer;

    (void)state;
    begin.epoch = 3;
    assert_int_equal(ask("restored", begin, &answer), TDM_E_CONFLICT);
    TRY(ask("restored", request, &answer));
    assert_true(answer.version == 5 && answer.epoch == 3 && answer.update_version == 5);
    assert_true(tdm__hash_equal(&answer.hash, &hash));
    begin.base = 5;
    TRY(ask("restored", begin, &answer));
    assert_true(answer.epoch == 4 && answer.update_version == 6);
    assert_int_equal(ask("restored", request, &answer), TDM_E_CONFLICT);
}

/* ---- requests that no client of Tandem sends ----------------------------------------- */

static tdm_status send(uint64_t kind, size_t id_bytes, uint32_t members_count, uint64_t proposal,
                       const char *rest)
{
    static const char id[16] = {1};
    tdm_document *document;
    tdm_writer *list;
    struct tdm_bytes packed;
    tdm_status status;

    TRY(tdm_writer_create(&list));
    tdm_write_array(list, members_count);
    for (uint32_t i = 0; i < members_count; i++) {
        tdm_write_array(list, 2);
        tdm_write_bytes(list, id, sizeof(id));
        tdm_write_uint(list, 1);
    }
    packed = tdm_writer_bytes(list);
    status =
        rest == NULL
            ? one_node_call(runtime, "version.request", &document, "subuu(bu)p(bu)uuu()uuu??",
                            "model", kind, id, id_bytes, (uint64_t)0, (uint64_t)0, id, sizeof(id),
                            (uint64_t)1, &packed, id, sizeof(id), (uint64_t)1, (uint64_t)0,
                            (uint64_t)0, proposal, (uint64_t)0, (uint64_t)0, (uint64_t)0, 0, 0)
            : one_node_call(runtime, "version.request", &document, rest);
    if (status == TDM_OK) {
        tdm_document_destroy(document);
    }
    tdm_writer_destroy(list);
    return status;
}

static void malformed_requests_are_refused(void **state)
{
    (void)state;
    TRY(send(TDM__VERSION_READ, 16, 0, 0, NULL));
    assert_int_equal(send(TDM__VERSION_READ, 15, 0, 0, NULL), TDM_E_PROTOCOL);
    assert_int_equal(send(TDM__VERSION_RESTORE + 1, 16, 0, 0, NULL), TDM_E_PROTOCOL);
    assert_int_equal(send(UINT64_MAX, 16, 0, 0, NULL), TDM_E_PROTOCOL);
    assert_int_equal(send(TDM__VERSION_DECIDE, 16, 0, 4, NULL), TDM_E_PROTOCOL);
    assert_int_not_equal(send(TDM__VERSION_DECIDE, 16, 0, 0, NULL), TDM_OK);
    assert_int_equal(send(TDM__VERSION_READ, 16, TDM__UPDATE_MEMBERS_MAX + 1, 0, NULL),
                     TDM_E_LIMIT);
    assert_int_equal(send(0, 0, 0, 0, ""), TDM_E_PROTOCOL);
    assert_int_equal(send(0, 0, 0, 0, "nnnnnnnnnnnnnnnn"), TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "version.other", NULL, ""), TDM_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_without_updates_has_no_version),
        cmocka_unit_test(update_goes_from_begin_to_flip),
        cmocka_unit_test(aborted_version_is_never_given_out_again),
        cmocka_unit_test(set_of_models_is_committed_by_one_request),
        cmocka_unit_test(older_update_is_answered_by_its_own_numbers),
        cmocka_unit_test(floor_lifts_the_version),
        cmocka_unit_test(dead_member_spoils_the_commit),
        cmocka_unit_test(strangers_and_wrong_bases_are_refused),
        cmocka_unit_test(lost_record_is_restored_by_the_source),
        cmocka_unit_test(malformed_requests_are_refused),
    };
    int failed;

    runtime = one_node_start(32 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
