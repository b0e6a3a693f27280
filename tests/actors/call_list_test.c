/* call_list_test.c - the calls that a process has made and nobody has yet, as rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/call_list.h"

#include "actors/ref.h"
#include "tests/support/link_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct link_peer peer;

enum { ROWS_MAX = 3 };

struct rows {
    tdm_document *document; /* owned; the rows' texts are in it */
    struct tdm_call_state rows[ROWS_MAX];
    uint32_t count;
    uint64_t left_out;
};

static struct rows rows_now(void)
{
    struct rows rows = {.count = 0};
    struct tdm__rows written;
    tdm_writer *writer;
    const tdm_value *root;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__rows_begin(&written, ROWS_MAX), TDM_OK);
    tdm__call_list_write(peer.runtime, NULL, &written);
    tdm__rows_end(&written, writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &rows.document), TDM_OK);
    tdm_writer_destroy(writer);
    assert_int_equal(tdm_unpack(tdm_document_root(rows.document), "vu", &root, &rows.left_out),
                     TDM_OK);
    rows.count = tdm_value_count(root);
    assert_true(rows.count <= ROWS_MAX);
    for (uint32_t i = 0; i < rows.count; i++) {
        tdm__call_row_read(tdm_value_at(root, i), &rows.rows[i]);
    }
    return rows;
}

static void expect_one(const char *call_state)
{
    struct rows rows = rows_now();

    assert_int_equal(rows.count, 1);
    assert_string_equal(rows.rows[0].state, call_state);
    assert_string_equal(rows.rows[0].method, "m");
    assert_string_equal(rows.rows[0].actor, peer.link->info.id);
    assert_string_equal(rows.rows[0].caller_name, peer.runtime->self.name);
    assert_int_equal(rows.rows[0].caller_pid, peer.runtime->self.pid);
    assert_true(rows.rows[0].age_ms >= 0 && rows.rows[0].age_ms < PEER_WAIT_MS);
    tdm_document_destroy(rows.document);
}

static void expect_none(void)
{
    struct rows rows = rows_now();

    assert_int_equal(rows.count, 0);
    tdm_document_destroy(rows.document);
}

static bool somebody_pauses(void *arg)
{
    (void)arg;
    return !TAILQ_EMPTY(&peer.link->pausing);
}

static void a_call_that_has_not_left_is_told_of_with_its_reason(void **state)
{
    const struct tdm_call_options options = {.max_retries = 1, .retry_failures = {TDM_E_IO}};
    tdm_ref *refs[2];

    (void)state;
    refs[0] = peer_call(&peer, 1, &options);
    expect_one("ACTOR");
    peer_found(&peer);
    peer_hold(&peer, 1);
    expect_none(); /* the actor tells of it */
    assert_int_equal(tdm_actor_call(&peer.actor, "m", &refs[1], "r", refs[0]), TDM_OK);
    expect_one("ARGUMENTS");
    assert_int_equal(tdm_cancel(refs[1], 0), TDM_OK);
    TAILQ_FIRST(&peer.link->flying)->pauses_count = 40; /* for long enough to be seen */
    peer_fail(&peer, 0, TDM_E_IO, "once more");
    peer_run_until(&peer, somebody_pauses, NULL);
    expect_one("PAUSING");
    assert_int_equal(tdm_cancel(refs[0], 0), TDM_OK);
    expect_none();
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
}

static void those_beyond_the_limit_are_counted(void **state)
{
    tdm_ref *refs[ROWS_MAX + 2];
    struct rows rows;

    (void)state;
    for (int i = 0; i < ROWS_MAX + 2; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    rows = rows_now();
    assert_int_equal(rows.count, ROWS_MAX);
    assert_int_equal(rows.left_out, 2);
    tdm_document_destroy(rows.document);
    for (int i = 0; i < ROWS_MAX + 2; i++) {
        tdm_ref_release(refs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PEER_TEST(a_call_that_has_not_left_is_told_of_with_its_reason),
        PEER_TEST(those_beyond_the_limit_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
