/* channel_peer.h - a channel in this process, with a scripted daemon and actor as its peer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_CHANNEL_PEER_H
#define TDM_TESTS_SUPPORT_CHANNEL_PEER_H

#include "actors/client/actor_channel.h"

enum { PEER_WAIT_MS = 20000, PEER_HELD_MAX = 512, PEER_RUNS_MAX = 4096 };

/* What the actor received of one call. */
struct peer_run {
    uint32_t incarnation;
    uint64_t sequence;
    int64_t number; /* The argument of the call. */
    bool answered;  /* True: the actor has replied. */
};

/* The daemon and the actor, which the test controls, and the channel under test. */
struct channel_peer {
    tdm_runtime *runtime;
    struct tdm__actor_channel *channel;
    tdm_actor actor;      /* A handle of the actor on the channel. */
    struct tdm__rpc *rpc; /* Endpoint of both the daemon and the actor. */
    struct tdm__conn *daemon_conn;
    struct tdm__conn *actor_conn; /* Newest connection to the actor; NULL while there is none. */
    char address[64];

    uint32_t incarnation;
    bool dead; /* True: the daemon reports that the actor has died. */
    /* Calls to the actor without a reply, in order of arrival. */
    struct tdm__incoming_call *held[PEER_HELD_MAX];
    uint32_t held_count;
    struct peer_run runs[PEER_RUNS_MAX];
    uint32_t runs_count;
    uint32_t repeats_count; /* Number of calls that came again and got a kept reply. */
    uint32_t cancels_count;
    uint32_t family_cancels_count; /* Number of cancellations with TDM_CANCEL_CHILDREN. */
    uint32_t kills_count;
    uint32_t releases_count;
    uint64_t items_taken;  /* Items acknowledged by the latest CREDIT frame. */
    uint64_t acknowledged; /* Highest acknowledged sequence number of this incarnation. */
    uint32_t acknowledge_calls;
};

/* Opens the channel, which is in state CREATING until peer_found(). */
void peer_create(struct channel_peer *peer);
void peer_destroy(struct channel_peer *peer);
void peer_found(struct channel_peer *peer);

/* Set-up and tear-down functions for cmocka, with the peer as the first state. */
int peer_set_up(void **state);
int peer_set_up_found(void **state);
int peer_tear_down(void **state);
/* Defines a test with a new `peer`, a static variable of the test program, before or after
 * peer_found(). */
#define PEER_TEST(test)                                                                            \
    cmocka_unit_test_prestate_setup_teardown(test, peer_set_up, peer_tear_down, &peer)
#define FOUND_PEER_TEST(test)                                                                      \
    cmocka_unit_test_prestate_setup_teardown(test, peer_set_up_found, peer_tear_down, &peer)

/* These run the loop: until nothing happens, until done(arg) is true, or until `count` calls are
 * held. */
void peer_settle(struct channel_peer *peer);
void peer_run_until(struct channel_peer *peer, bool (*done)(void *arg), void *arg);
void peer_hold(struct channel_peer *peer, uint32_t count);

/* Calls the method "m" with a number. The test fails if the call cannot be submitted. */
tdm_ref *peer_call(struct channel_peer *peer, int64_t number,
                   const struct tdm_call_options *options);
/* Waits for the number as a result and releases the reference. */
void peer_expect_result(tdm_ref *ref, int64_t expected);
/* Replies to held call `index` with its number. */
void peer_complete(struct channel_peer *peer, uint32_t index);
/* Replies to held call `index` with any packed value, or with a failure. */
void peer_reply(struct channel_peer *peer, uint32_t index, struct tdm_bytes packed);
void peer_fail(struct channel_peer *peer, uint32_t index, tdm_status status, const char *detail);
/* Cuts the connection. The actor continues and keeps its replies. */
void peer_cut(struct channel_peer *peer);
/* Replaces the actor by its next incarnation. */
void peer_restart(struct channel_peer *peer);
/* Ends the actor; it is not restarted. */
void peer_die(struct channel_peer *peer);

#endif
