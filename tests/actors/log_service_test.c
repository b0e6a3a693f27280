/* log_service_test.c - ranges of log files are read, and lines of a job are taken. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/id.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tdm_runtime *runtime;

static tdm_status talker_say(tdm_call *call, void *self)
{
    const char *text;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &text));
    (void)printf("%s\n", text);
    return TDM_OK;
}

TDM_ACTOR_CLASS(talker, .state_bytes = 1, .methods = {{"say", talker_say}});

static tdm_actor *make_talker(const char *name)
{
    const struct tdm_actor_options options = {.name = name};
    tdm_actor *actor = NULL;

    assert_int_equal(tdm_actor_create(runtime, "talker", &options, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    return actor;
}

static void output_can_be_read_after_the_end(void **state)
{
    tdm_actor *actor = make_talker("archived");
    struct tdm_actor_info info;
    tdm_document *document;
    const tdm_value *reply;
    struct tdm_bytes text;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(actor_fixture_call(actor, "say", "for the record"), TDM_OK);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(one_node_call(runtime, "log.read", &document, "siius", info.id, (int64_t)0,
                                   (int64_t)0, (uint64_t)1000, ""),
                     TDM_OK);
    reply = tdm_document_root(document);
    assert_int_equal(tdm_value_int(tdm_value_at(reply, 0), 0), info.pid);
    assert_false(tdm_value_bool(tdm_value_at(reply, 1), 1));
    text = tdm_value_bytes(tdm_value_at(reply, 4));
    assert_int_equal(text.size_bytes, strlen("for the record\n"));
    assert_memory_equal(text.data, "for the record\n", text.size_bytes);
    tdm_document_destroy(document);
    assert_int_equal(one_node_call(runtime, "log.read", NULL, "siius",
                                   "00000000000000000000000000000001", (int64_t)0, (int64_t)0,
                                   (uint64_t)10, ""),
                     TDM_E_NOT_FOUND);
    assert_int_equal(one_node_call(runtime, "log.read", NULL, "siius", info.id, (int64_t)2,
                                   (int64_t)0, (uint64_t)10, ""),
                     TDM_E_INVAL);
    tdm_actor_destroy(actor);
}

/* Takes the lines of a job and returns the number of pieces. */
static uint32_t take_pieces(const char *job_id)
{
    tdm_document *document;
    struct tdm__id job;
    uint32_t count;

    assert_int_equal(tdm__id_parse(job_id, &job), TDM_OK);
    assert_int_equal(one_node_call(runtime, "log.take", &document, "bs", job.bytes,
                                   (size_t)sizeof(job.bytes), ""),
                     TDM_OK);
    count = tdm_value_count(tdm_value_at(tdm_document_root(document), 0));
    tdm_document_destroy(document);
    return count;
}

static void only_lines_of_the_job_are_taken(void **state)
{
    tdm_actor *actor = make_talker("taken");
    struct tdm_runtime_info info;

    (void)state;
    tdm_runtime_describe(runtime, &info);
    (void)take_pieces(info.job_id); /* What another test has left. */
    assert_int_equal(actor_fixture_call(actor, "say", "hello"), TDM_OK);
    assert_int_equal(take_pieces("00000000000000000000000000000001"), 0);
    assert_int_equal(take_pieces(info.job_id), 1);
    assert_int_equal(take_pieces(info.job_id), 0);
    tdm_actor_destroy(actor);
}

static void malformed_request_is_refused(void **state)
{
    (void)state;
    assert_int_equal(one_node_call(runtime, "log.take", NULL, "i", (int64_t)1), TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "log.shred", NULL, ""), TDM_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_can_be_read_after_the_end),
        cmocka_unit_test(only_lines_of_the_job_are_taken),
        cmocka_unit_test(malformed_request_is_refused),
    };
    int failed;

    (void)setenv("TANDEM_LOG_TO_DRIVER", "0", 1);
    runtime = one_node_start(64 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
