/* protocol_test.c - the version of the protocol covers hellos, frames and messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/messages/messages.h"
#include "runtime/rpc/protocol.h"
#include "runtime/wire/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Returns the version over the first `count` messages, computed independently of protocol.c. */
static uint32_t version_of(uint32_t count, uint64_t hash)
{
    hash = tdm__message_hash_text(tdm__hello_layout, hash);
    hash = tdm__message_hash_text(tdm__frame_layout, hash);
    for (uint32_t i = 0; i < count; i++) {
        hash = tdm__message_hash(tdm__messages_at(i), hash);
    }
    return (uint32_t)(hash ^ (hash >> 32));
}

static void test_version_covers_every_message(void **state)
{
    uint32_t count = 0;

    (void)state;
    while (tdm__messages_at(count) != NULL) {
        count++;
    }
    assert_int_equal(tdm__protocol_version(), version_of(count, TDM__MESSAGE_HASH_START));
    assert_int_not_equal(tdm__protocol_version(), version_of(count - 1, TDM__MESSAGE_HASH_START));
    assert_int_not_equal(tdm__protocol_version(), 0);
}

/* Fails when a hand-written layout changes, which also changes the version. */
static void test_layouts_name_every_field(void **state)
{
    (void)state;
    assert_string_equal(tdm__hello_layout,
                        "char magic[6];uint16_t old_version;uint8_t role;uint8_t kind;"
                        "uint8_t reserved[2];uint32_t version;uint64_t pid;uint8_t id[16];"
                        "uint8_t node[16];uint64_t node_epoch;uint8_t nonce[32];char name[64];");
    assert_string_equal(tdm__frame_layout,
                        "uint32_t magic;uint8_t reserved;uint8_t kind;uint8_t fds_count;"
                        "uint8_t method_bytes;uint16_t flags;uint16_t head_bytes;"
                        "uint32_t total_bytes;uint64_t call_id;uint8_t target[16];"
                        "uint32_t status;uint32_t cpu;uint64_t remaining_ms;uint64_t sequence;"
                        "uint64_t acknowledged;CALL=1;REPLY=2;CANCEL=3;ITEM=4;CREDIT=5;"
                        "WANTS_ITEMS=1;CHILDREN=2;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_covers_every_message),
        cmocka_unit_test(test_layouts_name_every_field),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
