/* redis_reply_test.c - replies are accepted only in their exact form. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Parses bytes into a reply, which the caller frees with freeReplyObject(). */
static redisReply *reply_of(const char *bytes)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    assert_int_equal(redisReaderFeed(reader, bytes, strlen(bytes)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    redisReaderFree(reader);
    return reply;
}

/* The fuzzer found that hiredis allocated 4 GB for these bytes. */
static void array_that_only_claims_to_be_long_takes_no_memory(void **state)
{
    static const char claim[] = "*555555550\r\n";
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    (void)state;
    tdm__redis_reader_limit(reader);
    assert_int_equal(redisReaderFeed(reader, claim, strlen(claim)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_ERR);
    assert_null(reply);
    redisReaderFree(reader);
}

static void array_of_usual_length_is_read_as_ever(void **state)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    (void)state;
    tdm__redis_reader_limit(reader);
    assert_int_equal(redisReaderFeed(reader, "*2\r\n:1\r\n:2\r\n", 12), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_int_equal(((redisReply *)reply)->elements, 2);
    freeReplyObject(reply);
    redisReaderFree(reader);
}

static void records_come_sorted_and_once(void **state)
{
    redisReply *reply = reply_of("*9\r\n$1\r\nb\r\n$1\r\n2\r\n$0\r\n\r\n$1\r\na\r\n$1\r\n1\r\n"
                                 "$1\r\nx\r\n$1\r\nb\r\n$1\r\n2\r\n$0\r\n\r\n");
    struct tdm__store_records *records;

    (void)state;
    assert_int_equal(tdm__redis_reply_records(reply, &records), TDM_OK);
    assert_int_equal(records->count, 2);
    assert_string_equal(records->items[0].key, "a");
    assert_int_equal(records->items[1].version, 2);
    free(records);
    freeReplyObject(reply);
}

static void records_of_another_form_are_refused(void **state)
{
    static const char *const bad[] = {
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "-ERR unknown command\r\n",
        "*2\r\n$1\r\na\r\n$1\r\n1\r\n",
        "*3\r\n$1\r\na\r\n$1\r\n1\r\n$-1\r\n",
        "*3\r\n$1\r\na\r\n:1\r\n$1\r\nx\r\n",
        "*3\r\n$1\r\n*\r\n$1\r\n1\r\n$1\r\nx\r\n",
        "*3\r\n$0\r\n\r\n$1\r\n1\r\n$1\r\nx\r\n",
        "*3\r\n$1\r\na\r\n$1\r\n0\r\n$1\r\nx\r\n",
        "*3\r\n$1\r\na\r\n$2\r\n1x\r\n$1\r\nx\r\n",
        "*3\r\n$1\r\na\r\n$2\r\n-1\r\n$1\r\nx\r\n",
        "*3\r\n$1\r\na\r\n$20\r\n18446744073709551615\r\n$1\r\nx\r\n",
        "*3\r\n$1\r\na\r\n$20\r\n18446744073709551616\r\n$1\r\nx\r\n",
        "*3\r\n*0\r\n*0\r\n*0\r\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        redisReply *reply = reply_of(bad[i]);
        struct tdm__store_records *records;

        assert_int_equal(tdm__redis_reply_records(reply, &records), TDM_E_STORE);
        freeReplyObject(reply);
    }
}

static uint64_t assert_commit(const char *bytes, tdm_status status)
{
    redisReply *reply = reply_of(bytes);
    uint64_t version = TDM__VERSION_NONE;
    struct tdm__store_records *losers;

    assert_int_equal(tdm__redis_reply_commit(reply, &version, &losers), status);
    assert_null(losers);
    freeReplyObject(reply);
    return version;
}

static void lost_commit_has_its_losers(void **state)
{
    redisReply *reply = reply_of("*7\r\n$12\r\nCONFLICT b/2\r\n"
                                 "$3\r\nb/2\r\n$1\r\n7\r\n$2\r\nxy\r\n"
                                 "$3\r\na/1\r\n$1\r\n0\r\n$0\r\n\r\n");
    uint64_t version;
    struct tdm__store_records *losers;

    (void)state;
    assert_int_equal(tdm__redis_reply_commit(reply, &version, &losers), TDM_E_CONFLICT);
    assert_string_equal(tdm_error_detail(), "b/2");
    assert_int_equal(losers->count, 2);
    assert_string_equal(losers->items[0].key, "a/1");
    assert_true(losers->items[0].version == TDM__VERSION_NONE);
    assert_string_equal(losers->items[1].key, "b/2");
    assert_int_equal(losers->items[1].version, 7);
    assert_int_equal(losers->items[1].bytes.size_bytes, 2);
    assert_memory_equal(losers->items[1].bytes.data, "xy", 2);
    free(losers);
    freeReplyObject(reply);
    /* A success with records, a version that is none, half a record. */
    assert_commit("*4\r\n$4\r\nOK 1\r\n$1\r\na\r\n$1\r\n1\r\n$0\r\n\r\n", TDM_E_STORE);
    assert_commit("*4\r\n$10\r\nCONFLICT a\r\n$1\r\na\r\n$1\r\nx\r\n$0\r\n\r\n", TDM_E_STORE);
    assert_commit("*2\r\n$10\r\nCONFLICT a\r\n$1\r\na\r\n", TDM_E_STORE);
}

static void commit_is_ok_or_a_conflict_or_refused(void **state)
{
    (void)state;
    assert_int_equal(assert_commit("$4\r\nOK 0\r\n", TDM_OK), TDM__VERSION_NONE);
    assert_int_equal(assert_commit("$19\r\nOK 1763764000000001\r\n", TDM_OK), 1763764000000001);
    /* Reply of an older version of the functions. */
    assert_commit("$2\r\nOK\r\n", TDM_E_STORE);
    assert_commit("$3\r\nOK \r\n", TDM_E_STORE);
    assert_commit("$5\r\nOK 1x\r\n", TDM_E_STORE);
    assert_commit("$5\r\nOK 01\r\n", TDM_E_STORE);
    assert_commit("$23\r\nOK 18446744073709551615\r\n", TDM_E_STORE);
    assert_commit("$14\r\nCONFLICT a/key\r\n", TDM_E_CONFLICT);
    assert_string_equal(tdm_error_detail(), "a/key");
    assert_commit("$9\r\nCONFLICT \r\n", TDM_E_STORE);
    assert_commit("$3\r\nOKO\r\n", TDM_E_STORE);
    assert_commit("+OK\r\n", TDM_E_STORE);
    assert_commit("*0\r\n", TDM_E_STORE);
    assert_commit("-READONLY You can't write against a read only replica.\r\n", TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "READONLY"));
}

static void session_has_sixteen_digits(void **state)
{
    static const char *const bad[] = {"$15\r\n176376400000000\r\n", "$16\r\n0763764000000001\r\n",
                                      "$16\r\n17637640000x0001\r\n", ":1763764000000001\r\n",
                                      "$7\r\nUNKNOWN\r\n"};
    redisReply *good = reply_of("$16\r\n1763764000000001\r\n");
    uint64_t session;

    (void)state;
    assert_int_equal(tdm__redis_reply_session(good, &session), TDM_OK);
    assert_int_equal(session, 1763764000000001);
    assert_false(tdm__redis_reply_no_session(good));
    freeReplyObject(good);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        redisReply *reply = reply_of(bad[i]);

        assert_int_equal(tdm__redis_reply_session(reply, &session), TDM_E_STORE);
        assert_int_equal(tdm__redis_reply_no_session(reply), i == 4);
        freeReplyObject(reply);
    }
}

