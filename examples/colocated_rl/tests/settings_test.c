/* settings_test.c - what the job file says, and what it may not say. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/settings.h"

#include "examples/colocated_rl/tests/support/tiny.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void the_default_is_the_recommended_model(void **state)
{
    struct settings settings;
    struct model model;
    tdm_config *config;

    (void)state;
    assert_int_equal(tdm_config_parse("{}", 2, "none", &config), TDM_OK);
    assert_int_equal(settings_read(&settings, config), TDM_OK);
    assert_int_equal(model_init(&model, &settings.shape, 1), TDM_OK);
    assert_int_equal(model.elements, 124224);
    assert_int_equal(settings.shape.vocab_size, 15);
    assert_true(settings.grpo.eps_clip_high == settings.grpo.eps_clip);
    model_fini(&model);
    tdm_config_destroy(config);
}

static void refuse(const char *assignment, tdm_status status, const char *detail)
{
    const char *const overrides[] = {assignment, NULL};
    tdm_config *config = tiny_config(overrides);
    struct settings settings;

    assert_int_equal(settings_read(&settings, config), status);
    if (strstr(tdm_error_detail(), detail) == NULL) {
        fail_msg("\"%s\" does not tell \"%s\"", tdm_error_detail(), detail);
    }
    tdm_config_destroy(config);
}

static void settings_out_of_range_are_refused_by_name(void **state)
{
    (void)state;
    refuse("model.hidden_size=0", TDM_E_INVAL, "model.hidden_size");
    refuse("model.vocab_size=8", TDM_E_INVAL, "9");
    refuse("model.attention_bias=true", TDM_E_UNSUPPORTED, "attention_bias");
    refuse("model.model_type=llama", TDM_E_UNSUPPORTED, "llama");
    refuse("trainer.lr=-1", TDM_E_INVAL, "trainer.lr");
    refuse("trainer.lr=fast", TDM_E_TYPE, "trainer.lr");
    refuse("rollout.temperature=0", TDM_E_INVAL, "rollout.temperature");
    refuse("rollout.rollout_max_prompt_len=13", TDM_E_INVAL, "max_position_embeddings is 16");
    refuse("trainer.max_tokens_per_gpu=9", TDM_E_INVAL, "can take 10 tokens");
    refuse("engine.max_total_tokens=9", TDM_E_INVAL, "can take 10 tokens");
    refuse("model.path=/nonexistent", TDM_E_NOT_FOUND, "/nonexistent/config.json");
}

static void the_rate_rises_then_falls_to_its_floor(void **state)
{
    const struct schedule schedule = {2e-3, 2e-4, 5};

    (void)state;
    assert_true(fabs(schedule_lr(&schedule, 1, 100) - 0.2 * (2e-3 - 1.8e-3 * 0.01)) < 1e-12);
    assert_true(fabs(schedule_lr(&schedule, 50, 100) - 1.1e-3) < 1e-12);
    assert_true(fabs(schedule_lr(&schedule, 100, 100) - 2e-4) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_is_the_recommended_model),
        cmocka_unit_test(settings_out_of_range_are_refused_by_name),
        cmocka_unit_test(the_rate_rises_then_falls_to_its_floor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
