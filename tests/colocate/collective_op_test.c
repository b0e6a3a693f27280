/* collective_op_test.c - when operations of ranks are equal, and how a difference is described. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/collective_op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct tdm__collective_op gather = {.kind = TDM__COLLECTIVE_GATHER,
                                                 .root_or_dtype = 1,
                                                 .size_bytes = 40,
                                                 .memory = TDM__COMM_MEMORY_GPU};

static void test_every_field_counts(void **state)
{
    struct tdm__collective_op others[4] = {gather, gather, gather, gather};

    (void)state;
    assert_true(tdm__collective_op_equal(&gather, &others[0]));
    others[0].kind = TDM__COLLECTIVE_BROADCAST;
    others[1].root_or_dtype = 0;
    others[2].size_bytes = 41;
    others[3].memory = TDM__COMM_MEMORY_HOST;
    for (int i = 0; i < 4; i++) {
        assert_false(tdm__collective_op_equal(&gather, &others[i]));
    }
}

static void test_difference_is_described(void **state)
{
    struct tdm__collective_op other = gather;
    char text[TDM__OP_DIFFERENCE_BYTES];

    (void)state;
    other.memory = TDM__COMM_MEMORY_HOST;
    assert_string_equal(tdm__collective_op_difference(&other, &gather, 3, text),
                        "has its data in host memory, and rank 3 in GPU memory: all ranks must "
                        "pass the same kind of memory");
    other.size_bytes = 48;
    assert_string_equal(tdm__collective_op_difference(&other, &gather, 3, text),
                        "was in another call or with another size (48 bytes, here 40)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_counts),
        cmocka_unit_test(test_difference_is_described),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
