/* channel_peer.c - a channel in this process, and a daemon and an actor that follow a script. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/channel_peer.h"

#include "actors/runtime_create.h"
#include "runtime/clock.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the daemon ------------------------------------------------------------------------- */

static void describe(struct channel_peer *peer, tdm_writer *writer)
{
    tdm_write_array(writer, 8);
    tdm_write_int(writer, 1000 + peer->incarnation);
    tdm_write_string(writer, peer->runtime->node_id);
    tdm_write_array(writer, 0);
    tdm_write_string(writer, peer->address);
    tdm_write_nil(writer);
    tdm_write_uint(writer, peer->incarnation);
    tdm_write_bytes(writer, NULL, 0); /* No metadata. */
    tdm_write_nil(writer);            /* No end of an earlier process. */
}

static void serve_daemon(struct channel_peer *peer, struct tdm__incoming_call *incoming)
{
    tdm_writer *writer;

    if (strcmp(tdm__incoming_method(incoming), "actor.kill") == 0) {
        peer->kills_count++;
        tdm__incoming_reply_pack(incoming, "");
        return;
    }
    if (strcmp(tdm__incoming_method(incoming), "actor.release") == 0) {
        peer->releases_count++;
        tdm__incoming_reply_pack(incoming, "");
        return;
    }
    if (strcmp(tdm__incoming_method(incoming), "actor.why") == 0) {
        tdm__incoming_reply_pack(incoming, "s", "the script says so");
        return;
    }
    assert_string_equal(tdm__incoming_method(incoming), "actor.fate");
    if (peer->dead) {
        tdm__incoming_fail(incoming, TDM_E_ACTOR_DIED, "actor m died: by the script\nlast words");
        return;
    }
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    describe(peer, writer);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

/* ---- the actor -------------------------------------------------------------------------- */

static struct peer_run *find_run(struct channel_peer *peer, uint64_t sequence)
{
    for (uint32_t i = 0; i < peer->runs_count; i++) {
        if (peer->runs[i].incarnation == peer->incarnation && peer->runs[i].sequence == sequence) {
            return &peer->runs[i];
        }
    }
    return NULL;
}

struct tag {
    struct channel_peer *peer;
    struct tdm__incoming_call *incoming;
};
static struct tag tags[PEER_RUNS_MAX * 4];
static uint32_t tags_count;

static void unhold(struct channel_peer *peer, uint32_t index)
{
    peer->held_count--;
    memmove(peer->held + index, peer->held + index + 1,
            (peer->held_count - index) * sizeof(struct tdm__incoming_call *));
}

static void on_notice(void *arg, enum tdm__call_notice notice, uint64_t items_taken)
{
    struct tag *tag = arg;
    struct channel_peer *peer = tag->peer;

    peer->cancels_count += notice == TDM__NOTICE_CANCEL ? 1 : 0;
    peer->family_cancels_count += notice == TDM__NOTICE_CANCEL_CHILDREN ? 1 : 0;
    peer->items_taken = notice == TDM__NOTICE_CREDIT ? items_taken : peer->items_taken;
    if (notice != TDM__NOTICE_CLOSED) {
        return;
    }
    for (uint32_t i = 0; i < peer->held_count; i++) {
        if (peer->held[i] == tag->incoming) {
            unhold(peer, i);
            break;
        }
    }
    tdm__incoming_fail(tag->incoming, TDM_E_CLOSED, "goes nowhere");
}

static void answer(struct tdm__incoming_call *incoming, struct peer_run *run)
{
    run->answered = true;
    tdm__incoming_reply_pack(incoming, "i", run->number);
}

static void note_acknowledged(struct channel_peer *peer, const struct tdm__incoming_call *incoming)
{
    uint64_t acknowledged = tdm__incoming_acknowledged(incoming);

    peer->acknowledged = acknowledged > peer->acknowledged ? acknowledged : peer->acknowledged;
}

static void serve_actor(struct channel_peer *peer, struct tdm__incoming_call *incoming)
{
    uint64_t sequence = tdm__incoming_sequence(incoming);
    struct peer_run *run = find_run(peer, sequence);
    struct tag *tag = &tags[tags_count++ % (PEER_RUNS_MAX * 4)];
    const tdm_value *value;
    int64_t number;

    if (sequence == 0) {
        assert_string_equal(tdm__incoming_method(incoming), TDM__ACKNOWLEDGE_METHOD);
        peer->acknowledge_calls++;
        note_acknowledged(peer, incoming);
        tdm__incoming_reply_pack(incoming, "");
        return;
    }
    assert_true(sequence > peer->acknowledged); /* Otherwise its reply was forgotten already. */
    note_acknowledged(peer, incoming);
    assert_int_equal(tdm__incoming_value(incoming, &value), TDM_OK);
    assert_int_equal(tdm_unpack(value, "i", &number), TDM_OK);
    if (run == NULL) {
        assert_true(peer->runs_count < PEER_RUNS_MAX);
        run = &peer->runs[peer->runs_count++];
        *run = (struct peer_run){
            .incarnation = peer->incarnation, .sequence = sequence, .number = number};
    } else {
        assert_int_equal(run->number, number);
        peer->repeats_count++;
        if (run->answered) {
            answer(incoming, run);
            return;
        }
    }
    assert_true(peer->held_count < PEER_HELD_MAX);
    peer->held[peer->held_count++] = incoming;
    *tag = (struct tag){peer, incoming};
    tdm__incoming_on_notice(incoming, on_notice, tag);
}

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct channel_peer *peer = arg;

    if (tdm__id_equal(tdm__incoming_target(incoming), &peer->channel->id)) {
        serve_actor(peer, incoming);
    } else {
        serve_daemon(peer, incoming);
    }
}

