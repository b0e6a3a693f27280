/* executor_fixture.h - an executor with two callers, all on one loop, for its tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_EXECUTOR_FIXTURE_H
#define TDM_TESTS_SUPPORT_EXECUTOR_FIXTURE_H

#include "actors/server/executor.h"
#include "tests/support/rpc_pair.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NOTES_MAX = 4096, KEPT_MAX = 1000, CALLERS = 2 };

/* What the actor's methods did. They run on several threads. */
struct executor_log {
    pthread_mutex_t mutex;
    int64_t notes[NOTES_MAX];
    atomic_int notes_count;
    atomic_int inside;   /* Number of "gate" and "watch" calls that are running. */
    atomic_bool open;    /* True: "gate" and "watch" return. */
    atomic_int canceled; /* Number of cancellations that "watch" has seen. */
    atomic_int told;     /* Number of callbacks that told "listen" of its cancellation. */
    tdm_call *kept[KEPT_MAX];
    atomic_int kept_count;
    atomic_int yielded;
    atomic_int streams_ended;
    atomic_int yield_status; /* Status of the last item of the latest stream. */
    struct tdm__executor *executor;
};
extern struct executor_log executor_log;

/* The executor's callers and connections, all on one loop. */
struct executor_fixture {
    struct tdm__loop *loop;
    struct tdm__rpc *callers[CALLERS];
    struct tdm__rpc *actor;
    struct tdm__conn *conns[CALLERS];
    pthread_t main_thread;
    bool running;
};
extern struct executor_fixture executor_fixture;

/* Methods: "note" (i) records i and replies it; "gate" runs until `open`; "watch" runs until `open`
 * or until it is canceled; "listen" runs until `open` and counts the callbacks of its cancellation;
 * "keep" keeps its call; "count" (i) yields i items; "leave" ends the actor. In the second class
 * "gate" is in a group of 2 threads and "watch" in one of 1; in the third one "note_apart" is
 * "note" in a group of its own. */
extern const struct tdm_actor_class exec_plain;
extern const struct tdm_actor_class exec_grouped;
extern const struct tdm_actor_class exec_asynchronous;

/* Starts the executor. A thread is the actor's main thread; a thread that waits drives the loop,
 * too. */
void exec_open(const struct tdm_actor_class *actor_class, uint32_t max_concurrency);
void exec_close(void);
/* Waits for the end of the actor, however it was requested. */
void exec_await_end(void);
/* Drives the loop until *value >= goal; fails the test when it has not grown for PAIR_WAIT_MS. */
void exec_await(atomic_int *value, int goal);

/* Returns a packed number below 128. */
struct tdm_bytes exec_number(uint8_t number);
struct tdm__rpc_request exec_request(const char *method, uint8_t number);
uint64_t exec_send(int caller, const struct tdm__rpc_request *request, struct pair_reply *answer);
uint64_t exec_call(int caller, const char *method, uint8_t number, struct pair_reply *answer);
/* Waits for the reply and returns its status. */
tdm_status exec_outcome(struct pair_reply *answer);
void exec_cancel(int caller, uint64_t call_id);
/* Cuts the connection of a caller and connects again. */
void exec_cut(int caller);
void exec_connect(int index);

#endif
