/* engine_actor_test.c - an engine rank serves one version at a time, and nothing in between. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank.h"
#include "colocate/weights/version_service.h"
#include "runtime/messages/messages.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB     ((uint64_t)1 << 20)
#define LIBRARY TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so"
#define TRY(x)  assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 20000 };

static tdm_runtime *runtime;

/* One trainer rank and one engine rank of tests/colocate/tiny_job_library.c on one GPU; the
 * test is the controller. */
struct model {
    const char *id;
    tdm_actor *trainer;
    tdm_actor *engine;
    struct tdm__id update; /* ID of the update that the calls of the test refer to. */
    struct tdm__id latest; /* ID of the last update that was begun. */
    uint64_t base;         /* committed */
    struct tdm__version_reply answer;
    tdm_writer *manifest_writer;
    tdm_ref *bucket_ref; /* Owned reply of the trainer that says where its bucket is; or NULL. */
};

static struct model policy = {.id = "policy"};
static struct model critic = {.id = "critic"};
static struct model *the = &policy; /* The model that the test works on at present. */

/* ---- calls ------------------------------------------------------------------------------ */

static tdm_status call_packed(tdm_actor *actor, const char *method, struct tdm_bytes arguments)
{
    const tdm_value *nothing;
    tdm_ref *ref;
    tdm_status status;

    TRY(tdm_actor_call_packed(actor, method, arguments, &ref));
    status = tdm_get_value(ref, WAIT_MS, &nothing);
    tdm_ref_release(ref);
    return status;
}

static tdm_status call(tdm_actor *actor, const char *method, const char *format, ...)
{
    tdm_writer *writer;
    tdm_status status;
    va_list args;

    TRY(tdm_writer_create(&writer));
    va_start(args, format);
    TRY(tdm_pack_va(writer, format, args));
    va_end(args);
    status = call_packed(actor, method, tdm_writer_bytes(writer));
    tdm_writer_destroy(writer);
    return status;
}

/* A method whose arguments are the update and a number. */
static tdm_status call_about(tdm_actor *actor, const char *method, uint64_t number)
{
    return call(actor, method, "bu", the->update.bytes, sizeof(the->update.bytes), number);
}

/* Getter of a message list: where the trainer's bucket is; nil if it has none, as if the engine
 * were absent. */
static void get_bucket(const void *arg, uint32_t index, void *item_out)
{
    const tdm_value *bucket = NULL;

    (void)arg;
    (void)index;
    if (the->bucket_ref != NULL) {
        TRY(tdm_get_value(the->bucket_ref, WAIT_MS, &bucket));
    }
    ((struct tdm__message_value *)item_out)->value = bucket;
}

/* Getter of a message list: the engine has received nothing before. */
static void get_no_resume_log(const void *arg, uint32_t index, void *item_out)
{
    (void)arg;
    (void)index;
    *(struct tdm__resume_log_message *)item_out = (struct tdm__resume_log_message){.next = 0};
}

/* Lets the trainer send all tensors to the engine. */
static tdm_status update_by_names(uint64_t epoch)
{
    static const uint32_t engine = 0;
    const struct tdm__trainer_update_message message = {
        .update = the->update,
        .epoch = epoch,
        .targets = {.count = 1, .get = get_bucket},
        .resume_logs = {.count = 1, .get = get_no_resume_log},
        .engines = {.count = the->bucket_ref == NULL ? 0 : 1, .items = &engine}};
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__trainer_update_encode(&message, writer));
    status = call_packed(the->trainer, "update", tdm_writer_bytes(writer));
    tdm_writer_destroy(writer);
    return status;
}

/* Lets the trainer learn that engines get whole tensors. */
static void connect_trainer(void)
{
    const struct tdm__trainer_connect_message message = {.in_place = false};
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__trainer_connect_encode(&message, writer));
    TRY(call_packed(the->trainer, "connect", tdm_writer_bytes(writer)));
    tdm_writer_destroy(writer);
}

