/* transfer_pair_test.c - a line between a trainer rank and an engine rank that share no memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/transfer_pair.h"
#include "colocate/memory/region_api.h"
#include "runtime/messages/messages.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { GPU_BYTES = 64 << 20, BUCKET = 5 << 20, CALL_MS = 20000 };

/* ---- both ends -------------------------------------------------------------------------- */

struct end {
    struct tdm__transfer_pair pair;
    struct tdm__rank rank; /* the trainer's */
};

static tdm_status finish(tdm_ref *ref)
{
    const tdm_value *value;
    tdm_status status = tdm_get_value(ref, CALL_MS, &value);

    tdm_ref_release(ref);
    return status;
}

static void end_close(void *self)
{
    struct end *end = self;

    tdm__transfer_pair_close(&end->pair);
}

static tdm_status trainer_line(tdm_call *call, void *self)
{
    struct end *end = self;

    return tdm__transfer_pair_open(&end->pair, tdm_runtime_current(), 0, call);
}

/* Calls the engine rank to stage what comes, as the first rank of its engine does in a job. */
static tdm_status announce(tdm_actor *to, tdm_ref **told_out)
{
    const struct tdm__rank_announcement_message announcement = {.tensor_handles = {"what", 4}};
    const struct tdm__stage_slices_message message = {
        .announcements = {.count = 1, .items = &announcement}};

    return tdm__rank_call(to, "stage_slices", tdm__stage_slices_table(), &message, told_out);
}

/* (bytes) */
static tdm_status trainer_deliver(tdm_call *call, void *self)
{
    struct end *end = self;
    struct tdm__transfer_pair_payload load = {.chunk = 0};
    tdm_actor *engine;
    tdm_ref *told;
    char *data;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "u", &load.size_bytes));
    TDM_TRY(tdm_actor_find(tdm_runtime_current(), "the engine", CALL_MS, &engine));
    data = malloc(load.size_bytes);
    memset(data, 'w', load.size_bytes);
    load.data = data;
    end->rank.timeout_ms = CALL_MS;
    status = announce(engine, &told);
    if (status == TDM_OK) {
        tdm_status sent = tdm__transfer_pair_deliver(&end->pair, &load, &end->rank);

        status = finish(told);
        status = sent != TDM_OK ? sent : status;
    }
    free(data);
    tdm_actor_destroy(engine);
    return status;
}

TDM_ACTOR_CLASS(far_trainer, .state_bytes = sizeof(struct end), .destruct = end_close,
                .methods = {{"open_pair", trainer_line}, {"deliver", trainer_deliver}});

static tdm_status engine_line(tdm_call *call, void *self)
{
    struct end *end = self;

    TDM_TRY(tdm__runtime_regions_of_gpu(tdm_runtime_current(), 0, &end->pair.regions));
    return tdm__transfer_pair_open(&end->pair, tdm_runtime_current(), 1, call);
}

static tdm_status engine_resume(tdm_call *call, void *self)
{
    struct end *end = self;

    (void)call;
    return tdm__transfer_pair_resume_bucket(&end->pair, CALL_MS);
}

static tdm_status engine_pause(tdm_call *call, void *self)
{
    struct end *end = self;

    (void)call;
    return tdm__transfer_pair_pause_bucket(&end->pair);
}

static tdm_status engine_stage_part(tdm_call *call, void *self)
{
    struct end *end = self;
    uint64_t size_bytes;
    const char *data;

    (void)call;
    TDM_TRY(tdm__transfer_pair_receive(&end->pair, &size_bytes));
    data = tdm_region_address(end->pair.bucket);
    for (uint64_t i = 0; i < size_bytes; i++) {
        if (data[i] != 'w') {
            return tdm_fail(TDM_E_METHOD, "byte %llu", (unsigned long long)i);
        }
    }
    return TDM_OK;
}

TDM_ACTOR_CLASS(far_engine, .state_bytes = sizeof(struct end), .destruct = end_close,
                .methods = {{"open_pair", engine_line},
                            {"resume", engine_resume},
                            {"pause", engine_pause},
                            {"stage_slices", engine_stage_part}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;
static tdm_actor *trainer;
static tdm_actor *engine;

static void tried(tdm_status status, const char *what, int pair)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", pair, what, tdm_strerror(status), tdm_error_detail());
    }
}

static void draw_line(const char *name, uint64_t bucket_bytes)
{
    tdm_actor *const ends[2] = {trainer, engine};
    struct tdm_runtime_info info;
    tdm_ref *refs[2];

    tdm_runtime_describe(runtime, &info);
    for (int i = 0; i < 2; i++) {
        TRY(tdm_actor_call(ends[i], "open_pair", &refs[i], "suusiu", name, (uint64_t)0, (uint64_t)0,
                           info.node_id, (int64_t)CALL_MS, bucket_bytes));
    }
    TRY(finish(refs[0]));
    TRY(finish(refs[1]));
}

static tdm_status call(tdm_actor *actor, const char *method)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, ""));
    return finish(ref);
}

static tdm_status deliver(uint64_t size_bytes)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(trainer, "deliver", &ref, "u", size_bytes));
    return finish(ref);
}

static int set_up(void **state)
{
    (void)state;
    trainer = one_node_actor(runtime, "far_trainer", NULL, 0.1);
    engine = one_node_actor(runtime, "far_engine", "the engine", 0.1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)tdm_actor_kill(trainer, CALL_MS);
    (void)tdm_actor_kill(engine, CALL_MS);
    tdm_actor_destroy(trainer);
    tdm_actor_destroy(engine);
    return 0;
}

static void sent_bytes_are_in_the_bucket_of_the_peer(void **state)
{
    (void)state;
    draw_line("a", BUCKET);
    TRY(call(engine, "resume"));
    TRY(call(engine, "resume"));
    TRY(deliver(1));
    TRY(deliver(BUCKET));
    TRY(call(engine, "pause"));
    TRY(call(engine, "pause"));
    one_node_wait_used(runtime, 0);
    draw_line("b", BUCKET); /* The pair is opened again with the same bucket. */
    TRY(call(engine, "resume"));
    TRY(deliver(3 << 20));
}

static void transfer_that_does_not_fit_is_refused_and_closes_the_pair(void **state)
{
    (void)state;
    draw_line("c", 1 << 20);
    TRY(call(engine, "resume"));
    /* The size of a bucket is a multiple of whole blocks. */
    assert_int_equal(deliver((2 << 20) + 1), TDM_E_ABORTED);
    assert_int_equal(deliver(1), TDM_E_ABORTED);
    draw_line("d", BUCKET);
    TRY(call(engine, "resume"));
    TRY(deliver((2 << 20) + 1));
}

static void bucket_without_memory_gets_nothing(void **state)
{
    (void)state;
    draw_line("e", BUCKET);
    assert_int_equal(deliver(1), TDM_E_ABORTED);
}

static void death_at_the_other_end_is_told(void **state)
{
    (void)state;
    draw_line("f", BUCKET);
    one_node_kill_actor(engine);
    assert_int_not_equal(deliver(1), TDM_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(sent_bytes_are_in_the_bucket_of_the_peer),
        TEST(transfer_that_does_not_fit_is_refused_and_closes_the_pair),
        TEST(bucket_without_memory_gets_nothing),
        TEST(death_at_the_other_end_is_told),
    };
    int failed;

    runtime = one_node_start(GPU_BYTES);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
