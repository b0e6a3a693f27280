/* train_batch_test.c - batches and metrics arrive as they were sent, or are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/train_batch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static tdm_document *decoded(tdm_writer *writer)
{
    tdm_document *document;

    TRY(tdm_writer_status(writer));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm_writer_destroy(writer);
    return document;
}

static void batch_arrives_as_it_was_sent(void **state)
{
    static const int32_t tokens[] = {INT32_MIN, -1, 7};
    static const float logprobs[] = {-0.5F, -1e30F, 0};
    static const float rewards[] = {0, 1, -1};
    const struct tdm_sample samples[] = {
        {.group = 3,
         .prompt = "12",
         .answer = "<21>",
         .tokens = tokens,
         .logprobs = logprobs,
         .token_rewards = rewards,
         .reward = 0.25F,
         .tokens_count = 3,
         .weight_version = 1ULL << 40},
        {.group = 4,
         .prompt = "",
         .answer = "nothing said",
         .tokens = tokens,
         .logprobs = logprobs,
         .token_rewards = rewards},
        {.group = 5, .prompt = "supervised", .answer = "x"},
    };
    const struct tdm_batch sent = {
        .supervised = 1, .step = 9, .steps_count = 10, .samples = samples, .samples_count = 3};
    struct tdm_batch batch;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm__batch_write(writer, &sent));
    document = decoded(writer);
    TRY(tdm__batch_read(tdm_document_root(document), &batch));
    assert_int_equal(batch.supervised, 1);
    assert_int_equal(batch.step, 9);
    assert_int_equal(batch.steps_count, 10);
    assert_int_equal(batch.samples_count, 3);
    assert_int_equal(batch.samples[0].group, 3);
    assert_string_equal(batch.samples[0].prompt, "12");
    assert_string_equal(batch.samples[0].answer, "<21>");
    assert_int_equal(batch.samples[0].tokens_count, 3);
    assert_memory_equal(batch.samples[0].tokens, tokens, sizeof(tokens));
    assert_memory_equal(batch.samples[0].logprobs, logprobs, sizeof(logprobs));
    assert_memory_equal(batch.samples[0].token_rewards, rewards, sizeof(rewards));
    assert_true(batch.samples[0].reward == 0.25F);
    assert_true(batch.samples[0].weight_version == 1ULL << 40);
    assert_int_equal(batch.samples[1].tokens_count, 0);
    assert_non_null(batch.samples[1].tokens);
    assert_null(batch.samples[2].tokens);
    assert_null(batch.samples[2].logprobs);
    assert_null(batch.samples[2].token_rewards);
    tdm__batch_fini(&batch);
    tdm_document_destroy(document);
}

static void empty_batch_is_a_batch(void **state)
{
    const struct tdm_batch sent = {.step = 1, .steps_count = 1};
    struct tdm_batch batch;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm__batch_write(writer, &sent));
    document = decoded(writer);
    TRY(tdm__batch_read(tdm_document_root(document), &batch));
    assert_int_equal(batch.samples_count, 0);
    tdm__batch_fini(&batch);
    tdm_document_destroy(document);
}

/* One good sample, then one with these arrays. */
static void assert_refused(uint64_t tokens_count, size_t tokens_bytes, size_t logprobs_bytes,
                           size_t rewards_bytes)
{
    static const char bytes[64];
    struct tdm_batch batch = {.samples_count = 77};
    tdm_document *document;
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "?uu((ussubbbfu)(ussubbbfu))", 0, (uint64_t)1, (uint64_t)2, (uint64_t)0,
                 "p", "a", (uint64_t)1, bytes, (size_t)4, bytes, (size_t)4, bytes, (size_t)4, 0.0,
                 (uint64_t)1, (uint64_t)0, "p", "a", tokens_count, bytes, tokens_bytes, bytes,
                 logprobs_bytes, bytes, rewards_bytes, 0.0, (uint64_t)1));
    document = decoded(writer);
    assert_int_equal(tdm__batch_read(tdm_document_root(document), &batch), TDM_E_PROTOCOL);
    assert_true(strstr(tdm_error_detail(), "sample 1") != NULL ||
                strstr(tdm_error_detail(), "samples[1]") != NULL);
    assert_int_equal(batch.samples_count, 77); /* The output is written only on success. */
    tdm_document_destroy(document);
}

