/* channel_peer.h - a channel in this process, and a daemon and an actor that follow a script. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_CHANNEL_PEER_H
#define TDM_TESTS_SUPPORT_CHANNEL_PEER_H

#include "actors/client/actor_channel.h"

enum { PEER_WAIT_MS = 20000, PEER_HELD_MAX = 512, PEER_RUNS_MAX = 4096 };

/* What the actor has seen of one call. */
struct peer_run {
    uint32_t incarnation;
    uint64_t sequence;
    int64_t number; /* its argument */
    bool answered;
};

struct channel_peer {
    tdm_runtime *runtime;
    struct tdm__actor_channel *channel;
    tdm_actor actor;      /* a handle on the channel */
    struct tdm__rpc *rpc; /* of daemon and actor both */
    struct tdm__conn *daemon_conn;
    struct tdm__conn *actor_conn; /* the last one; NULL while there is none */
    char address[64];

    uint32_t incarnation;
    bool dead;                                      /* what the daemon says of the actor */
    struct tdm__incoming_call *held[PEER_HELD_MAX]; /* calls of the actor, unanswered, in order */
    uint32_t held_count;
    struct peer_run runs[PEER_RUNS_MAX];
    uint32_t runs_count;
    uint32_t repeats_count; /* calls that came again and were answered from memory */
    uint32_t cancels_count;
    uint32_t family_cancels_count; /* of those with their children */
    uint32_t kills_count;
    uint32_t releases_count;
    uint64_t items_taken;  /* the last credit */
    uint64_t acknowledged; /* in this incarnation */
    uint32_t acknowledge_calls;
};

/* Opens the channel; it is CREATING until peer_found(). */
void peer_create(struct channel_peer *peer);
void peer_destroy(struct channel_peer *peer);
void peer_found(struct channel_peer *peer);

/* For cmocka, with the peer as the first state. */
int peer_set_up(void **state);
int peer_set_up_found(void **state);
int peer_tear_down(void **state);
/* A test with a new `peer`, a static one of the test program: to be found yet, or found. */
#define PEER_TEST(test)                                                                            \
    cmocka_unit_test_prestate_setup_teardown(test, peer_set_up, peer_tear_down, &peer)
#define FOUND_PEER_TEST(test)                                                                      \
    cmocka_unit_test_prestate_setup_teardown(test, peer_set_up_found, peer_tear_down, &peer)

/* Runs the loop: while anything happens; until done(arg); until so many calls are held. */
void peer_settle(struct channel_peer *peer);
void peer_run_until(struct channel_peer *peer, bool (*done)(void *arg), void *arg);
void peer_hold(struct channel_peer *peer, uint32_t count);

/* One call of "m" with a number; fails the test if it cannot be made. */
tdm_ref *peer_call(struct channel_peer *peer, int64_t number,
                   const struct tdm_call_options *options);
/* Waits for its number, and releases it. */
void peer_expect_result(tdm_ref *ref, int64_t expected);
/* The actor answers held call `index` with its number. */
void peer_complete(struct channel_peer *peer, uint32_t index);
/* The same with any packed value, or a failure. */
void peer_reply(struct channel_peer *peer, uint32_t index, struct tdm_bytes packed);
void peer_fail(struct channel_peer *peer, uint32_t index, tdm_status status, const char *detail);
/* The connection is cut; the actor lives on, and remembers. */
void peer_cut(struct channel_peer *peer);
/* The actor's process is another one now. */
void peer_restart(struct channel_peer *peer);
/* It will not come back. */
void peer_die(struct channel_peer *peer);

#endif