static void only_a_missing_function_is_a_missing_function(void **state)
{
    redisReply *missing = reply_of("-ERR Function not found\r\n");
    redisReply *other = reply_of("-ERR wrong number of arguments\r\n");

    (void)state;
    assert_true(tdm__redis_reply_no_function(missing));
    assert_false(tdm__redis_reply_no_function(other));
    assert_int_equal(tdm__redis_reply_loaded(other), TDM_E_STORE);
    freeReplyObject(missing);
    freeReplyObject(other);
}

static void server_without_functions_gets_the_remedy(void **state)
{
    redisReply *call = reply_of("-ERR unknown command `FCALL`, with args beginning with: \r\n");
    redisReply *load = reply_of("-ERR unknown command 'FUNCTION', with args beginning with: \r\n");

    (void)state;
    /* The store then loads its library, whose reply says what is wrong. */
    assert_true(tdm__redis_reply_no_function(call));
    assert_int_equal(tdm__redis_reply_loaded(load), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "Redis 7 or later, or Valkey"));
    freeReplyObject(call);
    freeReplyObject(load);
}

static void user_who_may_not_load_functions_gets_the_remedy(void **state)
{
    redisReply *load = reply_of("-NOPERM this user has no permissions to run the 'function|load' "
                                "command\r\n");

    (void)state;
    assert_int_equal(tdm__redis_reply_loaded(load), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "function|load"));
    assert_non_null(strstr(tdm_error_detail(), "tandem redis-functions"));
    freeReplyObject(load);
}

