/* comm_reduce_test.c - the elements of two ranks are reduced, for both types and both reductions.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/reduce.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { COUNT = 5 }; /* The arrays have one more element, which must not change. */

static void element_has_its_bytes(void **state)
{
    (void)state;
    assert_int_equal(tdm__comm_dtype_bytes(TDM__COMM_FLOAT32), sizeof(float));
    assert_int_equal(tdm__comm_dtype_bytes(TDM__COMM_FLOAT64), sizeof(double));
}

static void sum_has_the_precision_of_its_numbers(void **state)
{
    float floats[COUNT + 1] = {0x1p24f, 0.5f, -1, INFINITY, 3, 7};
    const float more_floats[COUNT + 1] = {1, 0.25f, 1, 1, -3, 1};
    double doubles[COUNT + 1] = {0x1p24, 0.5, -1, INFINITY, 3, 7};
    const double more_doubles[COUNT + 1] = {1, 0.25, 1, 1, -3, 1};

    (void)state;
    tdm__comm_reduce_elements(floats, more_floats, COUNT, TDM__COMM_FLOAT32, TDM_SUM);
    tdm__comm_reduce_elements(doubles, more_doubles, COUNT, TDM__COMM_FLOAT64, TDM_SUM);
    assert_true(floats[0] == 0x1p24f && doubles[0] == 0x1p24 + 1);
    assert_true(floats[1] == 0.75f && doubles[1] == 0.75);
    assert_true(floats[2] == 0 && doubles[2] == 0);
    assert_true(isinf(floats[3]) && isinf(doubles[3]));
    assert_true(floats[4] == 0 && doubles[4] == 0);
    assert_true(floats[COUNT] == 7 && doubles[COUNT] == 7);
}

static void maximum_is_one_of_the_two(void **state)
{
    float floats[COUNT + 1] = {1, 2, -1, -INFINITY, 3, 7};
    const float more_floats[COUNT + 1] = {2, 1, -2, -9, 3, 8};
    double doubles[COUNT + 1] = {1, 2, -1, -INFINITY, 3, 7};
    const double more_doubles[COUNT + 1] = {2, 1, -2, -9, 3, 8};
    static const float expected[COUNT + 1] = {2, 2, -1, -9, 3, 7};

    (void)state;
    tdm__comm_reduce_elements(floats, more_floats, COUNT, TDM__COMM_FLOAT32, TDM_MAX);
    tdm__comm_reduce_elements(doubles, more_doubles, COUNT, TDM__COMM_FLOAT64, TDM_MAX);
    for (int i = 0; i <= COUNT; i++) {
        assert_true(floats[i] == expected[i] && doubles[i] == (double)expected[i]);
    }
}

static void the_order_of_the_ranks_decides_the_bits(void **state)
{
    const float ranks[3] = {0x1p24f, 1, 1};
    float forward = ranks[0];
    float backward = ranks[2];

    (void)state;
    tdm__comm_reduce_elements(&forward, &ranks[1], 1, TDM__COMM_FLOAT32, TDM_SUM);
    tdm__comm_reduce_elements(&forward, &ranks[2], 1, TDM__COMM_FLOAT32, TDM_SUM);
    tdm__comm_reduce_elements(&backward, &ranks[1], 1, TDM__COMM_FLOAT32, TDM_SUM);
    tdm__comm_reduce_elements(&backward, &ranks[0], 1, TDM__COMM_FLOAT32, TDM_SUM);
    assert_true(forward == 0x1p24f && backward == 0x1p24f + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(element_has_its_bytes),
        cmocka_unit_test(sum_has_the_precision_of_its_numbers),
        cmocka_unit_test(maximum_is_one_of_the_two),
        cmocka_unit_test(the_order_of_the_ranks_decides_the_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