static struct peer_run *run_of(struct channel_peer *peer, uint32_t index)
{
    return find_run(peer, tdm__incoming_sequence(peer->held[index]));
}

void peer_expect_result(tdm_ref *ref, int64_t expected)
{
    int64_t number = -1;

    assert_int_equal(tdm_get(ref, PEER_WAIT_MS, "i", &number), TDM_OK);
    assert_int_equal(number, expected);
    tdm_ref_release(ref);
}

void peer_complete(struct channel_peer *peer, uint32_t index)
{
    struct tdm__incoming_call *incoming = peer->held[index];
    struct peer_run *run = run_of(peer, index);

    unhold(peer, index);
    answer(incoming, run);
}

void peer_reply(struct channel_peer *peer, uint32_t index, struct tdm_bytes packed)
{
    struct tdm__incoming_call *incoming = peer->held[index];

    run_of(peer, index)->answered = true;
    unhold(peer, index);
    tdm__incoming_reply(incoming, packed, NULL, 0);
}

void peer_fail(struct channel_peer *peer, uint32_t index, tdm_status status, const char *detail)
{
    struct tdm__incoming_call *incoming = peer->held[index];

    run_of(peer, index)->answered = true;
    unhold(peer, index);
    tdm__incoming_fail(incoming, status, detail);
}

static void fail_held(struct channel_peer *peer)
{
    while (peer->held_count > 0) {
        tdm__incoming_fail(peer->held[--peer->held_count], TDM_E_CANCELED, "over");
    }
}

/* A connection that is not made yet will find what is there then. */
void peer_cut(struct channel_peer *peer)
{
    if (peer->actor_conn != NULL) {
        struct tdm__conn *conn = peer->actor_conn;

        peer->actor_conn = NULL;
        tdm__conn_close(conn);
        fail_held(peer); /* The peer drops the reply. */
    }
}

void peer_restart(struct channel_peer *peer)
{
    peer_cut(peer);
    peer->incarnation++;
    peer->acknowledged = 0;
}

void peer_die(struct channel_peer *peer)
{
    peer->dead = true;
    peer_cut(peer);
}

/* ---- life ------------------------------------------------------------------------------- */

static void on_peer_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct channel_peer *peer = arg;

    (void)reason;
    (void)detail;
    if (peer->actor_conn == conn) {
        peer->actor_conn = NULL;
    }
}

