/* redis_address_test.c - URLs of the store are parsed, or refused with a reason. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__redis_address parse(const char *url)
{
    struct tdm__redis_address address;

    if (tdm__redis_address_parse(url, &address) != TDM_OK) {
        fail_msg("%s: %s", url, tdm_error_detail());
    }
    return address;
}

static void unix_socket_is_its_path(void **state)
{
    (void)state;
    assert_string_equal(parse("unix:///run/redis.sock").path, "/run/redis.sock");
    assert_string_equal(parse("unix:/run/redis.sock").path, "/run/redis.sock");
}

static void every_part_of_a_redis_url_is_found(void **state)
{
    struct tdm__redis_address address = parse("redis://no%64e:p%40:ss@db.example:7000/3");

    (void)state;
    assert_string_equal(address.user, "node");
    assert_string_equal(address.password, "p@:ss");
    assert_string_equal(address.host.name, "db.example");
    assert_int_equal(address.host.port, 7000);
    assert_int_equal(address.database, 3);
    assert_string_equal(address.text, "redis://db.example:7000/3");
    assert_string_equal(parse("redis://:secret@h").password, "secret");
    assert_int_equal(parse("redis://h").host.port, 6379);
    assert_string_equal(parse("redis://[::1]:7000/").host.name, "::1");
    assert_string_equal(parse("redis://[::1]").host.name, "::1");
}

static void invalid_store_url_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "http://h",
                                      "unix://relative",
                                      "redis://",
                                      "redis://:6379",
                                      "redis://h:",
                                      "redis://h:65536",
                                      "redis://h:12x",
                                      "redis://h/x",
                                      "redis://[::1",
                                      "redis://[::1]x",
                                      "redis://a%4:b@h",
                                      "redis://a%zz:b@h",
                                      "redis://a%00:b@h",
                                      "redis+sentinel://",
                                      "redis+sentinel://h",
                                      "redis+sentinel://h/",
                                      "redis+sentinel:///m",
                                      "redis+sentinel://h,/m",
                                      "redis+sentinel://,h/m",
                                      "redis+sentinel://h:0x1/m",
                                      "rediss://h?cacert=relative.pem",
                                      "rediss://h?password=p",
                                      "rediss://h/0?cert=/c&",
                                      "redis://h/0?cacert=/c",
                                      "redis+sentinel://h/m m",
                                      "redis+sentinel://h/m/x",
                                      "redis+sentinel://h/m/0/0",
                                      "redis+sentinel://h/m?password=p",
                                      "redis+sentinel://h/m?sentinel_name=p",
                                      "redis+sentinel://h/m?sentinel_user=a&user=p",
                                      "redis+sentinel://h/m?sentinel_password=%4"};
    struct tdm__redis_address address;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(tdm__redis_address_parse(bad[i], &address), TDM_E_INVAL);
    }
}

static void sentinels_by_tls_are_refused_by_name(void **state)
{
    struct tdm__redis_address address;

    (void)state;
    assert_int_equal(tdm__redis_address_parse("rediss+sentinel://h/m", &address),
                     TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "sentinels, and the masters that they name, are not "
                                               "reached by TLS"));
}

static void encrypted_url_may_name_files(void **state)
{
    struct tdm__redis_address address =
        parse("rediss://me:p%40w@db.example:7/3?cacert=/etc/ca%26b.pem&cert=/c.pem&key=/k@.pem");

    (void)state;
    assert_true(address.is_encrypted);
    assert_string_equal(address.user, "me");
    assert_string_equal(address.password, "p@w");
    assert_string_equal(address.host.name, "db.example");
    assert_int_equal(address.host.port, 7);
    assert_int_equal(address.database, 3);
    assert_string_equal(address.authorities, "/etc/ca&b.pem");
    assert_string_equal(address.certificate, "/c.pem");
    assert_string_equal(address.key, "/k@.pem");
    assert_string_equal(address.text, "rediss://db.example:7/3");
    assert_false(tdm__redis_address_is_local(&address));
    address = parse("rediss://h");
    assert_string_equal(address.authorities, "");
    assert_int_equal(address.host.port, 6379);
    assert_false(parse("redis://h").is_encrypted);
    assert_int_equal(parse("rediss://h?key=/k").host.port, 6379);
}

static void every_part_of_a_sentinel_url_is_found(void **state)
{
    struct tdm__redis_address address =
        parse("redis+sentinel://no%64e:p/%40?ss@db.example,[::1]:7000,10.0.0.1/my-master.1/3");

    (void)state;
    assert_string_equal(address.user, "node");
    assert_string_equal(address.password, "p/@?ss");
    assert_int_equal(address.sentinels_count, 3);
    assert_string_equal(address.sentinels[0].name, "db.example");
    assert_int_equal(address.sentinels[0].port, 26379);
    assert_string_equal(address.sentinels[1].name, "::1");
    assert_int_equal(address.sentinels[1].port, 7000);
    assert_string_equal(address.sentinels[2].name, "10.0.0.1");
    assert_string_equal(address.master, "my-master.1");
    assert_int_equal(address.database, 3);
    assert_string_equal(address.host.name, "");
    assert_string_equal(address.path, "");
    assert_false(address.allows_remote_master);
    assert_string_equal(address.text,
                        "redis+sentinel://db.example:26379,::1:7000,10.0.0.1:26379/my-master.1/3");
    assert_int_equal(parse("redis+sentinel://h/m/").database, 0);
}

static void sentinels_have_a_user_of_their_own(void **state)
{
    struct tdm__redis_address address =
        parse("redis+sentinel://:a@h/m/2?sentinel_user=o%26ne&sentinel_password=b@%3f");

    (void)state;
    assert_string_equal(address.user, "");
    assert_string_equal(address.password, "a");
    assert_int_equal(address.database, 2);
    assert_string_equal(address.sentinel_user, "o&ne");
    assert_string_equal(address.sentinel_password, "b@?");
    assert_string_equal(address.text, "redis+sentinel://h:26379/m/2");
    assert_string_equal(parse("redis+sentinel://h/m?sentinel_password=p").sentinel_password, "p");
    assert_string_equal(parse("redis+sentinel://h/m?sentinel_password=p").master, "m");
}

static void sentinels_beyond_the_limit_are_refused(void **state)
{
    struct tdm__redis_address address;

    (void)state;
    assert_int_equal(parse("redis+sentinel://1,2,3,4,5,6,7,8/m").sentinels_count,
                     TDM__REDIS_SENTINELS_MAX);
    assert_int_equal(tdm__redis_address_parse("redis+sentinel://1,2,3,4,5,6,7,8,9/m", &address),
                     TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "8 sentinels"));
}

static void long_names_of_sentinels_are_cut_in_messages(void **state)
{
    char url[1200] = "redis+sentinel://";

    (void)state;
    for (int i = 0; i < 4; i++) {
        size_t bytes = strlen(url);

        memset(url + bytes, 'a' + i, 200);
        url[bytes + 200] = i < 3 ? ',' : '/';
    }
    (void)strncat(url, "m", 2);
    assert_int_equal(parse(url).sentinels_count, 4);
    assert_non_null(strstr(parse(url).text, "aaa:26379,bbb"));
    assert_non_null(strstr(parse(url).text, "bbb/m/0"));
}

static void address_is_local_if_all_sentinels_are(void **state)
{
    static const char *const local[] = {"redis+sentinel://127.0.0.1,localhost,[::1]/m", "unix:///x",
                                        "redis://127.3.2.1"};
    static const char *const remote[] = {"redis+sentinel://127.0.0.1,10.0.0.9,localhost/m",
                                         "redis+sentinel://127.0.0.1,h/m", "redis://10.0.0.9"};
    struct tdm__redis_address address;

    (void)state;
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
        address = parse(local[i]);
        assert_true(tdm__redis_address_is_local(&address));
        address = parse(remote[i]);
        assert_false(tdm__redis_address_is_local(&address));
    }
}

static void overlong_parts_are_refused(void **state)
{
    struct tdm__redis_address address;
    char url[400] = "redis://";

    (void)state;
    memset(url + 8, 'h', 300);
    assert_int_equal(tdm__redis_address_parse(url, &address), TDM_E_LIMIT);
    memcpy(url, "unix:///", 8);
    assert_int_equal(tdm__redis_address_parse(url, &address), TDM_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unix_socket_is_its_path),
        cmocka_unit_test(every_part_of_a_redis_url_is_found),
        cmocka_unit_test(invalid_store_url_is_refused),
        cmocka_unit_test(sentinels_by_tls_are_refused_by_name),
        cmocka_unit_test(encrypted_url_may_name_files),
        cmocka_unit_test(every_part_of_a_sentinel_url_is_found),
        cmocka_unit_test(sentinels_have_a_user_of_their_own),
        cmocka_unit_test(sentinels_beyond_the_limit_are_refused),
        cmocka_unit_test(long_names_of_sentinels_are_cut_in_messages),
        cmocka_unit_test(address_is_local_if_all_sentinels_are),
        cmocka_unit_test(overlong_parts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
