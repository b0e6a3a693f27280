/* completions_test.c - prompts reach the engine and completions come back; malformed messages
 * are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/completions.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TOKENS_MAX = 5, PROMPTS = 3 };

static tdm_document *decoded(tdm_writer *writer)
{
    tdm_document *document;

    TRY(tdm_writer_status(writer));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm_writer_destroy(writer);
    return document;
}

static tdm_document *asked(void)
{
    static const struct tdm_prompt prompts[PROMPTS] = {
        {"first", 0}, {"", UINT64_MAX}, {"third", 42}};
    const struct tdm_sampling sampling = {0.7, TOKENS_MAX};
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__generation_write_request(writer, &sampling, prompts, PROMPTS));
    return decoded(writer);
}

static void prompts_arrive_with_room_for_their_answers(void **state)
{
    tdm_document *document = asked();
    struct tdm__generation generation;

    (void)state;
    TRY(tdm__generation_read_request(tdm_document_root(document), &generation));
    assert_true(generation.sampling.temperature == 0.7);
    assert_int_equal(generation.sampling.tokens_max, TOKENS_MAX);
    assert_int_equal(generation.prompts_count, PROMPTS);
    assert_string_equal(generation.prompts[0].text, "first");
    assert_string_equal(generation.prompts[1].text, "");
    assert_true(generation.prompts[1].seed == UINT64_MAX);
    for (uint32_t i = 0; i < PROMPTS; i++) { /* A sanitizer reports buffers that are too small. */
        struct tdm_completion *completion = &generation.completions[i];

        for (uint32_t t = 0; t < TOKENS_MAX; t++) {
            completion->tokens[t] = (int32_t)(i * 10 + t);
            completion->logprobs[t] = -(float)i;
        }
        memset(completion->text, 'x', completion->text_bytes_max);
    }
    for (uint32_t i = 0; i < PROMPTS; i++) { /* No completion overwrites another one. */
        assert_int_equal(generation.completions[i].tokens[0], i * 10);
        assert_true(generation.completions[i].logprobs[TOKENS_MAX - 1] == -(float)i);
    }
    tdm__generation_fini(&generation);
    tdm_document_destroy(document);
}

static void answers_come_back_as_they_were_written(void **state)
{
    tdm_document *document = asked();
    struct tdm__generation generation;
    struct tdm__generated_message generated;
    struct tdm__completion_message message;
    struct tdm_completion completion;
    int32_t tokens[TOKENS_MAX];
    float logprobs[TOKENS_MAX];
    tdm_document *reply;
    tdm_writer *writer;

    (void)state;
    TRY(tdm__generation_read_request(tdm_document_root(document), &generation));
    generation.completions[1].tokens_count = 2;
    generation.completions[1].tokens[0] = -7;
    generation.completions[1].tokens[1] = 8;
    generation.completions[1].logprobs[1] = -0.25F;
    generation.completions[1].finished = 1;
    (void)snprintf(generation.completions[1].text, 8, "yes");
    TRY(tdm_writer_create(&writer));
    TRY(tdm__generation_write_reply(writer, &generation, 17));
    reply = decoded(writer);
    TRY(tdm__generated_decode(tdm_document_root(reply), &generated));
    assert_int_equal(generated.version, 17);
    tdm__message_list_read(&generated.completions, 1, &message, sizeof(message));
    TRY(tdm__completion_read(&message, TOKENS_MAX, tokens, logprobs, &completion));
    assert_int_equal(completion.tokens_count, 2);
    assert_ptr_equal(completion.tokens, tokens);
    assert_int_equal(tokens[0], -7);
    assert_int_equal(tokens[1], 8);
    assert_true(logprobs[1] == -0.25F);
    assert_string_equal(completion.text, "yes");
    assert_int_equal(completion.finished, 1);
    tdm__message_list_read(&generated.completions, 2, &message, sizeof(message));
    TRY(tdm__completion_read(&message, TOKENS_MAX, tokens, logprobs, &completion));
    assert_int_equal(completion.tokens_count, 0);
    assert_string_equal(completion.text, "");
    tdm_document_destroy(reply);
    tdm__generation_fini(&generation);
    tdm_document_destroy(document);
}