static void arrays_of_other_lengths_than_the_tokens_are_refused(void **state)
{
    (void)state;
    assert_refused(2, 4, 8, 8);
    assert_refused(2, 8, 12, 8);
    assert_refused(2, 8, 8, 7);
    assert_refused(0, 4, 0, 0);
    assert_refused(UINT32_MAX, 8, 8, 8);
    assert_refused(1ULL << 32, 0, 0, 0); /* not 0 */
    assert_refused(UINT64_MAX, 0, 0, 0);
}

static void values_that_are_no_batch_are_refused(void **state)
{
    static const char *const formats[] = {
        "", "nnn", "nnn(n)", "nnn(())", "nnn(nnnnnnnnn)", "nnnnn", "nnn((nnnnnnnnnn))"};
    struct tdm_batch batch;

    (void)state;
    for (uint32_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        tdm_document *document;
        tdm_writer *writer;

        TRY(tdm_writer_create(&writer));
        TRY(tdm_pack(writer, formats[i]));
        document = decoded(writer);
        assert_int_equal(tdm__batch_read(tdm_document_root(document), &batch), TDM_E_PROTOCOL);
        tdm_document_destroy(document);
    }
    assert_int_equal(tdm__batch_read(NULL, &batch), TDM_E_PROTOCOL);
}

/* A number, or a text, where an array belongs; of no tokens, so that the lengths agree. */
static void array_that_is_none_is_refused(void **state)
{
    struct tdm_batch batch;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "?uu((ussusnnfu))", 0, (uint64_t)1, (uint64_t)2, (uint64_t)0, "p", "a",
                 (uint64_t)0, "", 0.0, (uint64_t)1));
    document = decoded(writer);
    assert_int_equal(tdm__batch_read(tdm_document_root(document), &batch), TDM_E_PROTOCOL);
    tdm_document_destroy(document);
}

static void metrics_arrive_and_are_found_by_name(void **state)
{
    const struct tdm_metrics sent = {.count = 2, .entries = {{"loss", 1.5}, {"kl", -0.0}}};
    struct tdm_metrics metrics;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm__train_metrics_write(writer, &sent));
    document = decoded(writer);
    TRY(tdm__train_metrics_read(tdm_document_root(document), &metrics));
    assert_int_equal(metrics.count, 2);
    assert_true(tdm__train_metrics_find(&metrics, "loss", 7) == 1.5);
    assert_true(tdm__train_metrics_find(&metrics, "kl", 7) == 0);
    assert_true(tdm__train_metrics_find(&metrics, "los", 7) == 7);
    tdm_document_destroy(document);
}

static void metric_that_is_not_finite_is_named(void **state)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (uint32_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const struct tdm_metrics sent = {
            .count = 2,
            .entries = {{.name = "loss", .value = 1}, {.name = "kl", .value = values[i]}}};
        struct tdm_metrics metrics = {.count = 99};
        tdm_document *document;
        tdm_writer *writer;

        TRY(tdm_writer_create(&writer));
        TRY(tdm__train_metrics_write(writer, &sent));
        document = decoded(writer);
        assert_int_equal(tdm__train_metrics_read(tdm_document_root(document), &metrics),
                         TDM_E_TYPE);
        assert_non_null(strstr(tdm_error_detail(), "the metric kl is"));
        assert_int_equal(metrics.count, 99);
        tdm_document_destroy(document);
    }
}

static void more_metrics_than_there_may_be_are_refused(void **state)
{
    const struct tdm_metrics sent = {.count = TDM_METRICS_MAX + 1};
    struct tdm_metrics metrics;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    assert_int_equal(tdm__train_metrics_write(writer, &sent), TDM_E_LIMIT);
    tdm_write_array(writer, 2 * (TDM_METRICS_MAX + 1));
    for (uint32_t i = 0; i < 2 * (TDM_METRICS_MAX + 1); i++) {
        tdm_write_nil(writer);
    }
    document = decoded(writer);
    assert_int_equal(tdm__train_metrics_read(tdm_document_root(document), &metrics),
                     TDM_E_PROTOCOL);
    tdm_document_destroy(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_arrives_as_it_was_sent),
        cmocka_unit_test(empty_batch_is_a_batch),
        cmocka_unit_test(arrays_of_other_lengths_than_the_tokens_are_refused),
        cmocka_unit_test(values_that_are_no_batch_are_refused),
        cmocka_unit_test(array_that_is_none_is_refused),
        cmocka_unit_test(metrics_arrive_and_are_found_by_name),
        cmocka_unit_test(metric_that_is_not_finite_is_named),
        cmocka_unit_test(more_metrics_than_there_may_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
