/* client_session_test.c - callers, and the replies cached for them until they are acknowledged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/client_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__client_sessions client_sessions;

static int set_up(void **state)
{
    (void)state;
    tdm__client_sessions_init(&client_sessions);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__client_sessions_fini(&client_sessions);
    assert_int_equal(client_sessions.cached_reply_bytes, 0);
    return 0;
}

static struct tdm__peer_identity peer(enum tdm__peer_kind kind, uint8_t id, uint8_t node,
                                      int64_t pid)
{
    return (struct tdm__peer_identity){
        .kind = kind, .id = {.bytes = {id}}, .node = {.bytes = {node}}, .pid = pid};
}

static struct tdm__client_session *caller_of(struct tdm__peer_identity identity)
{
    struct tdm__client_session *caller;

    assert_int_equal(tdm__client_session_get(&client_sessions, &identity, &caller), TDM_OK);
    return caller;
}

static void caller_is_one_incarnation_of_a_process(void **state)
{
    struct tdm__client_session *first = caller_of(peer(TDM__PEER_WORKER, 1, 1, 10));

    (void)state;
    assert_ptr_equal(caller_of(peer(TDM__PEER_WORKER, 1, 1, 10)), first);
    assert_ptr_not_equal(caller_of(peer(TDM__PEER_WORKER, 1, 1, 11)), first); /* restarted */
    assert_ptr_not_equal(caller_of(peer(TDM__PEER_WORKER, 1, 2, 10)), first); /* elsewhere */
    assert_ptr_not_equal(caller_of(peer(TDM__PEER_WORKER, 2, 1, 10)), first);
    assert_ptr_equal(caller_of(peer(TDM__PEER_WORKER, 1, 1, 10)), first);
}

static void driver_that_learns_its_node_is_the_same(void **state)
{
    struct tdm__client_session *driver = caller_of(peer(TDM__PEER_DRIVER, 3, 0, 10));

    (void)state;
    assert_ptr_equal(caller_of(peer(TDM__PEER_DRIVER, 3, 1, 10)), driver);
}

static void keep(struct tdm__client_session *caller, uint64_t sequence, const char *detail)
{
    struct tdm__method_reply answer = {.status = TDM_E_METHOD, .detail = detail};

    tdm__client_session_cache_reply(&client_sessions, caller, sequence, &answer);
}

static void replies_stay_until_they_are_acknowledged(void **state)
{
    /* The replies do not arrive in order. */
    static const uint64_t finished[] = {3, 1, 4, 2, 5};
    struct tdm__client_session *caller = caller_of(peer(TDM__PEER_DRIVER, 1, 0, 1));

    (void)state;
    for (int i = 0; i < 5; i++) {
        char text[2] = {(char)('0' + finished[i]), '\0'};

        keep(caller, finished[i], text);
    }
    for (uint64_t i = 1; i <= 5; i++) {
        char text[2] = {(char)('0' + i), '\0'};

        assert_string_equal(tdm__client_session_cached_reply(caller, i)->detail, text);
    }
    tdm__client_session_acknowledge(&client_sessions, caller, 3);
    tdm__client_session_acknowledge(&client_sessions, caller,
                                    2); /* An older acknowledgement changes nothing. */
    assert_null(tdm__client_session_cached_reply(caller, 3));
    assert_non_null(tdm__client_session_cached_reply(caller, 4));
    assert_int_equal(caller->cached_reply_count, 2);
    keep(caller, 2, "too late"); /* The reply was acknowledged, so it is not cached. */
    assert_int_equal(caller->cached_reply_count, 2);
    tdm__client_session_acknowledge(&client_sessions, caller, 5);
    assert_int_equal(client_sessions.cached_reply_bytes, 0);
}

static void only_what_has_not_run_may_run(void **state)
{
    struct tdm__client_session *caller = caller_of(peer(TDM__PEER_DRIVER, 1, 0, 1));

    (void)state;
    tdm__client_session_acknowledge(&client_sessions, caller, 3);
    assert_int_equal(tdm__client_session_check_may_run(caller, 3), TDM_E_PROTOCOL);
    assert_int_equal(tdm__client_session_check_may_run(caller, 4), TDM_OK);
    caller->uncached_sequence = 4;
    assert_int_equal(tdm__client_session_check_may_run(caller, 4), TDM_E_NOMEM);
    assert_int_equal(tdm__client_session_check_may_run(caller, 5), TDM_OK);
}

/* The calls are not refused: only a cut connection would need the replies. */
static void too_many_replies_are_not_kept(void **state)
{
    struct tdm__client_session *caller = caller_of(peer(TDM__PEER_DRIVER, 1, 0, 1));
    static char large[1 << 20];

    (void)state;
    for (uint64_t i = 1; i <= TDM__CACHED_REPLIES_MAX; i++) {
        keep(caller, i, "");
    }
    assert_int_equal(caller->uncached_sequence, 0);
    keep(caller, TDM__CACHED_REPLIES_MAX + 1, "");
    assert_int_equal(caller->cached_reply_count, TDM__CACHED_REPLIES_MAX);
    assert_int_equal(tdm__client_session_check_may_run(caller, TDM__CACHED_REPLIES_MAX + 1),
                     TDM_E_NOMEM);
    assert_string_equal(tdm_error_detail(), "call 100001 has run; its reply was not kept");
    tdm__client_session_acknowledge(&client_sessions, caller, TDM__CACHED_REPLIES_MAX + 1);
    memset(large, 'x', sizeof(large) - 1);
    for (uint64_t i = 2; i < 1000; i++) {
        keep(caller, TDM__CACHED_REPLIES_MAX + i, large);
    }
    assert_in_range(client_sessions.cached_reply_bytes, TDM__CACHED_REPLY_BYTES_MAX,
                    TDM__CACHED_REPLY_BYTES_MAX + 2 * sizeof(large));
    assert_int_equal(caller->uncached_sequence, TDM__CACHED_REPLIES_MAX + 999);
}

static void session_of_a_silent_client_is_forgotten(void **state)
{
    struct tdm__client_session *silent = caller_of(peer(TDM__PEER_DRIVER, 1, 0, 1));
    struct tdm__client_session *busy = caller_of(peer(TDM__PEER_DRIVER, 1, 0, 2));

    (void)state;
    keep(silent, 1, "nobody asks");
    keep(busy, 1, "somebody might");
    busy->calls_count = 1;
    silent->heard_since_sweep = false;
    silent->silent_since_ms = client_sessions.swept_ms - INT64_C(360000);
    busy->heard_since_sweep = false;
    busy->silent_since_ms = silent->silent_since_ms;
    client_sessions.swept_ms -= INT64_C(120000);
    (void)caller_of(peer(TDM__PEER_DRIVER, 9, 0, 9)); /* A new session triggers the sweep. */
    assert_null(tdm__client_session_cached_reply(caller_of(peer(TDM__PEER_DRIVER, 1, 0, 1)), 1));
    assert_ptr_equal(caller_of(peer(TDM__PEER_DRIVER, 1, 0, 2)), busy);
    busy->calls_count = 0;
}

#define FRAMED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRAMED(caller_is_one_incarnation_of_a_process),
        FRAMED(driver_that_learns_its_node_is_the_same),
        FRAMED(replies_stay_until_they_are_acknowledged),
        FRAMED(only_what_has_not_run_may_run),
        FRAMED(too_many_replies_are_not_kept),
        FRAMED(session_of_a_silent_client_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
