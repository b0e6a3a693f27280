/* sharding_test.c - layouts are read from JSON, checked, and know where each rank is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/sharding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static tdm_status parse(const char *text, struct tdm__sharding *sharding)
{
    return tdm__sharding_parse(text, strlen(text), "layout.json", sharding);
}

static void missing_sizes_default_to_one_or_tp(void **state)
{
    struct tdm__sharding sharding;

    (void)state;
    assert_int_equal(parse("{\"layout\": \"engine\", \"ranks\": 16, \"tp\": 8, \"ep\": 8,"
                           " \"attention_tp\": 2}",
                           &sharding),
                     TDM_OK);
    assert_int_equal(sharding.sizes[TDM__SPLIT_ATTENTION], 2);
    assert_int_equal(sharding.sizes[TDM__SPLIT_DENSE], 8);
    assert_int_equal(sharding.sizes[TDM__SPLIT_VOCABULARY], 8);
    assert_int_equal(sharding.sizes[TDM__SPLIT_EXPERT], 1);
    assert_int_equal(sharding.expert_groups, 8);
    assert_int_equal(sharding.vocabulary_multiple, 64);
    assert_int_equal(sharding.stages_count, 1);
    assert_int_equal(sharding.dtype, 0);
}

static void ranks_are_numbered_as_megatron_does(void **state)
{
    struct tdm__sharding sharding;

    (void)state;
    assert_int_equal(parse("{\"layout\": \"megatron\", \"ranks\": 128, \"tp\": 8, \"pp\": 4,"
                           " \"ep\": 16, \"etp\": 2}",
                           &sharding),
                     TDM_OK);
    assert_int_equal(sharding.vocabulary_multiple, 8 * 128);
    assert_int_equal(tdm__sharding_stage_index(&sharding, 77), 2);
    assert_int_equal(tdm__sharding_split_index(&sharding, TDM__SPLIT_ATTENTION, 77), 5);
    assert_int_equal(tdm__sharding_split_index(&sharding, TDM__SPLIT_EXPERT, 77), 1);
    assert_int_equal(tdm__sharding_expert_group_index(&sharding, 77), 6);
}

static void layers_are_spread_evenly_or_as_told(void **state)
{
    struct tdm__sharding sharding;
    struct tdm__layer_range range;

    (void)state;
    assert_int_equal(parse("{\"layout\": \"megatron\", \"ranks\": 4, \"pp\": 4}", &sharding),
                     TDM_OK);
    assert_int_equal(tdm__sharding_stage_layers(&sharding, 1, 61, &range), TDM_OK);
    assert_int_equal(range.first, 16);
    assert_int_equal(range.end, 31);
    assert_int_equal(parse("{\"layout\": \"megatron\", \"ranks\": 2, \"pp\": 2,"
                           " \"stage_layers\": [7, 3]}",
                           &sharding),
                     TDM_OK);
    assert_int_equal(tdm__sharding_stage_layers(&sharding, 1, 10, &range), TDM_OK);
    assert_int_equal(range.first, 7);
    assert_int_equal(range.end, 10);
    assert_int_equal(tdm__sharding_stage_layers(&sharding, 1, 11, &range), TDM_E_INVAL);
}

static void invalid_field_is_refused_by_its_name(void **state)
{
    static const struct {
        const char *text;
        tdm_status status;
        const char *name;
    } wrong[] = {
        {"[1]", TDM_E_PROTOCOL, "layout"},
        {"{\"ranks\": 1}", TDM_E_PROTOCOL, "\"layout\" is missing"},
        {"{\"layout\": \"star\"}", TDM_E_PROTOCOL, "star"},
        {"{\"layout\": 1}", TDM_E_PROTOCOL, "wants a string"},
        {"{\"layout\": \"engine\", \"tp\": 0}", TDM_E_PROTOCOL, "\"tp\""},
        {"{\"layout\": \"engine\", \"tp\": 2.5}", TDM_E_PROTOCOL, "\"tp\""},
        {"{\"layout\": \"engine\", \"pp\": 2}", TDM_E_PROTOCOL, "1 fields"},
        {"{\"layout\": \"engine\", \"ranks\": 4, \"tp\": 3}", TDM_E_INVAL, "attention_tp of 3"},
        {"{\"layout\": \"megatron\", \"ranks\": 8, \"ep\": 8, \"etp\": 2}", TDM_E_INVAL, "ep"},
        {"{\"layout\": \"megatron\", \"ranks\": 2, \"pp\": 2, \"stage_layers\": [1]}",
         TDM_E_PROTOCOL, "stage_layers"},
        {"{\"layout\": \"megatron\", \"ranks\": 1, \"dtype\": \"F8_E4M3\"}", TDM_E_INVAL,
         "F8_E4M3"},
        {"{\"layout\": \"fsdp\", \"state\": \"half\"}", TDM_E_PROTOCOL, "state"},
        {"{\"layout\": \"hugging_face\", \"dtype\": \"U8\"}", TDM_E_PROTOCOL, "dtype"},
        {"{\"layout\": \"hugging_face\", \"ranks\": 100000}", TDM_E_INVAL, "100000 ranks"},
    };
    struct tdm__sharding sharding;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(parse(wrong[i].text, &sharding), wrong[i].status);
        assert_non_null(strstr(tdm_error_detail(), wrong[i].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_sizes_default_to_one_or_tp),
        cmocka_unit_test(ranks_are_numbered_as_megatron_does),
        cmocka_unit_test(layers_are_spread_evenly_or_as_told),
        cmocka_unit_test(invalid_field_is_refused_by_its_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
