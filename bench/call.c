/* call.c - compares a synchronous call of an actor with a bare ping-pong of the same bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The other side is what a Unix stream socket can do at best without polling. Two processes
 * block in read(2) and send as many bytes each way as a call and its reply have on the wire.
 * Both pairs are pinned to the same cores and run alternately. */
#include "measure.h"
#include "peer.h"

#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

enum {
    CALLS_PER_ROUND = 2000,
    WARM_CALLS = 500,
    GET_TIMEOUT_MS = 10000,
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

/* Role "pong": replies to each frame with a frame. */
static void pong(int fd)
{
    char buffer[BENCH_CALL_BYTES] = {0};

    for (;;) {
        bench_read(fd, buffer, BENCH_CALL_BYTES);
        bench_write(fd, buffer, BENCH_REPLY_BYTES);
    }
}

/* Returns the seconds of one ping-pong. */
static double ping_once(int fd)
{
    char buffer[BENCH_CALL_BYTES] = {0};
    double begun = bench_clock_seconds();

    bench_write(fd, buffer, BENCH_CALL_BYTES);
    bench_read(fd, buffer, BENCH_REPLY_BYTES);
    return bench_clock_seconds() - begun;
}

/* Returns the seconds of one call whose reply is checked. */
static double call_once(tdm_actor *actor, int64_t number)
{
    double begun = bench_clock_seconds();
    int64_t reply;
    tdm_ref *ref;
    double took;

    TDM_CHECK(tdm_actor_call(actor, "echo", &ref, "i", number));
    TDM_CHECK(tdm_get(ref, GET_TIMEOUT_MS, "i", &reply));
    tdm_ref_release(ref);
    took = bench_clock_seconds() - begun;
    if (reply != number) {
        TDM_CHECK(
            tdm_fail(TDM_E_PROTOCOL, "sent %lld, got %lld", (long long)number, (long long)reply));
    }
    return took;
}

/* Returns the median time of `count` calls in microseconds. */
static double round_of_calls(tdm_actor *actor, uint32_t count)
{
    static double took[CALLS_PER_ROUND];

    for (uint32_t i = 0; i < count; i++) {
        took[i] = call_once(actor, INT64_MAX - (int64_t)i);
    }
    return bench_median(took, count) * 1e6;
}

/* Returns the median time of `count` ping-pongs in microseconds. */
static double round_of_pings(int fd, uint32_t count)
{
    static double took[CALLS_PER_ROUND];

    for (uint32_t i = 0; i < count; i++) {
        took[i] = ping_once(fd);
    }
    return bench_median(took, count) * 1e6;
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

/* Measures with actor and peer pinned to `core`. */
static void measure_call(const struct pair *pair, int core, struct bench_measure *measure)
{
    bench_pin_to_core(pair->actor_pid, core);
    bench_pin_to_core(pair->peer_pid, core);
    (void)round_of_calls(pair->actor, WARM_CALLS);
    (void)round_of_pings(pair->fd, WARM_CALLS);
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        double calls = bench_ours_first(i) ? round_of_calls(pair->actor, CALLS_PER_ROUND) : 0;
        double pings = round_of_pings(pair->fd, CALLS_PER_ROUND);

        if (!bench_ours_first(i)) {
            calls = round_of_calls(pair->actor, CALLS_PER_ROUND);
        }
        bench_measure_round(measure, calls, pings);
    }
    bench_measure_report(measure);
}

/* Measures on one core and, if the machine has two, on separate cores. */
static void measure_both(const struct pair *pair)
{
    static struct bench_measure same = {.name = "call_sync_same_core",
                                        .unit = "us",
                                        .against = "blocking unix ping-pong",
                                        .at_least = 0.5};
    static struct bench_measure own = {.name = "call_sync_own_cores",
                                       .unit = "us",
                                       .against = "blocking unix ping-pong",
                                       .at_least = 1 / 0.3};

    bench_pin_to_core(0, 0);
    measure_call(pair, 0, &same);
    if (bench_cores() > 1) {
        measure_call(pair, 1, &own);
    } else {
        (void)fprintf(stderr, "skipped: call_sync_own_cores: this machine has one core\n");
    }
}

int main(int argc, char **argv)
{
    static const struct bench_role roles[] = {{"pong", pong}};
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
    pair.fd = bench_peer_pair("pong", &pair.peer_pid);

    measure_both(&pair);

    bench_peer_kill(pair.peer_pid);
    (void)close(pair.fd);
    tdm_actor_destroy(pair.actor);
    tdm_runtime_stop(runtime);
    return bench_status();
}