/* What version it answers with; 0 where it does not. */
static uint64_t version_served_by(tdm_actor *one)
{
    const tdm_value *value;
    tdm_ref *ref;
    uint64_t version = 0;

    TRY(tdm_actor_call(one, "generate", &ref, "fu((su))", 0.0, (uint64_t)2, "p", (uint64_t)1));
    if (tdm_get_value(ref, WAIT_MS, &value) == TDM_OK) {
        version = tdm_value_uint(tdm_value_at(value, 0), 0);
    }
    tdm_ref_release(ref);
    return version;
}

static uint64_t version_served(void)
{
    return version_served_by(the->engine);
}

static void assert_told(const char *words)
{
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

/* ---- the controller's part -------------------------------------------------------------- */

static tdm_actor *create(const char *class_name, const char *name, double num_gpus)
{
    const struct tdm_actor_options options = {.name = name, .num_gpus = num_gpus};
    const struct tdm__rank_arguments_message arguments = {.config_json = "{}",
                                                          .config_name = "test",
                                                          .library = LIBRARY,
                                                          .model_config = "",
                                                          .model = the->id,
                                                          .group = name,
                                                          .ranks_count = 1,
                                                          .ranks_per_engine = 1,
                                                          .gather_groups = 1,
                                                          .ranks_per_group = 1,
                                                          .engines_per_group = 1,
                                                          .bucket_bytes = 4096,
                                                          .timeout_ms = WAIT_MS,
                                                          .verify = 1};
    tdm_writer *writer;
    tdm_actor *actor;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__rank_arguments_encode(&arguments, writer));
    TRY(tdm_actor_create_packed(runtime, class_name, &options, tdm_writer_bytes(writer), &actor));
    tdm_writer_destroy(writer);
    TRY(tdm_actor_wait_ready(actor, WAIT_MS));
    return actor;
}

static struct tdm__member member_of(tdm_actor *actor)
{
    struct tdm__member member = {.incarnation = 1};
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    TRY(tdm__id_parse(info.id, &member.actor));
    return member;
}

static struct tdm__member engine_member(void)
{
    return member_of(the->engine);
}

static void begin_update(void)
{
    struct tdm__version_request request = {
        .kind = TDM__VERSION_BEGIN, .base = the->base, .source = {{{9}}, 1}};
    struct tdm__member member = engine_member();

    TRY(tdm__id_generate(&the->update));
    request.update = the->update;
    request.members = &member;
    request.members_count = 1;
    TRY(tdm__version_service_call(runtime, the->id, &request, WAIT_MS, &the->answer));
    the->latest = the->update;
    TRY(call(the->engine, "acquire_shadow", ""));
    tdm_ref_release(the->bucket_ref);
    TRY(tdm_actor_call(the->trainer, "acquire_bucket", &the->bucket_ref, ""));
    TRY(update_by_names(the->answer.epoch));
}

static void decide(enum tdm__update_outcome proposal)
{
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_DECIDE, .update = the->update, .proposal = proposal};

    TRY(tdm__version_service_call(runtime, the->id, &request, WAIT_MS, &the->answer));
    assert_int_equal(the->answer.outcome, proposal);
    the->base = the->answer.version;
    TRY(call(the->trainer, "release_bucket", ""));
}

static void start_engine(tdm_actor *one)
{
    TRY(call(one, "start", ""));
    TRY(call_packed(one, "connect", tdm_writer_bytes(the->manifest_writer)));
}

