/* kinds_test.c - the table of the kinds of device, and the device of a process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/kinds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static void test_every_kind_is_complete_and_found_by_its_name(void **state)
{
    const struct tdm__device_kind *kind;
    const struct tdm__device_kind *found;
    uint32_t count = 0;

    (void)state;
    while ((kind = tdm__device_kind_at(count)) != NULL) {
        TRY(tdm__device_kind_by_name(kind->name, &found));
        assert_ptr_equal(found, kind);
        assert_non_null(kind->gpus_name);
        assert_non_null(kind->visible_devices_variable);
        assert_non_null(kind->list);
        assert_non_null(kind->open);
        count++;
    }
    assert_true(count >= 2);
}

static void test_unknown_name_is_refused_with_the_known_ones(void **state)
{
    const struct tdm__device_kind *kind;
    char names[TDM__DEVICE_KIND_NAMES_BYTES];

    (void)state;
    assert_int_equal(tdm__device_kind_by_name("abacus", &kind), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "unknown device \"abacus\": expected host"));
    assert_non_null(strstr(tdm_error_detail(), tdm__device_kind_names(names)));
}

/* Expects that on a node with this environment GPU number `gpu` has this UUID. */
static void expect_uuid(const char *uuids, uint32_t gpu, const char *expected)
{
    const struct tdm__device_kind *kind;
    char uuid[TDM__UUID_BYTES];

    (void)setenv("TANDEM_GPU_UUIDS", uuids, 1);
    TRY(tdm__device_of_process(gpu, &kind, uuid));
    assert_string_equal(kind->name, "cuda");
    assert_string_equal(uuid, expected);
}

static void test_process_finds_the_real_gpus_of_its_node(void **state)
{
    (void)state;
    (void)setenv("TANDEM_DEVICE", "cuda", 1);
    expect_uuid("GPU-77,GPU-3f2a", 0, "GPU-77");
    expect_uuid("GPU-77,GPU-3f2a", 1, "GPU-3f2a");
    expect_uuid("GPU-77,GPU-3f2a,GPU-77", 2, "GPU-77");
    expect_uuid("GPU-77,GPU-3f2a", 2, "");
    expect_uuid("", 0, "");
    (void)unsetenv("TANDEM_GPU_UUIDS");
}

static void test_process_without_a_setting_has_virtual_gpus(void **state)
{
    const struct tdm__device_kind *kind;
    char uuid[TDM__UUID_BYTES];

    (void)state;
    (void)unsetenv("TANDEM_DEVICE");
    (void)unsetenv("TANDEM_GPU_UUIDS");
    TRY(tdm__device_of_process(0, &kind, uuid));
    assert_string_equal(kind->name, "host");
    assert_string_equal(uuid, "");
    (void)setenv("TANDEM_DEVICE", "abacus", 1);
    assert_int_equal(tdm__device_of_process(0, &kind, uuid), TDM_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_is_complete_and_found_by_its_name),
        cmocka_unit_test(test_unknown_name_is_refused_with_the_known_ones),
        cmocka_unit_test(test_process_finds_the_real_gpus_of_its_node),
        cmocka_unit_test(test_process_without_a_setting_has_virtual_gpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
