/* frame_test.c - frame headers survive encoding, and errors name the wrong field. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm__frame call = {
    .kind = TDM__FRAME_CALL,
    .fds_count = 8,
    .method_bytes = 63,
    .payload_bytes = TDM__FRAME_BYTES_MAX - TDM__FRAME_HEADER_BYTES - 63,
    .call_id = 0x0102030405060708,
    .target = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
    .remaining_ms = 123456789012,
    .sequence = 0x1112131415161718,
    .acknowledged = 0x1112131415161717,
    .cpu = 4,
    .concurrency_group = 0xfffefdfc,
};

static const struct tdm__frame tailed = {
    .kind = TDM__FRAME_CALL,
    .method_bytes = 1,
    .payload_bytes = TDM__FRAME_HEAD_BYTES_MAX,
    .tail_bytes = 1000000,
    .call_id = 1,
    .remaining_ms = -1,
};

static const struct tdm__frame item = {
    .kind = TDM__FRAME_ITEM,
    .payload_bytes = 3,
    .call_id = 1,
    .remaining_ms = -1,
    .sequence = 9,
};

static const struct tdm__frame credit = {
    .kind = TDM__FRAME_CREDIT, .call_id = 1, .remaining_ms = -1, .sequence = 9};

static const struct tdm__frame cancel = {
    .kind = TDM__FRAME_CANCEL, .call_id = 1, .remaining_ms = -1, .children = true};

static const struct tdm__frame reply = {
    .kind = TDM__FRAME_REPLY,
    .call_id = 1,
    .status = TDM_E_BUDGET,
    .remaining_ms = -1,
};

static void expect_survival(const struct tdm__frame *frame)
{
    uint8_t header[TDM__FRAME_HEADER_BYTES];
    struct tdm__frame back;

    tdm__frame_encode(frame, header);
    assert_int_equal(tdm__frame_decode(header, &back), TDM_OK);
    assert_int_equal(back.kind, frame->kind);
    assert_int_equal(back.fds_count, frame->fds_count);
    assert_int_equal(back.method_bytes, frame->method_bytes);
    assert_int_equal(back.payload_bytes, frame->payload_bytes);
    assert_int_equal(back.tail_bytes, frame->tail_bytes);
    assert_true(back.call_id == frame->call_id);
    assert_true(tdm__id_equal(&back.target, &frame->target));
    assert_int_equal(back.status, frame->status);
    assert_true(back.remaining_ms == frame->remaining_ms);
    assert_true(back.sequence == frame->sequence);
    assert_true(back.acknowledged == frame->acknowledged);
    assert_int_equal(back.cpu, frame->cpu);
    assert_int_equal(back.concurrency_group, frame->concurrency_group);
    assert_int_equal(back.children, frame->children);
}

static void every_kind_survives(void **state)
{
    (void)state;
    expect_survival(&call);
    expect_survival(&tailed);
    expect_survival(&reply);
    expect_survival(&item);
    expect_survival(&credit);
    expect_survival(&cancel);
}

static void the_bytes_are_little_endian_and_fixed(void **state)
{
    static const uint8_t expected[TDM__FRAME_HEADER_BYTES] = {
        'F',  'T',  'D', 'M', 0, 2, 0,    0,    0,    0,    0,    0,    72,   0,
        0,    0,    1,   0,   0, 0, 0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,   0,   0, 0, 0,    0,    0,    0,    0,    0,    0xac, 0xff,
        0xff, 0xff, 0,   0,   0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t begin_of_tailed[16] = {'F', 'T', 'D',  'M',  0,    1,    0,    1,
                                                0,   0,   0xff, 0xff, 0x88, 0x42, 0x10, 0};
    uint8_t header[TDM__FRAME_HEADER_BYTES];

    (void)state;
    tdm__frame_encode(&reply, header);
    assert_memory_equal(header, expected, sizeof(header));
    tdm__frame_encode(&tailed, header);
    assert_memory_equal(header, begin_of_tailed, sizeof(begin_of_tailed));
}

static void expect_refusal(const struct tdm__frame *frame, size_t offset, uint8_t byte,
                           const char *why)
{
    uint8_t header[TDM__FRAME_HEADER_BYTES];
    struct tdm__frame back;

    tdm__frame_encode(frame, header);
    header[offset] = byte;
    assert_int_equal(tdm__frame_decode(header, &back), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), why));
}

static void every_wrong_field_is_refused_by_name(void **state)
{
    (void)state;
    expect_refusal(&call, 0, 'X', "magic");
    expect_refusal(&call, 4, 3, "reserved byte 3");
    expect_refusal(&call, 5, 6, "kind 6");
    expect_refusal(&call, 6, 9, "number of descriptors 9");
    expect_refusal(&call, 7, 64, "method length of a call 64");
    expect_refusal(&call, 7, 0, "method length of a call 0");
    expect_refusal(&call, 8, 4, "flags 4");
    expect_refusal(&call, 8, 2, "flags of a call 2");
    expect_refusal(&reply, 8, 2, "flags of what is no cancellation 2");
    expect_refusal(&item, 10, 1, "tail of what is no call 2");
    expect_refusal(&item, 10, 3, "bytes before the tail 3");
    expect_refusal(&call, 12, 1, "total bytes 268435457");
    expect_refusal(&reply, 12, 71, "total bytes 71");
    expect_refusal(&reply, 16, 0, "call id 0");
    expect_refusal(&reply, 24, 1, "target of what is no call");
    expect_refusal(&reply, 43, 0x7f, "status");
    expect_refusal(&call, 56, 1, "acknowledged replies of a call");
    expect_refusal(&reply, 56, 1, "sequence 1");
    expect_refusal(&reply, 64, 1, "sequence 0");
    expect_refusal(&item, 56, 0, "sequence 0");
    expect_refusal(&item, 43, 0x80, "status");
    expect_refusal(&credit, 12, 73, "payload bytes of a notice 1");
    expect_refusal(&cancel, 6, 1, "payload bytes of a notice");
    expect_refusal(&call, 55, 0x80, "deadline of a call");
    expect_refusal(&reply, 48, 0, "deadline of what is no call");
    expect_refusal(&reply, 7, 1, "total bytes 72");
}

static void methods_are_short_printable_words(void **state)
{
    char method[64];

    (void)state;
    memset(method, 'm', sizeof(method));
    assert_true(tdm__frame_method_is_valid("block.create", 12));
    assert_true(tdm__frame_method_is_valid(method, 63));
    assert_false(tdm__frame_method_is_valid(method, 64));
    assert_false(tdm__frame_method_is_valid(method, 0));
    assert_false(tdm__frame_method_is_valid("a b", 3));
    assert_false(tdm__frame_method_is_valid("a\0b", 3));
    assert_false(tdm__frame_method_is_valid("\xc3\xa4", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_survives),
        cmocka_unit_test(the_bytes_are_little_endian_and_fixed),
        cmocka_unit_test(every_wrong_field_is_refused_by_name),
        cmocka_unit_test(methods_are_short_printable_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
