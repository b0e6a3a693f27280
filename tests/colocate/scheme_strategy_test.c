/* scheme_strategy_test.c - the names of TorchRL's strategies and schemes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/weights.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void strategies_are_numbered_from_zero(void **state)
{
    (void)state;
    assert_string_equal(tdm_weights_strategy_name(0), "tensordict");
    assert_string_equal(tdm_weights_strategy_name(1), "state_dict");
    assert_string_equal(tdm_weights_strategy_name(2), "module");
    assert_null(tdm_weights_strategy_name(3));
    assert_null(tdm_weights_strategy_name(UINT32_MAX));
}

static void each_scheme_has_a_class_of_torchrl(void **state)
{
    (void)state;
    for (int i = TDM_WEIGHTS_SHARED; i <= TDM_WEIGHTS_NONE; i++) {
        const char *name = tdm_weights_scheme_torchrl((enum tdm_weights_scheme)i);

        assert_non_null(name);
        assert_non_null(strstr(name, "Scheme"));
        for (int k = TDM_WEIGHTS_SHARED; k < i; k++) {
            assert_string_not_equal(name, tdm_weights_scheme_torchrl((enum tdm_weights_scheme)k));
        }
    }
    assert_string_equal(tdm_weights_scheme_torchrl(TDM_WEIGHTS_ACTORS), "RayWeightSyncScheme");
    assert_null(tdm_weights_scheme_torchrl((enum tdm_weights_scheme)0));
    assert_null(tdm_weights_scheme_torchrl((enum tdm_weights_scheme)(TDM_WEIGHTS_NONE + 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_are_numbered_from_zero),
        cmocka_unit_test(each_scheme_has_a_class_of_torchrl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