static void engine_that_wrote_too_much_is_reported(void **state)
{
    tdm_document *document = asked();
    struct tdm__generation generation;
    tdm_writer *writer;

    (void)state;
    TRY(tdm__generation_read_request(tdm_document_root(document), &generation));
    generation.completions[2].tokens_count = TOKENS_MAX + 1;
    TRY(tdm_writer_create(&writer));
    assert_int_equal(tdm__generation_write_reply(writer, &generation, 1), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "answer 2"));
    tdm_writer_destroy(writer);
    tdm__generation_fini(&generation);
    tdm_document_destroy(document);
}

static tdm_status read_hostile(const char *format, ...)
{
    struct tdm__generation generation = {.prompts_count = 0};
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;
    va_list args;

    TRY(tdm_writer_create(&writer));
    va_start(args, format);
    TRY(tdm_pack_va(writer, format, args));
    va_end(args);
    document = decoded(writer);
    status = tdm__generation_read_request(tdm_document_root(document), &generation);
    if (status == TDM_OK) {
        tdm__generation_fini(&generation);
    }
    tdm_document_destroy(document);
    return status;
}

static void hostile_questions_are_refused(void **state)
{
    (void)state;
    TRY(read_hostile("fu()", 0.0, (uint64_t)1));
    TRY(read_hostile("fu((su))", 1.0, (uint64_t)1, "p", (uint64_t)0));
    assert_int_equal(read_hostile(""), TDM_E_PROTOCOL);
    assert_int_equal(read_hostile("su()", "hot", (uint64_t)1), TDM_E_PROTOCOL);
    assert_int_equal(read_hostile("fu()", 0.0, (uint64_t)0), TDM_E_LIMIT);
    assert_int_equal(read_hostile("fu()", 0.0, UINT64_MAX), TDM_E_LIMIT);
    assert_int_equal(read_hostile("fu()", (double)NAN, (uint64_t)1), TDM_E_INVAL);
    assert_int_equal(read_hostile("fu()", -1.0, (uint64_t)1), TDM_E_INVAL);
    assert_int_equal(read_hostile("fu((nu))", 0.0, (uint64_t)1, (uint64_t)0), TDM_E_PROTOCOL);
    assert_int_equal(read_hostile("fu((s))", 0.0, (uint64_t)1, "p"), TDM_E_PROTOCOL);
    assert_int_equal(read_hostile("fu(u)", 0.0, (uint64_t)1, (uint64_t)1), TDM_E_PROTOCOL);
}

static tdm_status read_answer(size_t tokens_bytes, size_t logprobs_bytes, const char *text)
{
    static const char bytes[64];
    struct tdm__generated_message generated;
    struct tdm__completion_message message;
    struct tdm_completion completion;
    int32_t tokens[TOKENS_MAX];
    float logprobs[TOKENS_MAX];
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "u((bbs?))", (uint64_t)1, bytes, tokens_bytes, bytes, logprobs_bytes, text,
                 1));
    document = decoded(writer);
    status = tdm__generated_decode(tdm_document_root(document), &generated);
    if (status == TDM_OK) {
        assert_int_equal(generated.completions.count, 1);
        tdm__message_list_read(&generated.completions, 0, &message, sizeof(message));
        status = tdm__completion_read(&message, TOKENS_MAX, tokens, logprobs, &completion);
    }
    tdm_document_destroy(document);
    return status;
}

static void hostile_answers_are_refused(void **state)
{
    (void)state;
    TRY(read_answer(0, 0, ""));
    TRY(read_answer(20, 20, "full"));
    assert_int_equal(read_answer(24, 24, "one too many"), TDM_E_PROTOCOL);
    assert_int_equal(read_answer(8, 4, "x"), TDM_E_PROTOCOL);
    assert_int_equal(read_answer(7, 7, "x"), TDM_E_PROTOCOL);
    assert_int_equal(read_answer(4, 4, NULL), TDM_E_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_arrive_with_room_for_their_answers),
        cmocka_unit_test(answers_come_back_as_they_were_written),
        cmocka_unit_test(engine_that_wrote_too_much_is_reported),
        cmocka_unit_test(hostile_questions_are_refused),
        cmocka_unit_test(hostile_answers_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