/* Both ranks have started, the engine has all of its memory. */
static void start_model(double num_gpus)
{
    char name[TDM__RANK_NAME_BYTES];
    const tdm_value *manifest;
    tdm_ref *ref;

    tdm__rank_name(name, the->id, "trainer/0");
    the->trainer = create("tandem.trainer", name, num_gpus);
    tdm__rank_name(name, the->id, "engine/0/0");
    the->engine = create("tandem.engine", name, num_gpus);
    TRY(tdm_actor_call(the->trainer, "start", &ref, ""));
    TRY(tdm_get_value(ref, WAIT_MS, &manifest));
    TRY(tdm_writer_create(&the->manifest_writer));
    tdm_write_value(the->manifest_writer, manifest);
    tdm_ref_release(ref);
    connect_trainer();
    TRY(call(the->trainer, "pause", ""));
    start_engine(the->engine);
    TRY(call(the->engine, "resume", "n"));
}

static void end_model(void)
{
    const struct tdm__member member = engine_member();
    struct tdm__version_request request = {
        .kind = TDM__VERSION_DEAD, .update = the->latest, .dead = &member, .dead_count = 1};

    TRY(tdm_actor_kill(the->engine, WAIT_MS));
    /* An undecided update would block that of the next test. */
    if (!tdm__id_is_none(&the->latest)) {
        TRY(tdm__version_service_call(runtime, the->id, &request, WAIT_MS, &the->answer));
    }
    TRY(tdm_actor_kill(the->trainer, WAIT_MS));
    tdm_ref_release(the->bucket_ref);
    the->bucket_ref = NULL;
    tdm_actor_destroy(the->engine);
    tdm_actor_destroy(the->trainer);
    tdm_writer_destroy(the->manifest_writer);
}

