/* tensor_test.c - sizes of tensors never wrap around. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void elements_and_bytes_are_the_product_of_the_shape(void **state)
{
    struct tdm_tensor_info scalar = {"s", TDM_F32, 0, {0}};
    struct tdm_tensor_info matrix = {"m", TDM_BF16, 2, {3, 5}};
    struct tdm_tensor_info empty = {"e", TDM_I64, 3, {UINT64_MAX, UINT64_MAX, 0}};

    (void)state;
    assert_int_equal(tdm_tensor_elements(&scalar), 1);
    assert_int_equal(tdm_tensor_bytes(&scalar), 4);
    assert_int_equal(tdm_tensor_elements(&matrix), 15);
    assert_int_equal(tdm_tensor_bytes(&matrix), 30);
    assert_int_equal(tdm_tensor_elements(&empty), 0);
    assert_int_equal(tdm_tensor_bytes(&empty), 0);
}

static void product_that_does_not_fit_is_the_largest_number(void **state)
{
    struct tdm_tensor_info elements = {"x", TDM_U8, 2, {1ULL << 32, 1ULL << 32}};
    struct tdm_tensor_info bytes = {"x", TDM_I64, 1, {1ULL << 61}};

    (void)state;
    assert_true(tdm_tensor_elements(&elements) == UINT64_MAX);
    assert_true(tdm_tensor_bytes(&elements) == UINT64_MAX);
    assert_true(tdm_tensor_elements(&bytes) == 1ULL << 61);
    assert_true(tdm_tensor_bytes(&bytes) == UINT64_MAX);
}

static void the_check_names_what_is_wrong(void **state)
{
    char name[TDM_TENSOR_NAME_BYTES_MAX + 1];
    struct tdm_tensor_info info = {name, TDM_F32, 1, {4}};

    (void)state;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(tdm__tensor_check(&info), TDM_E_INVAL);
    name[TDM_TENSOR_NAME_BYTES_MAX - 1] = '\0';
    assert_int_equal(tdm__tensor_check(&info), TDM_OK);
    info.name = NULL;
    assert_int_equal(tdm__tensor_check(&info), TDM_E_INVAL);
    info.name = "w";
    info.dims_count = TDM_DIMS_MAX + 1;
    assert_int_equal(tdm__tensor_check(&info), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "\"w\" failed: it has 5 dimensions"));
    info.dims_count = 1;
    info.shape[0] = UINT64_MAX;
    assert_int_equal(tdm__tensor_check(&info), TDM_E_INVAL);
    info.shape[0] = 1;
    info.dtype = (enum tdm_dtype)42;
    assert_int_equal(tdm__tensor_check(&info), TDM_E_INVAL);
}

static void row_major_strides_are_contiguous_and_others_are_not(void **state)
{
    struct tdm_tensor_view view = {.info = {"v", TDM_F32, 3, {2, 3, 4}}};

    (void)state;
    tdm__tensor_row_major_strides(&view.info, view.stride);
    assert_int_equal(view.stride[0], 12);
    assert_int_equal(view.stride[1], 4);
    assert_int_equal(view.stride[2], 1);
    assert_true(tdm__tensor_is_contiguous(&view));
    view.stride[0] = 24;
    assert_false(tdm__tensor_is_contiguous(&view));
    view.info.shape[0] = 1;
    assert_true(tdm__tensor_is_contiguous(&view));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_and_bytes_are_the_product_of_the_shape),
        cmocka_unit_test(product_that_does_not_fit_is_the_largest_number),
        cmocka_unit_test(the_check_names_what_is_wrong),
        cmocka_unit_test(row_major_strides_are_contiguous_and_others_are_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