static void master_of_a_sentinel_is_a_host_and_a_port(void **state)
{
    static const char *const bad[] = {"*-1\r\n",
                                      "*1\r\n$1\r\nh\r\n",
                                      "*2\r\n$1\r\nh\r\n:1\r\n",
                                      "*2\r\n$0\r\n\r\n$1\r\n1\r\n",
                                      "*2\r\n$1\r\nh\r\n$1\r\n0\r\n",
                                      "*2\r\n$1\r\nh\r\n$5\r\n65536\r\n",
                                      "*2\r\n$1\r\nh\r\n$2\r\n1x\r\n",
                                      "-NOAUTH Authentication required.\r\n"};
    redisReply *reply = reply_of("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7000\r\n");
    struct tdm__redis_host master;

    (void)state;
    assert_int_equal(tdm__redis_reply_master(reply, &master), TDM_OK);
    assert_string_equal(master.name, "127.0.0.1");
    assert_int_equal(master.port, 7000);
    freeReplyObject(reply);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        reply = reply_of(bad[i]);
        assert_int_equal(tdm__redis_reply_master(reply, &master), TDM_E_STORE);
        freeReplyObject(reply);
    }
    assert_non_null(strstr(tdm_error_detail(), "NOAUTH"));
}

static void role_must_be_master(void **state)
{
    redisReply *master = reply_of("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    redisReply *replica = reply_of("*1\r\n$5\r\nslave\r\n");
    redisReply *refusal = reply_of("-NOPERM no permissions to run the 'role' command\r\n");

    (void)state;
    assert_int_equal(tdm__redis_reply_role(master), TDM_OK);
    assert_int_equal(tdm__redis_reply_role(replica), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "ROLE is slave"));
    assert_int_equal(tdm__redis_reply_role(refusal), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "'role'"));
    freeReplyObject(master);
    freeReplyObject(replica);
    freeReplyObject(refusal);
}

static void only_errors_of_a_replica_say_that_it_is_no_master(void **state)
{
    static const char *const yes[] = {"-READONLY You can't write against a read only replica.\r\n",
                                      "-MASTERDOWN Link with MASTER is down\r\n"};
    static const char *const no[] = {"+READONLY x\r\n", "-ERR READONLY\r\n",
                                     "-LOADING Redis is loading\r\n", ":1\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        redisReply *reply = reply_of(yes[i]);

        assert_true(tdm__redis_reply_not_master(reply));
        freeReplyObject(reply);
    }
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        redisReply *reply = reply_of(no[i]);

        assert_false(tdm__redis_reply_not_master(reply));
        freeReplyObject(reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(array_that_only_claims_to_be_long_takes_no_memory),
        cmocka_unit_test(array_of_usual_length_is_read_as_ever),
        cmocka_unit_test(records_come_sorted_and_once),
        cmocka_unit_test(records_of_another_form_are_refused),
        cmocka_unit_test(commit_is_ok_or_a_conflict_or_refused),
        cmocka_unit_test(lost_commit_has_its_losers),
        cmocka_unit_test(session_has_sixteen_digits),
        cmocka_unit_test(only_a_missing_function_is_a_missing_function),
        cmocka_unit_test(server_without_functions_gets_the_remedy),
        cmocka_unit_test(user_who_may_not_load_functions_gets_the_remedy),
        cmocka_unit_test(master_of_a_sentinel_is_a_host_and_a_port),
        cmocka_unit_test(role_must_be_master),
        cmocka_unit_test(only_errors_of_a_replica_say_that_it_is_no_master),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
