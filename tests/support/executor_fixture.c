/* executor_fixture.c - an executor with two callers, all on one loop, for its tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/executor_fixture.h"

#include "actors/server/call.h"
#include "runtime/clock.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

enum { TARGET = 1 };

/* ---- the actor -------------------------------------------------------------------------- */

struct executor_log executor_log = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static tdm_status note(tdm_call *call, void *self)
{
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    (void)pthread_mutex_lock(&executor_log.mutex);
    executor_log.notes[atomic_load(&executor_log.notes_count) % NOTES_MAX] = number;
    (void)atomic_fetch_add(&executor_log.notes_count, 1);
    (void)pthread_mutex_unlock(&executor_log.mutex);
    return tdm_call_reply(call, "i", number);
}

static void wait_for_gate(tdm_call *call)
{
    while (!atomic_load(&executor_log.open) && (call == NULL || tdm_call_is_canceled(call) == 0)) {
        (void)poll(NULL, 0, 1);
    }
}

static tdm_status gate(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    (void)atomic_fetch_add(&executor_log.inside, 1);
    wait_for_gate(NULL);
    (void)atomic_fetch_sub(&executor_log.inside, 1);
    return TDM_OK;
}

static tdm_status watch(tdm_call *call, void *self)
{
    (void)self;
    (void)atomic_fetch_add(&executor_log.inside, 1);
    wait_for_gate(call);
    if (tdm_call_is_canceled(call) != 0) {
        (void)atomic_fetch_add(&executor_log.canceled, 1);
    }
    (void)atomic_fetch_sub(&executor_log.inside, 1);
    return TDM_OK;
}

/* Callback of "listen" for its cancellation. */
static void count_told(void *arg, tdm_call *call)
{
    (void)call;
    (void)atomic_fetch_add((atomic_int *)arg, 1);
}

static tdm_status listen_for_cancel(tdm_call *call, void *self)
{
    (void)self;
    TDM_TRY(tdm_call_on_cancel(call, count_told, &executor_log.told));
    (void)atomic_fetch_add(&executor_log.inside, 1);
    wait_for_gate(NULL);
    (void)atomic_fetch_sub(&executor_log.inside, 1);
    return TDM_OK;
}

static tdm_status keep(tdm_call *call, void *self)
{
    (void)self;
    TDM_TRY(tdm_call_keep(call));
    executor_log.kept[atomic_load(&executor_log.kept_count)] = call;
    (void)atomic_fetch_add(&executor_log.kept_count, 1);
    return TDM_OK;
}

static tdm_status count(tdm_call *call, void *self)
{
    int64_t items;
    tdm_status status = TDM_OK;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &items));
    for (int64_t i = 0; i < items && status == TDM_OK; i++) {
        status = tdm_call_yield(call, "i", i);
        if (status == TDM_OK) {
            (void)atomic_fetch_add(&executor_log.yielded, 1);
        }
    }
    atomic_store(&executor_log.yield_status, status);
    (void)atomic_fetch_add(&executor_log.streams_ended, 1);
    return status;
}

static tdm_status leave(tdm_call *call, void *self)
{
    TDM__LOOP_ENTER(call->loop);

    (void)self;
    tdm__executor_request_end(executor_log.executor, false);
    return TDM_OK;
}

const struct tdm_actor_class exec_plain = {
    .name = "plain",
    .methods = {{"note", note},
                {"gate", gate},
                {"watch", watch},
                {"listen", listen_for_cancel},
                {"keep", keep},
                {"count", count},
                {"leave", leave}},
};
const struct tdm_actor_class exec_grouped = {
    .name = "grouped",
    .methods = {{"note", note}, {"gate", gate, "slow"}, {"watch", watch, "other"}},
    .concurrency_groups = {{"slow", 2}, {"other", 1}},
};
const struct tdm_actor_class exec_asynchronous = {
    .name = "asynchronous",
    .methods = {{"note", note}, {"keep", keep}, {"gate", gate}, {"note_apart", note, "apart"}},
    .concurrency_groups = {{"apart", 1}},
    .asynchronous = 1,
};

/* ---- the world: callers on one loop with the actor, whose main thread is a thread ---------- */

struct executor_fixture executor_fixture;

static void *actor_main(void *arg)
{
    (void)arg;
    tdm__executor_run(executor_log.executor);
    return NULL;
}

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    tdm__executor_enqueue(executor_log.executor, incoming);
}

static struct tdm__rpc *endpoint(int64_t pid, const char *name)
{
    struct tdm__peer_identity identity = pair_identity(name);
    struct tdm__rpc *rpc;

    identity.pid = pid;
    assert_int_equal(tdm__rpc_create(executor_fixture.loop, &identity, pair_token, &rpc), TDM_OK);
    return rpc;
}

void exec_connect(int index)
{
    struct tdm__conn *other;
    int fds[2];
    TDM__LOOP_ENTER(executor_fixture.loop);

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(tdm__rpc_adopt(executor_fixture.callers[index], fds[0], false,
                                    &executor_fixture.conns[index]),
                     TDM_OK);
    assert_int_equal(tdm__rpc_adopt(executor_fixture.actor, fds[1], true, &other), TDM_OK);
}

