/* ref_callbacks_test.c - who waits for results is told, once, and all of many come or one fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref.h"
#include "tests/support/channel_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct channel_peer peer;

struct seen {
    uint32_t count;
    tdm_status status;
    int64_t number;
    bool releases;
    bool waits;
};

static void on_done(void *arg, tdm_ref *ref)
{
    struct seen *seen = arg;

    seen->count++;
    if (seen->waits) { /* the lock is free: anything may be called */
        tdm_ref *other = peer_call(&peer, 99, NULL);

        peer_hold(&peer, 1);
        peer_complete(&peer, 0);
        assert_int_equal(tdm_get(other, PEER_WAIT_MS, "i", &seen->number), TDM_OK);
        tdm_ref_release(other);
    }
    seen->status = tdm_get(ref, 0, "i", &seen->number);
    if (seen->releases) {
        tdm_ref_release(ref);
    }
}

static bool was_seen(void *arg)
{
    return ((const struct seen *)arg)->count > 0;
}

static void a_result_that_is_there_is_told_at_once(void **state)
{
    struct seen seen = {.releases = true};
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_put(peer.runtime, &ref, "i", (int64_t)5), TDM_OK);
    assert_int_equal(tdm_ref_on_done(ref, on_done, &seen), TDM_OK);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.number, 5);
}

static void a_result_is_told_once_when_it_comes(void **state)
{
    struct seen seen[2] = {{.waits = true}, {.releases = true}};
    tdm_ref *ref = peer_call(&peer, 3, NULL);

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_ref_on_done(ref, on_done, &seen[i]), TDM_OK);
    }
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    assert_int_equal(seen[0].count, 0);
    peer_run_until(&peer, was_seen, &seen[1]);
    peer_settle(&peer);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(seen[i].count, 1);
        assert_int_equal(seen[i].status, TDM_OK);
        assert_int_equal(seen[i].number, 3);
    }
}

static bool is_done(void *arg)
{
    return ((const tdm_ref *)arg)->done;
}

static void a_result_is_told_before_the_runtime_ends(void **state)
{
    struct seen seen = {.releases = true};
    tdm_ref *ref;

    (void)state;
    peer_create(&peer);
    peer_found(&peer);
    ref = peer_call(&peer, 5, NULL);
    assert_int_equal(tdm_ref_on_done(ref, on_done, &seen), TDM_OK);
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_run_until(&peer, is_done, ref); /* and no further */
    assert_int_equal(seen.count, 0);
    peer_destroy(&peer);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.number, 5);
}

static void failures_are_told_as_well(void **state)
{
    struct seen seen = {.releases = true};
    tdm_ref *ref = peer_call(&peer, 3, NULL);

    (void)state;
    assert_int_equal(tdm_ref_on_done(ref, on_done, &seen), TDM_OK);
    assert_int_equal(tdm_cancel(ref, 0), TDM_OK);
    assert_int_equal(seen.count, 0);
    peer_run_until(&peer, was_seen, &seen);
    assert_int_equal(seen.status, TDM_E_CANCELED);
}

static void all_of_many_are_given_in_order(void **state)
{
    const tdm_value *values[20];
    tdm_ref *refs[20];

    (void)state;
    for (int64_t i = 0; i < 20; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    peer_hold(&peer, 20);
    for (uint32_t i = 20; i > 0; i--) {
        assert_int_equal(tdm_get_many(refs, 20, 0, values), TDM_E_TIMEOUT);
        peer_complete(&peer, i - 1);
    }
    assert_int_equal(tdm_get_many(refs, 20, PEER_WAIT_MS, values), TDM_OK);
    for (int64_t i = 0; i < 20; i++) {
        assert_int_equal(tdm_value_int(tdm_value_at(values[i], 0), -1), i);
        tdm_ref_release(refs[i]);
    }
    assert_int_equal(tdm_get_many(NULL, 0, 0, NULL), TDM_OK);
}

static void the_first_failure_comes_without_the_others(void **state)
{
    const tdm_value *values[3];
    tdm_ref *refs[3];

    (void)state;
    for (int64_t i = 0; i < 3; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    peer_hold(&peer, 3);
    peer_fail(&peer, 2, TDM_E_METHOD, "the third");
    assert_int_equal(tdm_get_many(refs, 3, PEER_WAIT_MS, values), TDM_E_METHOD);
    assert_non_null(strstr(tdm_error_detail(), "the third"));
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUND_PEER_TEST(a_result_that_is_there_is_told_at_once),
        FOUND_PEER_TEST(a_result_is_told_once_when_it_comes),
        cmocka_unit_test(a_result_is_told_before_the_runtime_ends),
        FOUND_PEER_TEST(failures_are_told_as_well),
        FOUND_PEER_TEST(all_of_many_are_given_in_order),
        FOUND_PEER_TEST(the_first_failure_comes_without_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
