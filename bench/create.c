/* create.c - compares the life cycle of an actor with that of a bare process of the same
 * program. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An actor is created, called and killed, and its process is gone. The peer is started by
 * posix_spawn, gets a connection and one request of the same bytes, replies, is killed and
 * reaped. Its socket listens before it starts, so that connecting never has to wait. */
#include "measure.h"
#include "peer.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tandem/tandem.h>
#include <unistd.h>

enum {
    LIVES_PER_ROUND = 25,
    TIMEOUT_MS = 10000,
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

/* Role "reply": accepts one connection, replies to one request and waits to be killed. */
static void reply_one(int listener)
{
    char buffer[BENCH_CALL_BYTES] = {0};
    int fd = accept(listener, NULL, NULL);

    if (fd < 0) {
        bench_die("accept");
    }
    bench_read(fd, buffer, BENCH_CALL_BYTES);
    bench_write(fd, buffer, BENCH_REPLY_BYTES);
    bench_read(fd, buffer, 1); /* The read blocks until the process is killed. */
}

/* Listens on an abstract Unix address, which exists only while the socket does. */
static int listen_anywhere(struct sockaddr_un *address_out, socklen_t *address_bytes_out)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un wanted = {.sun_family = AF_UNIX};

    *address_bytes_out = sizeof(*address_out);
    if (fd < 0 || bind(fd, (struct sockaddr *)&wanted, sizeof(wanted.sun_family)) != 0 ||
        listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)address_out, address_bytes_out) != 0) {
        bench_die("listen");
    }
    return fd;
}

/* Starts, calls and kills one peer process. */
static void peer_life(int listener, const struct sockaddr_un *address, socklen_t address_bytes)
{
    char buffer[BENCH_CALL_BYTES] = {0};
    pid_t pid = bench_peer_spawn("reply", listener);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)address, address_bytes) != 0) {
        bench_die("connect");
    }
    bench_write(fd, buffer, BENCH_CALL_BYTES);
    bench_read(fd, buffer, BENCH_REPLY_BYTES);
    bench_peer_kill(pid);
    (void)close(fd);
}

/* Creates, calls and kills one actor. */
static void actor_life(tdm_runtime *runtime, int64_t number)
{
    tdm_actor *actor;
    tdm_ref *ref;
    int64_t reply;

    TDM_CHECK(tdm_actor_create(runtime, "echo", NULL, &actor, ""));
    TDM_CHECK(tdm_actor_call(actor, "echo", &ref, "i", number));
    TDM_CHECK(tdm_get(ref, TIMEOUT_MS, "i", &reply));
    tdm_ref_release(ref);
    if (reply != number) {
        TDM_CHECK(
            tdm_fail(TDM_E_PROTOCOL, "sent %lld, got %lld", (long long)number, (long long)reply));
    }
    TDM_CHECK(tdm_actor_kill(actor, TIMEOUT_MS));
    tdm_actor_destroy(actor);
}

/* Returns how many actors live one after the other in a second. */
static double round_of_actors(tdm_runtime *runtime)
{
    double begun = bench_clock_seconds();

    for (int64_t i = 0; i < LIVES_PER_ROUND; i++) {
        actor_life(runtime, INT64_MAX - i);
    }
    return LIVES_PER_ROUND / (bench_clock_seconds() - begun);
}

/* Returns how many peers live one after the other in a second. */
static double round_of_peers(void)
{
    struct sockaddr_un address;
    socklen_t address_bytes;
    int listener = listen_anywhere(&address, &address_bytes);
    double begun = bench_clock_seconds();
    double took;

    for (int i = 0; i < LIVES_PER_ROUND; i++) {
        peer_life(listener, &address, address_bytes);
    }
    took = bench_clock_seconds() - begun;
    (void)close(listener);
    return LIVES_PER_ROUND / took;
}

int main(int argc, char **argv)
{
    static const struct bench_role roles[] = {{"reply", reply_one}};
    static struct bench_measure measure = {.name = "actor_life",
                                           .unit = "1/s",
                                           .against = "posix_spawn, connect, call, kill, reap",
                                           .better = BENCH_MORE_IS_BETTER,
                                           .at_least = 0.5};
    tdm_runtime *runtime;

    bench_peer_run(argc, argv, roles, 1);
    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    bench_parse_arguments(argc, argv);
    (void)round_of_actors(runtime);
    (void)round_of_peers();
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        double actors = bench_ours_first(i) ? round_of_actors(runtime) : 0;
        double peers = round_of_peers();

        if (!bench_ours_first(i)) {
            actors = round_of_actors(runtime);
        }
        bench_measure_round(&measure, actors, peers);
    }
    bench_measure_report(&measure);
    tdm_runtime_stop(runtime);
    return bench_status();
}
