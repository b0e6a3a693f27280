/* call_list_test.c - the calls of a process without a result, as records. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/call_list.h"

#include "actors/common/call_record.h"
#include "actors/objects/ref.h"
#include "tests/support/channel_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct channel_peer peer;

enum { ROWS_MAX = 3 };

struct records {
    tdm_document *document; /* Parsed list, owned; the texts of `records` point into it. */
    struct tdm_call_state records[ROWS_MAX];
    uint32_t count;
    uint64_t left_out;
};

static struct records rows_now(void)
{
    struct records records = {.count = 0};
    struct tdm__state_records written;
    tdm_writer *writer;
    const tdm_value *root;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__state_records_begin(&written, ROWS_MAX), TDM_OK);
    tdm__call_list_write(peer.runtime, NULL, &written);
    tdm__state_records_end(&written, writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &records.document), TDM_OK);
    tdm_writer_destroy(writer);
    assert_int_equal(
        tdm_unpack(tdm_document_root(records.document), "vu", &root, &records.left_out), TDM_OK);
    records.count = tdm_value_count(root);
    assert_true(records.count <= ROWS_MAX);
    for (uint32_t i = 0; i < records.count; i++) {
        tdm__call_record_read(tdm_value_at(root, i), &records.records[i]);
    }
    return records;
}

static void expect_one(const char *call_state)
{
    struct records records = rows_now();

    assert_int_equal(records.count, 1);
    assert_string_equal(records.records[0].state, call_state);
    assert_string_equal(records.records[0].method, "m");
    assert_string_equal(records.records[0].actor, peer.channel->info.id);
    assert_string_equal(records.records[0].caller_name, peer.runtime->self.name);
    assert_int_equal(records.records[0].caller_pid, peer.runtime->self.pid);
    assert_true(records.records[0].age_ms >= 0 && records.records[0].age_ms < PEER_WAIT_MS);
    tdm_document_destroy(records.document);
}

static void expect_none(void)
{
    struct records records = rows_now();

    assert_int_equal(records.count, 0);
    tdm_document_destroy(records.document);
}

static bool somebody_pauses(void *arg)
{
    (void)arg;
    return !TAILQ_EMPTY(&peer.channel->retry_paused);
}

static void unsent_call_is_listed_with_its_reason(void **state)
{
    const struct tdm_call_options options = {.max_retries = 1, .retry_failures = {TDM_E_IO}};
    tdm_ref *refs[2];

    (void)state;
    refs[0] = peer_call(&peer, 1, &options);
    expect_one("ACTOR");
    peer_found(&peer);
    peer_hold(&peer, 1);
    expect_none(); /* The actor lists the call now. */
    assert_int_equal(tdm_actor_call(&peer.actor, "m", &refs[1], "r", refs[0]), TDM_OK);
    expect_one("ARGUMENTS");
    assert_int_equal(tdm_cancel(refs[1], 0), TDM_OK);
    /* The pause is long enough to be observed. */
    TAILQ_FIRST(&peer.channel->in_flight)->retry_pauses = 40;
    peer_fail(&peer, 0, TDM_E_IO, "once more");
    peer_run_until(&peer, somebody_pauses, NULL);
    expect_one("PAUSING");
    assert_int_equal(tdm_cancel(refs[0], 0), TDM_OK);
    expect_none();
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
}

static void calls_beyond_the_limit_are_counted(void **state)
{
    tdm_ref *refs[ROWS_MAX + 2];
    struct records records;

    (void)state;
    for (int i = 0; i < ROWS_MAX + 2; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    records = rows_now();
    assert_int_equal(records.count, ROWS_MAX);
    assert_int_equal(records.left_out, 2);
    tdm_document_destroy(records.document);
    for (int i = 0; i < ROWS_MAX + 2; i++) {
        tdm_ref_release(refs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PEER_TEST(unsent_call_is_listed_with_its_reason),
        PEER_TEST(calls_beyond_the_limit_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