void exec_open(const struct tdm_actor_class *actor_class, uint32_t max_concurrency)
{
    struct tdm__executor_options options = {.actor_class = actor_class,
                                            .max_concurrency = max_concurrency};

    assert_int_equal(tdm__loop_create(&executor_fixture.loop), TDM_OK);
    options.loop = executor_fixture.loop;
    assert_int_equal(tdm__executor_create(&options, &executor_log.executor), TDM_OK);
    atomic_store(&executor_log.notes_count, 0);
    atomic_store(&executor_log.inside, 0);
    atomic_store(&executor_log.open, false);
    atomic_store(&executor_log.canceled, 0);
    atomic_store(&executor_log.told, 0);
    atomic_store(&executor_log.kept_count, 0);
    atomic_store(&executor_log.yielded, 0);
    atomic_store(&executor_log.streams_ended, 0);
    executor_fixture.actor = endpoint(1, "actor");
    tdm__rpc_set_call_handler(executor_fixture.actor, serve, NULL);
    for (int i = 0; i < CALLERS; i++) {
        executor_fixture.callers[i] = endpoint(2 + i, "caller");
        exec_connect(i);
    }
    assert_int_equal(pthread_create(&executor_fixture.main_thread, NULL, actor_main, NULL), 0);
    executor_fixture.running = true;
}

/* The actor's own end, in whatever way it was asked for. */
void exec_await_end(void)
{
    assert_int_equal(pthread_join(executor_fixture.main_thread, NULL), 0);
    executor_fixture.running = false;
}

void exec_close(void)
{
    atomic_store(&executor_log.open, true);
    if (executor_fixture.running) {
        tdm__loop_enter(executor_fixture.loop);
        tdm__executor_request_end(executor_log.executor, false);
        tdm__loop_leave(executor_fixture.loop);
        exec_await_end();
    }
    tdm__executor_destroy(executor_log.executor);
    for (int i = 0; i < CALLERS; i++) {
        tdm__rpc_destroy(executor_fixture.callers[i]);
    }
    tdm__rpc_destroy(executor_fixture.actor);
    tdm__loop_destroy(executor_fixture.loop);
}

void exec_await(atomic_int *value, int goal)
{
    int64_t deadline_ms = tdm__deadline_after(PAIR_WAIT_MS);
    int last = atomic_load(value);

    while (atomic_load(value) < goal) {
        if (atomic_load(value) != last) {
            last = atomic_load(value);
            deadline_ms = tdm__deadline_after(PAIR_WAIT_MS);
        }
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)tdm__loop_run(executor_fixture.loop, NULL, NULL, tdm__deadline_after(1));
    }
}

/* ---- calling ---------------------------------------------------------------------------- */

struct tdm_bytes exec_number(uint8_t number)
{
    static uint8_t bytes[128][2];

    assert_true(number < 128);
    bytes[number][0] = 0x91;
    bytes[number][1] = number;
    return (struct tdm_bytes){bytes[number], 2};
}

struct tdm__rpc_request exec_request(const char *method, uint8_t number)
{
    return (struct tdm__rpc_request){.target = {.bytes = {TARGET}},
                                     .method = method,
                                     .packed = exec_number(number),
                                     .deadline_ms = TDM__NEVER};
}

uint64_t exec_send(int caller, const struct tdm__rpc_request *request, struct pair_reply *answer)
{
    uint64_t call_id = 0;
    TDM__LOOP_ENTER(executor_fixture.loop);

    memset(answer, 0, sizeof(*answer));
    assert_int_equal(
        tdm__conn_call(executor_fixture.conns[caller], request, pair_on_reply, answer, &call_id),
        TDM_OK);
    return call_id;
}

uint64_t exec_call(int caller, const char *method, uint8_t number, struct pair_reply *answer)
{
    struct tdm__rpc_request request = exec_request(method, number);

    return exec_send(caller, &request, answer);
}

static bool is_answered(void *arg)
{
    const struct pair_reply *answer = arg;

    return answer->count > 0;
}

tdm_status exec_outcome(struct pair_reply *answer)
{
    TDM__LOOP_ENTER(executor_fixture.loop);

    assert_int_equal(tdm__loop_run(executor_fixture.loop, is_answered, answer,
                                   tdm__deadline_after(PAIR_WAIT_MS)),
                     TDM_OK);
    assert_int_equal(answer->count, 1);
    return answer->status;
}

void exec_cancel(int caller, uint64_t call_id)
{
    TDM__LOOP_ENTER(executor_fixture.loop);
    tdm__conn_cancel_call(executor_fixture.conns[caller], call_id, false);
}

void exec_cut(int caller)
{
    TDM__LOOP_ENTER(executor_fixture.loop);
    tdm__conn_close(executor_fixture.conns[caller]);
}
