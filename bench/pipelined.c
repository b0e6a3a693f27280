/* pipelined.c - compares calls, a thousand of them in flight, with a framed echo that batches
 * freely. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The peer reads and writes as many frames at once as there are. This is what a Unix stream
 * socket can do at best with the bytes of the calls and their replies. Both pairs are pinned to
 * the same cores and run alternately. Every reply is checked. */
#include "measure.h"
#include "peer.h"

#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

enum {
    CALLS_IN_FLIGHT = 1000,
    CALLS_PER_ROUND = 100000,
    GET_TIMEOUT_MS = 10000,
    FRAMES_AT_ONCE = 700
};

/* Method "echo": replies the number in its arguments. */
static tdm_status echo(tdm_call *call, void *self)
{
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    return tdm_call_reply(call, "i", number);
}

TDM_ACTOR_CLASS(echo, .methods = {{"echo", echo}});

/* ---- the bare echo ---------------------------------------------------------------------- */

/* Role "echo": replies to all frames that one read brings with one write. */
static void echo_frames(int fd)
{
    static char in[BENCH_CALL_BYTES * FRAMES_AT_ONCE];
    static char out[BENCH_REPLY_BYTES * FRAMES_AT_ONCE];
    size_t have = 0;

    for (;;) {
        ssize_t got = read(fd, in + have, sizeof(in) - have);
        size_t frames;

        if (got <= 0) {
            return;
        }
        have += (size_t)got;
        frames = have / BENCH_CALL_BYTES;
        for (size_t i = 0; i < frames; i++) {
            memcpy(out + i * BENCH_REPLY_BYTES, in + i * BENCH_CALL_BYTES, BENCH_REPLY_BYTES);
        }
        bench_write(fd, out, frames * BENCH_REPLY_BYTES);
        have -= frames * BENCH_CALL_BYTES;
        memmove(in, in + frames * BENCH_CALL_BYTES, have);
    }
}

/* State of one round of the framed echo. */
struct echo_state {
    /* Number of frames sent. */
    uint64_t sent;
    /* Number of replies received and checked. */
    uint64_t received;
    /* Bytes of incomplete replies in `in`. */
    size_t have;
    /* Received bytes. */
    char in[BENCH_REPLY_BYTES * FRAMES_AT_ONCE];
    /* Frames to send. */
    char out[BENCH_CALL_BYTES * CALLS_IN_FLIGHT];
};

/* Sends as many frames as may be in flight. */
static void send_frames(int fd, struct echo_state *state)
{
    uint64_t room = state->received + CALLS_IN_FLIGHT - state->sent;
    uint64_t left = CALLS_PER_ROUND - state->sent;
    uint64_t frames = room < left ? room : left;

    for (uint64_t i = 0; i < frames; i++) {
        uint64_t number = state->sent + i;

        memcpy(state->out + i * BENCH_CALL_BYTES, &number, sizeof(number));
    }
    if (frames > 0) {
        bench_write(fd, state->out, frames * BENCH_CALL_BYTES);
        state->sent += frames;
    }
}

/* Receives and checks replies; blocks until at least one read succeeds. */
static void receive_frames(int fd, struct echo_state *state)
{
    ssize_t got = read(fd, state->in + state->have, sizeof(state->in) - state->have);
    size_t frames;

    if (got <= 0) {
        TDM_CHECK(tdm_fail(TDM_E_IO, "the echo ended"));
    }
    state->have += (size_t)got;
    frames = state->have / BENCH_REPLY_BYTES;
    for (size_t i = 0; i < frames; i++) {
        uint64_t number;

        memcpy(&number, state->in + i * BENCH_REPLY_BYTES, sizeof(number));
        if (number != state->received++) {
            TDM_CHECK(tdm_fail(TDM_E_PROTOCOL, "a wrong echo"));
        }
    }
    state->have -= frames * BENCH_REPLY_BYTES;
    memmove(state->in, state->in + frames * BENCH_REPLY_BYTES, state->have);
}

