/* location_test.c - two GPUs have different locations in every process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/location.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void place_is_a_node_and_the_hash_of_a_name(void **state)
{
    const struct tdm__id node = {.bytes = {1, 2, 3}};
    const struct tdm__device here = {.gpu = 0, .uuid = "GPU-host-0"};
    const struct tdm__device same = {.gpu = 7, .uuid = "GPU-host-0"};
    const struct tdm__device other = {.gpu = 0, .uuid = "GPU-host-1"};
    struct tdm__location place = tdm__location_of_device(&node, &here);
    struct tdm__location again = tdm__location_of_device(&node, &same);
    struct tdm__location elsewhere = tdm__location_of_device(&node, &other);

    (void)state;
    assert_true(tdm__id_equal(&place.node, &node));
    assert_true(tdm__id_equal(&place.gpu, &again.gpu));
    assert_false(tdm__id_equal(&place.gpu, &elsewhere.gpu));
    /* A description with an empty ID would be refused. */
    assert_false(tdm__id_is_none(&place.gpu));
}

static void test_nearness_depends_on_node_and_gpu(void **state)
{
    const struct tdm__location one = {.node = {{1}}, .gpu = {{1}}};
    const struct tdm__location near = {.node = {{1}}, .gpu = {{2}}};
    const struct tdm__location far = {.node = {{2}}, .gpu = {{1}}};

    (void)state;
    assert_int_equal(tdm__location_locality(&one, &one), TDM__LOCALITY_SAME_GPU);
    assert_int_equal(tdm__location_locality(&one, &near), TDM__LOCALITY_SAME_NODE);
    assert_int_equal(tdm__location_locality(&one, &far), TDM__LOCALITY_OTHER_NODE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place_is_a_node_and_the_hash_of_a_name),
        cmocka_unit_test(test_nearness_depends_on_node_and_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
