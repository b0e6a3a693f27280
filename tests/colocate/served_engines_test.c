/* served_engines_test.c - what a trainer rank keeps of the engines of its gather group. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/served_engines.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Two gather groups, of which trainer rank 0 is the only rank of the first. */
static const struct tdm__gather_groups groups = {2, 1, 1, 1};

/* Begins an update of the gather group 0 with these engines. */
static void begin_update(struct tdm__served_engines *engines, const uint32_t *numbers,
                         uint32_t count)
{
    const struct tdm__trainer_update_message sent = {.engines = {.count = count, .items = numbers}};
    struct tdm__trainer_update_message received;
    tdm_document *document;
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__trainer_update_encode(&sent, writer));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    TRY(tdm__trainer_update_decode(tdm_document_root(document), &received));
    TRY(tdm__served_engines_begin_update(engines, &received.engines, &groups, 0));
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

/* Returns whether the engine takes part in the current update. */
static bool takes_part(struct tdm__served_engines *engines, uint32_t number)
{
    struct tdm__served_engine *engine;

    TRY(tdm__served_engines_find(engines, number, &engine));
    return engine->takes_part;
}

static void only_the_engines_of_the_group_take_part(void **state)
{
    struct tdm__served_engines engines = {.count = 0};
    const uint32_t all[] = {0, 1, 2, 3, 4};
    const uint32_t without_2[] = {0, 1, 3, 4};
    const uint32_t others[] = {1, 3};

    (void)state;
    assert_false(tdm__served_engines_any(&engines));
    begin_update(&engines, all, 5);
    assert_int_equal(engines.count, 3);
    assert_true(takes_part(&engines, 0) && takes_part(&engines, 2) && takes_part(&engines, 4));
    begin_update(&engines, without_2, 4);
    assert_true(takes_part(&engines, 0) && takes_part(&engines, 4));
    assert_false(takes_part(&engines, 2));
    assert_true(tdm__served_engines_any(&engines));
    begin_update(&engines, others, 2);
    assert_int_equal(engines.count, 3);
    assert_false(tdm__served_engines_any(&engines));
    tdm__served_engines_fini(&engines);
    assert_int_equal(engines.count, 0);
}

static void engine_is_known_after_its_pair_was_opened(void **state)
{
    struct tdm__served_engines engines = {.count = 0};
    struct tdm__served_engine *first;
    struct tdm__served_engine *again;

    (void)state;
    TRY(tdm__served_engines_find(&engines, 7, &first));
    assert_int_equal(first->number, 7);
    assert_false(first->takes_part);
    TRY(tdm__served_engines_find(&engines, 7, &again));
    assert_ptr_equal(first, again);
    tdm__served_engines_fini(&engines);
}

static void each_rank_of_an_engine_has_a_pair_of_its_own(void **state)
{
    struct tdm__served_engines engines = {.count = 0};
    struct tdm__transfer_pair *pairs[2];
    struct tdm__transfer_pair *again;
    struct tdm__served_engine *engine;

    (void)state;
    TRY(tdm__served_engines_find(&engines, 0, &engine));
    assert_null(tdm__served_engine_pair(engine, 2));
    for (uint32_t i = 0; i < 2; i++) {
        TRY(tdm__served_engine_add_pair(engine, 2 + i, &pairs[i]));
        assert_null(pairs[i]->group);
    }
    TRY(tdm__served_engine_add_pair(engine, 3, &again));
    assert_ptr_equal(again, pairs[1]);
    assert_int_equal(engine->ranks_count, 2);
    assert_null(tdm__served_engine_pair(engine, 3)); /* It was not opened. */
    tdm__served_engines_fini(&engines);
}

static void engine_out_of_reach_aborts_the_update_and_is_named(void **state)
{
    const struct tdm__served_engine engine = {.number = 3};

    (void)state;
    TRY(tdm__served_engine_called(&engine, TDM_OK));
    assert_int_equal(tdm__served_engine_called(
                         &engine, tdm__fail(TDM_E_ACTOR_UNAVAILABLE, "node n2 does not reply")),
                     TDM_E_ABORTED);
    assert_string_equal(tdm_error_detail(),
                        "trainers do not reach engine 3: node n2 does not reply");
    assert_int_equal(
        tdm__served_engine_called(&engine, tdm__fail(TDM_E_ACTOR_DIED, "engine 3 died")),
        TDM_E_ACTOR_DIED);
    assert_string_equal(tdm_error_detail(), "engine 3 died");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_engines_of_the_group_take_part),
        cmocka_unit_test(engine_is_known_after_its_pair_was_opened),
        cmocka_unit_test(each_rank_of_an_engine_has_a_pair_of_its_own),
        cmocka_unit_test(engine_out_of_reach_aborts_the_update_and_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