/* Runs one round of the framed echo and returns its rate. */
static double echoes_per_second(int fd)
{
    static struct echo_state state;
    double begun = bench_clock_seconds();

    memset(&state, 0, sizeof(state));
    while (state.received < CALLS_PER_ROUND) {
        send_frames(fd, &state);
        receive_frames(fd, &state);
    }
    return CALLS_PER_ROUND / (bench_clock_seconds() - begun);
}

/* ---- the calls -------------------------------------------------------------------------- */

/* Waits for the reply of a call, checks it and releases the reference. */
static void await_reply(tdm_ref *ref, int64_t expected)
{
    int64_t reply;

    TDM_CHECK(tdm_get(ref, GET_TIMEOUT_MS, "i", &reply));
    tdm_ref_release(ref);
    if (reply != expected) {
        TDM_CHECK(
            tdm_fail(TDM_E_PROTOCOL, "sent %lld, got %lld", (long long)expected, (long long)reply));
    }
}

/* Runs one round of calls and returns its rate. */
static double calls_per_second(tdm_actor *actor)
{
    static tdm_ref *refs[CALLS_IN_FLIGHT];
    double begun = bench_clock_seconds();

    for (int64_t i = 0; i < CALLS_PER_ROUND; i++) {
        tdm_ref **place = &refs[i % CALLS_IN_FLIGHT];

        if (i >= CALLS_IN_FLIGHT) {
            await_reply(*place, INT64_MAX - (i - CALLS_IN_FLIGHT));
        }
        TDM_CHECK(tdm_actor_call(actor, "echo", place, "i", INT64_MAX - i));
    }
    for (int64_t i = CALLS_PER_ROUND - CALLS_IN_FLIGHT; i < CALLS_PER_ROUND; i++) {
        await_reply(refs[i % CALLS_IN_FLIGHT], INT64_MAX - i);
    }
    return CALLS_PER_ROUND / (bench_clock_seconds() - begun);
}

/* The two processes that are compared. */
struct pair {
    /* Owned actor that is called. */
    tdm_actor *actor;
    /* Process ID of the actor. */
    pid_t actor_pid;
    /* Owned socket to the peer. */
    int fd;
    /* Process ID of the peer. */
    pid_t peer_pid;
};

/* Measures all rounds with both pinned to `core`. */
static void measure_pair(const struct pair *pair, int core, struct bench_measure *measure)
{
    bench_pin_to_core(pair->actor_pid, core);
    bench_pin_to_core(pair->peer_pid, core);
    (void)calls_per_second(pair->actor);
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        double calls = bench_ours_first(i) ? calls_per_second(pair->actor) : 0;
        double echoes = echoes_per_second(pair->fd);

        if (!bench_ours_first(i)) {
            calls = calls_per_second(pair->actor);
        }
        bench_measure_round(measure, calls, echoes);
    }
    bench_measure_report(measure);
}

int main(int argc, char **argv)
{
    static const struct bench_role roles[] = {{"echo", echo_frames}};
    static struct bench_measure measure = {.name = "calls_pipelined",
                                           .unit = "1/s",
                                           .better = BENCH_MORE_IS_BETTER,
                                           .against = "framed echo that batches",
                                           .at_least = 0.2};
    struct tdm_actor_info info;
    tdm_runtime *runtime;
    struct pair pair;

    bench_peer_run(argc, argv, roles, 1);
    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    bench_parse_arguments(argc, argv);
    TDM_CHECK(tdm_actor_create(runtime, "echo", NULL, &pair.actor, ""));
    TDM_CHECK(tdm_actor_wait_ready(pair.actor, GET_TIMEOUT_MS));
    tdm_actor_describe(pair.actor, &info);
    pair.actor_pid = (pid_t)info.pid;
    pair.fd = bench_peer_pair("echo", &pair.peer_pid);
    bench_pin_to_core(0, 0);
    measure_pair(&pair, bench_cores() > 1 ? 1 : 0, &measure);
    bench_peer_kill(pair.peer_pid);
    (void)close(pair.fd);
    tdm_actor_destroy(pair.actor);
    tdm_runtime_stop(runtime);
    return bench_status();
}
