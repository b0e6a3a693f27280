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
    assert_string_equal(address.host, "db.example");
    assert_int_equal(address.port, 7000);
    assert_int_equal(address.database, 3);
    assert_string_equal(address.text, "redis://db.example:7000/3");
    assert_string_equal(parse("redis://:secret@h").password, "secret");
    assert_int_equal(parse("redis://h").port, 6379);
    assert_string_equal(parse("redis://[::1]:7000/").host, "::1");
    assert_string_equal(parse("redis://[::1]").host, "::1");
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
                                      "redis://a%00:b@h"};
    struct tdm__redis_address address;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(tdm__redis_address_parse(bad[i], &address), TDM_E_INVAL);
    }
}

static void missing_features_name_the_remedy(void **state)
{
    struct tdm__redis_address address;

    (void)state;
    assert_int_equal(tdm__redis_address_parse("rediss://:pw@h", &address), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "stunnel"));
    assert_int_equal(tdm__redis_address_parse("redis+sentinel://h", &address), TDM_E_UNSUPPORTED);
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
        cmocka_unit_test(missing_features_name_the_remedy),
        cmocka_unit_test(overlong_parts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
