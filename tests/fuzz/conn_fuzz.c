/* conn_fuzz.c - an authenticated peer that sends anything: calls, replies, items, cancels and
 * credit that match nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/rpc.h"
#include "tests/fuzz/fuzz.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELD_MAX = 64, ROUNDS_MAX = 200 };

static const uint8_t token[TDM__TOKEN_BYTES] = {1};
static struct tdm__incoming_call *held[HELD_MAX];
static uint32_t held_count;

static void on_notice(void *arg, enum tdm__call_notice notice, uint64_t items_taken)
{
    (void)arg;
    (void)notice;
    (void)items_taken;
}

/* Replies to every other call at once, after one item if the caller accepts items. */
static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    const tdm_value *value;

    (void)arg;
    (void)tdm__incoming_value(incoming, &value);
    if (tdm__incoming_wants_items(incoming)) {
        (void)tdm__incoming_send_item(incoming, 1, (struct tdm_bytes){"\x90", 1}, NULL, 0);
    }
    if (held_count < HELD_MAX && tdm__incoming_call_id(incoming) % 2 == 0) {
        tdm__incoming_on_notice(incoming, on_notice, NULL);
        held[held_count++] = incoming;
        return;
    }
    tdm__incoming_reply_pack(incoming, "i", (int64_t)1);
}

static void on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    tdm_document *document;

    ++*(uint32_t *)arg;
    if (reply->status == TDM_OK && tdm__rpc_reply_document(reply, &document) == TDM_OK) {
        tdm_document_destroy(document);
    }
}

static void on_item(void *arg, uint64_t index, struct tdm__rpc_reply *item)
{
    (void)arg;
    (void)index;
    (void)item;
}

static bool both_are_open(void *arg)
{
    struct tdm__conn **conns = arg;

    return tdm__conn_is_open(conns[0]) && tdm__conn_is_open(conns[1]);
}

static void feed(struct tdm__loop *loop, struct tdm__conn *victim, int fd, const uint8_t *data,
                 size_t size)
{
    ssize_t sent = write(fd, data, size > 100000 ? 100000 : size);

    for (int i = 0; sent > 0 && i < ROUNDS_MAX && victim->state == CONN_OPEN; i++) {
        int left = 0;

        (void)tdm__loop_run(loop, NULL, NULL, tdm__clock_ms());
        if (victim->state == CONN_OPEN && ioctl(victim->fd, FIONREAD, &left) == 0 && left == 0 &&
            victim->input_begin == victim->input_end) {
            break;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tdm__rpc_request request = {
        .method = "m", .packed = {"\x90", 1}, .deadline_ms = TDM__NEVER, .on_item = on_item};
    struct tdm__peer_identity self = {.kind = TDM__PEER_DRIVER, .pid = 1, .name = "fuzz"};
    struct tdm__rpc *rpcs[2];
    struct tdm__conn *conns[2];
    struct tdm__loop *loop;
    uint32_t replies_count = 0;
    int fds[2];

    fuzz_be_quiet();
    TDM_ASSERT(tdm__loop_create(&loop) == TDM_OK);
    TDM_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    for (int i = 0; i < 2; i++) {
        TDM_ASSERT(tdm__rpc_create(loop, &self, token, &rpcs[i]) == TDM_OK);
        TDM_ASSERT(tdm__rpc_adopt(rpcs[i], fds[i], i == 1, &conns[i]) == TDM_OK);
        tdm__conn_retain(conns[i]);
    }
    tdm__rpc_set_call_handler(rpcs[1], serve, NULL);
    TDM_ASSERT(tdm__loop_run(loop, both_are_open, conns, tdm__deadline_after(5000)) == TDM_OK);
    /* These are calls 1 and 2 of the victim. */
    for (int i = 0; i < 2; i++) {
        TDM_ASSERT(tdm__conn_call(conns[1], &request, on_reply, &replies_count, NULL) == TDM_OK);
    }
    feed(loop, conns[1], conns[0]->fd, data, size);
    while (held_count > 0) {
        tdm__incoming_fail(held[--held_count], TDM_E_CANCELED, "over");
    }
    for (int i = 0; i < 2; i++) {
        tdm__rpc_destroy(rpcs[i]);
        tdm__conn_release(conns[i]);
    }
    /* Each call completes exactly once, whatever arrived. */
    TDM_ASSERT(replies_count == 2);
    tdm__loop_destroy(loop);
    return 0;
}