/* The first one is the daemon's. */
static void on_accepted(void *arg, struct tdm__conn *conn)
{
    struct channel_peer *peer = arg;

    tdm__conn_on_closed(conn, on_peer_closed, peer);
    if (peer->daemon_conn == NULL) {
        peer->daemon_conn = conn;
    } else {
        peer->actor_conn = conn;
    }
}

void peer_create(struct channel_peer *peer)
{
    static uint32_t peers_count;
    struct tdm__peer_identity self = pair_identity("caller");
    struct tdm__peer_identity other = pair_identity("peer");
    struct tdm__conn *daemon;
    struct tdm__id id;

    memset(peer, 0, sizeof(*peer));
    tags_count = 0;
    assert_int_equal(tdm__runtime_create(&self, pair_token, &peer->runtime), TDM_OK);
    assert_int_equal(tdm__rpc_create(peer->runtime->loop, &other, pair_token, &peer->rpc), TDM_OK);
    (void)snprintf(peer->address, sizeof(peer->address), "unix:/tmp/channel_peer.%d.%u",
                   (int)getpid(), peers_count++);
    assert_int_equal(tdm__rpc_listen(peer->rpc, peer->address, NULL, 0), TDM_OK);
    tdm__rpc_set_call_handler(peer->rpc, serve, peer);
    tdm__rpc_on_accepted(peer->rpc, on_accepted, peer);
    assert_int_equal(tdm__rpc_connect(peer->runtime->rpc, peer->address, &daemon), TDM_OK);
    tdm__runtime_set_daemon(peer->runtime, daemon);
    tdm__runtime_set_current(peer->runtime);
    (void)snprintf(peer->runtime->node_id, sizeof(peer->runtime->node_id), "here");
    assert_int_equal(tdm__id_generate(&id), TDM_OK);
    assert_int_equal(tdm__actor_channel_create(peer->runtime, &id, "m", "tester", &peer->channel),
                     TDM_OK);
    peer->actor.channel = peer->channel;
    peer->actor.runtime = peer->channel->runtime;
}

/* The runtime's end takes the loop with it, so the other endpoint goes first. */
void peer_destroy(struct channel_peer *peer)
{
    fail_held(peer);
    tdm__rpc_set_call_handler(peer->rpc, NULL, NULL);
    tdm__conn_on_closed(peer->runtime->daemon, NULL, NULL);
    tdm__rpc_destroy(peer->rpc);
    tdm__runtime_destroy(peer->runtime);
}

void peer_found(struct channel_peer *peer)
{
    tdm_document *document;
    tdm_writer *writer;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    describe(peer, writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    tdm__actor_channel_connect(peer->channel, tdm_document_root(document));
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

int peer_set_up(void **state)
{
    peer_create(*state);
    return 0;
}

int peer_set_up_found(void **state)
{
    peer_create(*state);
    peer_found(*state);
    return 0;
}

int peer_tear_down(void **state)
{
    peer_destroy(*state);
    return 0;
}

/* ---- running ---------------------------------------------------------------------------- */

void peer_settle(struct channel_peer *peer)
{
    for (int i = 0; i < 20; i++) {
        (void)tdm__loop_run(peer->runtime->loop, NULL, NULL, tdm__deadline_after(0));
    }
}

void peer_run_until(struct channel_peer *peer, bool (*done)(void *arg), void *arg)
{
    assert_int_equal(
        tdm__loop_run(peer->runtime->loop, done, arg, tdm__deadline_after(PEER_WAIT_MS)), TDM_OK);
}

struct goal {
    const struct channel_peer *peer;
    uint32_t count;
};

static bool holds_enough(void *arg)
{
    const struct goal *goal = arg;

    return goal->peer->held_count >= goal->count;
}

void peer_hold(struct channel_peer *peer, uint32_t count)
{
    struct goal goal = {peer, count};

    peer_run_until(peer, holds_enough, &goal);
}

tdm_ref *peer_call(struct channel_peer *peer, int64_t number,
                   const struct tdm_call_options *options)
{
    tdm_ref *ref;

    assert_int_equal(tdm_actor_call_with(&peer->actor, "m", options, &ref, "i", number), TDM_OK);
    return ref;
}