static int set_up(void **state)
{
    (void)state;
    the = &policy;
    start_model(0.3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    the = &policy;
    end_model();
    one_node_wait_used(runtime, 0);
    return 0;
}

/* ---- the tests -------------------------------------------------------------------------- */

static void nothing_is_served_between_vote_and_flip(void **state)
{
    (void)state;
    assert_int_equal(version_served(), 0);
    assert_told("serves no version yet");
    for (uint64_t version = 1; version <= 2; version++) {
        begin_update();
        /* Staging does not change the served weights. */
        assert_true(version_served() == version - 1);
        TRY(call_about(the->engine, "prepare", 0));
        assert_int_equal(version_served(), 0);
        assert_int_equal(update_by_names(the->answer.epoch), TDM_E_STATE);
        assert_told("voted for");
        decide(TDM__UPDATE_COMMITTED);
        assert_int_equal(version_served(), 0);
        TRY(call_about(the->engine, "flip", version));
        assert_true(version_served() == version);
        /* The call is repeated as if its reply had been lost. */
        TRY(call_about(the->engine, "flip", version));
        assert_true(version_served() == version);
    }
}

static void after_an_abort_the_old_version_is_served_on(void **state)
{
    struct tdm__id aborted;

    (void)state;
    begin_update();
    TRY(call_about(the->engine, "prepare", 0));
    decide(TDM__UPDATE_COMMITTED);
    TRY(call_about(the->engine, "flip", the->base));
    begin_update();
    TRY(call_about(the->engine, "prepare", 0));
    decide(TDM__UPDATE_ABORTED);
    assert_int_equal(version_served(), 0); /* The rank does not know the outcome yet. */
    TRY(call_about(the->engine, "drop", the->answer.epoch));
    assert_true(version_served() == the->base);
    aborted = the->update;
    assert_int_equal(call_about(the->engine, "flip", the->base + 1), TDM_E_STATE);
    begin_update();
    the->update = aborted;
    assert_int_equal(call_about(the->engine, "prepare", 0), TDM_E_STATE);
    assert_true(version_served() == the->base);
    the->update = the->latest;
    decide(TDM__UPDATE_ABORTED);
}

/* ---- join ------------------------------------------------------------------------------- */

static tdm_status join(tdm_actor *joiner, const tdm_value *shown)
{
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    tdm_write_value(writer, shown);
    status = call_packed(joiner, "join", tdm_writer_bytes(writer));
    tdm_writer_destroy(writer);
    return status;
}

static void end_joiner(tdm_actor *joiner)
{
    const struct tdm__member member = member_of(joiner);
    const struct tdm__version_request request = {
        .kind = TDM__VERSION_DEAD, .update = the->latest, .dead = &member, .dead_count = 1};

    TRY(tdm_actor_kill(joiner, WAIT_MS));
    TRY(tdm__version_service_call(runtime, the->id, &request, WAIT_MS, &the->answer));
    tdm_actor_destroy(joiner);
}

static void commit_one(void)
{
    begin_update();
    TRY(call_about(the->engine, "prepare", 0));
    decide(TDM__UPDATE_COMMITTED);
    TRY(call_about(the->engine, "flip", the->base));
}

static void engine_without_weights_joins_with_the_weights_of_a_peer(void **state)
{
    tdm_actor *joiner = create("tandem.engine", "engine/1/0", 0.3);
    const tdm_value *shown;
    tdm_ref *early;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(call(the->engine, "export_weights", ""), TDM_E_STATE); /* nothing yet */
    start_engine(joiner);
    commit_one();
    TRY(tdm_actor_call(the->engine, "export_weights", &early, ""));
    TRY(tdm_get_value(early, WAIT_MS, &shown));
    commit_one();
    assert_int_equal(join(joiner, shown), TDM_E_NOT_FOUND); /* The exported memory was freed. */
    assert_true(version_served_by(joiner) == 0);
    TRY(tdm_actor_call(the->engine, "export_weights", &ref, ""));
    TRY(tdm_get_value(ref, WAIT_MS, &shown));
    TRY(join(joiner, shown));
    assert_true(version_served() == the->base);
    TRY(call(joiner, "resume", "n"));
    assert_true(version_served_by(joiner) == the->base);
    assert_int_equal(join(joiner, shown), TDM_E_STATE); /* The rank serves a version already. */
    tdm_ref_release(ref);
    tdm_ref_release(early);
    end_joiner(joiner);
}

static void no_engine_joins_while_an_update_is_undecided(void **state)
{
    tdm_actor *joiner = create("tandem.engine", "engine/1/0", 0.3);
    const tdm_value *shown;
    tdm_ref *ref;

    (void)state;
    start_engine(joiner);
    commit_one();
    begin_update();
    /* The engine continues to serve. */
    TRY(tdm_actor_call(the->engine, "export_weights", &ref, ""));
    TRY(tdm_get_value(ref, WAIT_MS, &shown));
    assert_int_equal(join(joiner, shown), TDM_E_STATE);
    assert_told("is undecided");
    assert_true(version_served_by(joiner) == 0);
    TRY(call_about(the->engine, "prepare", 0));
    /* The rank has voted and does not know the outcome. */
    assert_int_equal(call(the->engine, "export_weights", ""), TDM_E_STATE);
    decide(TDM__UPDATE_ABORTED);
    TRY(call_about(the->engine, "drop", the->answer.epoch));
    TRY(join(joiner, shown)); /* The base version is the served one. */
    assert_true(version_served_by(joiner) == the->base);
    tdm_ref_release(ref);
    end_joiner(joiner);
}

static void memory_is_there_when_asked_for_and_no_longer(void **state)
{
    (void)state;
    one_node_wait_used(runtime, 4 * MIB); /* The engine has two regions. */
    TRY(call(the->engine, "pause", ""));
    one_node_wait_used(runtime, 0);
    TRY(call(the->engine, "resume", "s", "weights"));
    one_node_wait_used(runtime, 2 * MIB);
    begin_update();
    one_node_wait_used(runtime, 6 * MIB); /* Weights, shadow copy and bucket are resident. */
    TRY(call_about(the->engine, "prepare", 0));
    decide(TDM__UPDATE_COMMITTED);
    TRY(call_about(the->engine, "flip", the->base));
    one_node_wait_used(runtime, 2 * MIB);
    TRY(call(the->engine, "resume", "n"));
    assert_true(version_served() == the->base);
}

/* ---- two models ------------------------------------------------------------------------- */

static void commit_and_flip(struct model *model)
{
    the = model;
    decide(TDM__UPDATE_COMMITTED);
    TRY(call_about(the->engine, "flip", the->base));
}

static void assert_serves(struct model *model, uint64_t version)
{
    the = model;
    assert_int_equal(version_served(), version);
}

/* Both updates are under way at any time between the first words here and the last. */
static void two_models_are_updated_at_once_each_to_its_own_version(void **state)
{
    uint64_t first;

    (void)state;
    commit_one();
    first = policy.base;
    the = &critic;
    start_model(0.2);
    begin_update();
    the = &policy;
    begin_update();
    TRY(call_about(the->engine, "prepare", 0));
    assert_serves(&critic, 0); /* The critic has not voted and has nothing to serve yet. */
    TRY(call_about(the->engine, "prepare", 0));
    commit_and_flip(&critic);
    assert_serves(&critic, 1);
    assert_serves(&policy, 0); /* The policy still waits for the outcome of its own update. */
    commit_and_flip(&policy);
    assert_serves(&policy, first + 1);
    assert_serves(&critic, 1);
    the = &critic;
    end_model();
}

static void outcome_of_one_model_does_not_affect_the_other(void **state)
{
    uint64_t first;

    (void)state;
    commit_one();
    first = policy.base;
    the = &critic;
    start_model(0.2);
    begin_update();
    TRY(call_about(the->engine, "prepare", 0));
    the = &policy;
    begin_update();
    assert_int_equal(call(the->engine, "prepare", "bu", critic.update.bytes,
                          sizeof(critic.update.bytes), (uint64_t)0),
                     TDM_E_STATE); /* The update belongs to the other model. */
    TRY(call_about(the->engine, "prepare", 0));
    decide(TDM__UPDATE_ABORTED);
    TRY(call_about(the->engine, "drop", the->answer.epoch));
    assert_serves(&policy, first);
    commit_and_flip(&critic);
    assert_serves(&critic, critic.base);
    assert_int_not_equal(critic.base, 0);
    assert_serves(&policy, first);
    the = &critic;
    end_model();
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    /* The call has no list for the rank. */
    assert_int_equal(call(the->engine, "stage", ""), TDM_E_PROTOCOL);
    assert_int_equal(call(the->engine, "stage", "b", "x", (size_t)1), TDM_E_PROTOCOL);
    assert_int_equal(call(the->engine, "prepare", "bu", "short", (size_t)5, (uint64_t)0),
                     TDM_E_PROTOCOL);
    assert_int_equal(call(the->engine, "flip", ""), TDM_E_PROTOCOL);
    assert_int_equal(call(the->engine, "generate", "fu()", 0.0, (uint64_t)0), TDM_E_STATE);
    assert_int_equal(call(the->trainer, "update", "bu", "short", (size_t)5, (uint64_t)1),
                     TDM_E_PROTOCOL);
    assert_int_equal(call(the->trainer, "step", "u", (uint64_t)1), TDM_E_PROTOCOL);
    /* Without a bucket the engine is absent, and gets nothing. */
    TRY(update_by_names(1));
    assert_int_equal(version_served(), 0);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(nothing_is_served_between_vote_and_flip),
        EACH(after_an_abort_the_old_version_is_served_on),
        EACH(engine_without_weights_joins_with_the_weights_of_a_peer),
        EACH(no_engine_joins_while_an_update_is_undecided),
        EACH(memory_is_there_when_asked_for_and_no_longer),
        EACH(two_models_are_updated_at_once_each_to_its_own_version),
        EACH(outcome_of_one_model_does_not_affect_the_other),
        EACH(wrong_arguments_are_refused),
    };
    int failed;

    runtime = one_node_start(32 * MIB);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
