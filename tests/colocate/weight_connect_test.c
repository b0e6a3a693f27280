/* weight_connect_test.c - what engines and trainers tell each other before the first update decides
 * how updates are sent. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/weight_connect.h"

#include "runtime/messages/messages.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { ENGINES = 2, WEIGHTS_BYTES = 100, LONG_MS = 20000 };

/* ---- the ranks -------------------------------------------------------------------------- */

/* The first letter of an engine's name is its layout; "-" for an engine without one. An engine with
 * the layout "c" converts tensors. */
static tdm_status engine_connect(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    struct tdm__engine_layout_message message = {.weights_bytes = WEIGHTS_BYTES};
    tdm_writer *writer;
    tdm_status status;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    if (info.actor_name[0] == '-') {
        return TDM_OK;
    }
    message.layout = (struct tdm_bytes){info.actor_name, 1};
    message.converts = info.actor_name[0] == 'c';
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__engine_layout_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Replies as costs what the trainer was told, so that the test sees it. */
static tdm_status trainer_connect(tdm_call *call, void *self)
{
    struct tdm__trainer_connect_message message;
    struct tdm__update_cost_message cost;
    tdm_writer *writer;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm__trainer_connect_decode(tdm_call_arguments(call), &message));
    cost = (struct tdm__update_cost_message){.same_gpu_bytes = message.weights_bytes,
                                             .copies_max = message.in_place,
                                             .buckets_count = message.layouts.count,
                                             .measured_bytes = message.gpus.count,
                                             .bucket_bytes = 7};
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__update_cost_encode(&cost, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

TDM_ACTOR_CLASS(engine, .state_bytes = 1, .methods = {{"connect", engine_connect}});
TDM_ACTOR_CLASS(trainer, .state_bytes = 1, .methods = {{"connect", trainer_connect}});

/* ---- the tests -------------------------------------------------------------------------- */

static tdm_runtime *runtime;
static struct tdm__job_spec spec;
static tdm_actor *trainer;
static tdm_actor *engines[ENGINES];
static uint64_t layouts[ENGINES];
static struct tdm__worker_group workers;
static struct tdm__weight_cost cost;

/* Begins with a trainer and engines that are named so, in the mode "donate". Engines are colocated,
 * and each has an image. */
static void open_group(const char *first, const char *second)
{
    spec = (struct tdm__job_spec){.engine_colocate = true, .update_timeout_ms = LONG_MS};
    (void)snprintf(spec.update_mode, sizeof(spec.update_mode), "donate");
    trainer = one_node_actor(runtime, "trainer", "trainer", 0);
    engines[0] = one_node_actor(runtime, "engine", first, 0);
    engines[1] = one_node_actor(runtime, "engine", second, 0);
    workers = (struct tdm__worker_group){.runtime = runtime,
                                         .spec = &spec,
                                         .trainers = &trainer,
                                         .trainers_count = 1,
                                         .engines = engines,
                                         .engines_count = ENGINES,
                                         .ranks_per_engine = 1,
                                         .gather_groups = {ENGINES, 1, 1, 1},
                                         .layouts = layouts};
}

/* Gives engines GPUs of their own: one gather group, all of whose engines share an image. */
static void move_engines_away(void)
{
    spec.engine_colocate = false;
    workers.gather_groups = (struct tdm__gather_groups){1, 1, 1, 1};
}

static void end_actor(tdm_actor *actor)
{
    (void)tdm_actor_kill(actor, LONG_MS);
    tdm_actor_destroy(actor);
}

static int close_group(void **state)
{
    (void)state;
    end_actor(trainer);
    end_actor(engines[0]);
    end_actor(engines[1]);
    free(workers.manifest);
    return 0;
}

static tdm_status connect_all(void)
{
    tdm_document *manifest;
    tdm_status status;

    TRY(tdm_document_parse((struct tdm_bytes){"\x90", 1}, &manifest));
    status = tdm__weight_connect(&workers, tdm_document_root(manifest), &cost);
    tdm_document_destroy(manifest);
    return status;
}

static void trainers_get_the_layout_of_each_image(void **state)
{
    (void)state;
    open_group("a", "b");
    TRY(connect_all());
    assert_true(workers.by_slices);
    assert_true(workers.in_place);
    assert_int_equal(cost.same_gpu_bytes, WEIGHTS_BYTES);
    assert_int_equal(cost.copies_max, true);
    assert_int_equal(cost.buckets_count, ENGINES);
    assert_int_equal(cost.measured_bytes, ENGINES);
    assert_int_equal(workers.chunk_bytes, 7);
}

static void engine_without_a_layout_gets_whole_tensors(void **state)
{
    (void)state;
    open_group("a", "-");
    TRY(connect_all());
    assert_false(workers.by_slices);
    assert_false(workers.in_place);
    assert_int_equal(cost.buckets_count, 0);
}

static void mode_names_sends_whole_tensors_to_engines_with_layouts(void **state)
{
    (void)state;
    open_group("a", "b");
    (void)snprintf(spec.update_mode, sizeof(spec.update_mode), "names");
    TRY(connect_all());
    assert_false(workers.by_slices);
    assert_int_equal(cost.buckets_count, 0);
}

static void engines_on_other_gpus_get_buckets(void **state)
{
    (void)state;
    open_group("a", "a2");
    move_engines_away();
    TRY(connect_all());
    assert_true(workers.by_slices);
    assert_false(workers.in_place);
    assert_int_equal(cost.buckets_count, 1);
    assert_int_equal(cost.measured_bytes, 0);
}

static void engines_that_share_an_image_must_have_equal_layouts(void **state)
{
    (void)state;
    open_group("a", "b");
    move_engines_away();
    assert_int_equal(connect_all(), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "engine/1/0 keeps its weights elsewhere"));
}

static void engines_on_other_gpus_need_a_layout(void **state)
{
    (void)state;
    open_group("-", "-2");
    move_engines_away();
    assert_int_equal(connect_all(), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "they need a layout"));
}

static void converting_engines_are_noted(void **state)
{
    (void)state;
    open_group("a", "c");
    TRY(connect_all());
    assert_false(tdm__engine_set_has(&workers.converting_engines, 0));
    assert_true(tdm__engine_set_has(&workers.converting_engines, 1));
}

static void restarted_engine_must_have_the_layout_of_the_lost_one(void **state)
{
    (void)state;
    open_group("a", "b");
    TRY(connect_all());
    workers.transfer_pairs_are_open = true;
    end_actor(engines[1]);
    engines[1] = one_node_actor(runtime, "engine", "b2", 0);
    TRY(tdm__weight_connect_engine(&workers, 1));
    assert_false(workers.transfer_pairs_are_open);
    end_actor(engines[1]);
    engines[1] = one_node_actor(runtime, "engine", "d", 0);
    assert_int_equal(tdm__weight_connect_engine(&workers, 1), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "engine/1/0"));
}

#define EACH(test) cmocka_unit_test_teardown(test, close_group)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(trainers_get_the_layout_of_each_image),
        EACH(engine_without_a_layout_gets_whole_tensors),
        EACH(mode_names_sends_whole_tensors_to_engines_with_layouts),
        EACH(engines_on_other_gpus_get_buckets),
        EACH(engines_that_share_an_image_must_have_equal_layouts),
        EACH(engines_on_other_gpus_need_a_layout),
        EACH(converting_engines_are_noted),
        EACH(restarted_engine_must_have_the_layout_of_the_lost_one),
    };
    int failed;

    runtime = one_node_start(32 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
