/* executor_fixture.h - an executor with two callers, all on one loop, for its tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_EXECUTOR_FIXTURE_H
#define TDM_TESTS_SUPPORT_EXECUTOR_FIXTURE_H

#include "actors/server/executor.h"
#include "tests/support/rpc_pair.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NOTES_MAX = 4096, KEPT_MAX = 1000, CALLERS = 2 };

/* What the actor's methods did; they run on several threads. */
struct executor_log {
    pthread_mutex_t mutex;
    int64_t notes[NOTES_MAX];
    atomic_int notes_count;
    atomic_int inside; /* of "gate" and "watch" */
    atomic_bool open;
    atomic_int canceled; /* seen by "watch" */
    tdm_call *kept[KEPT_MAX];
    atomic_int kept_count;
    atomic_int yielded;
    atomic_int streams_ended;
    atomic_int yield_status; /* of the last one's last item */
    struct tdm__executor *executor;
};
extern struct executor_log executor_log;

struct executor_fixture {
    struct tdm__loop *loop;
    struct tdm__rpc *callers[CALLERS];
    struct tdm__rpc *actor;
    struct tdm__conn *conns[CALLERS];
    pthread_t main_thread;
    bool running;
};
extern struct executor_fixture executor_fixture;

/* Methods: "note" (i) writes i down and replies it; "gate" stays until `open`; "watch" also
 * until it is canceled; "keep" keeps its call; "count" (i) yields so many items; "leave" ends
 * the actor.  The second class has groups: "gate" is in one of 2, "watch" in one of 1. */
extern const struct tdm_actor_class exec_plain;
extern const struct tdm_actor_class exec_grouped;
extern const struct tdm_actor_class exec_asynchronous;

/* The actor's main thread is a thread; whoever waits drives the loop, too. */
void exec_open(const struct tdm_actor_class *actor_class, uint32_t max_concurrency);
void exec_close(void);
/* The actor's own end, in whatever way it was asked for. */
void exec_await_end(void);
void exec_await(atomic_int *value, int goal);

struct tdm_bytes exec_number(uint8_t number); /* below 128 */
struct tdm__rpc_request exec_request(const char *method, uint8_t number);
uint64_t exec_send(int caller, const struct tdm__rpc_request *request, struct pair_reply *answer);
uint64_t exec_call(int caller, const char *method, uint8_t number, struct pair_reply *answer);
/* Waits for it. */
tdm_status exec_outcome(struct pair_reply *answer);
void exec_cancel(int caller, uint64_t call_id);
/* Cuts the connection, and makes a new one. */
void exec_cut(int caller);
void exec_connect(int index);

#endif
