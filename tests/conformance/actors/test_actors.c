/* test_actors.c - the actors of the conformance suite, beside the tester of actor_fixture.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/test_actors.h"

#include "tests/support/actor_fixture.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MOMENT_MS = 20, LOOK_AGAIN_MS = 1 };

/* ---- holder ----------------------------------------------------------------------------- */

struct holder {
    tdm_ref *ref;
    tdm_actor *employee;
};

static tdm_status holder_begin(tdm_call *call, void *self)
{
    struct holder *holder = self;

    return tdm_value_count(tdm_call_arguments(call)) == 0
               ? TDM_OK
               : tdm_call_unpack(call, "Rh", &holder->ref, &holder->employee);
}

static tdm_status holder_keep(tdm_call *call, void *self)
{
    struct holder *holder = self;
    tdm_ref *ref;

    TDM_TRY(tdm_call_unpack(call, "R", &ref));
    tdm_ref_release(holder->ref);
    holder->ref = ref;
    return TDM_OK;
}

static tdm_status holder_drop(tdm_call *call, void *self)
{
    struct holder *holder = self;

    (void)call;
    tdm_ref_release(holder->ref);
    holder->ref = NULL;
    return TDM_OK;
}

static tdm_status holder_give(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "R", ((struct holder *)self)->ref);
}

static tdm_status holder_read(tdm_call *call, void *self)
{
    int64_t number;

    TDM_TRY(tdm_get(((struct holder *)self)->ref, TEST_TIMEOUT_MS, "i", &number));
    return tdm_call_reply(call, "i", number);
}

static tdm_status holder_make(tdm_call *call, void *self)
{
    int64_t number;
    tdm_ref *ref;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    TDM_TRY(tdm_put(tdm_runtime_current(), &ref, "i", number));
    status = tdm_call_reply(call, "R", ref);
    tdm_ref_release(ref);
    return status;
}

static tdm_status holder_later(tdm_call *call, void *self)
{
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    (void)poll(NULL, 0, MOMENT_MS);
    return tdm_call_reply(call, "i", number);
}

static tdm_status holder_kinds(tdm_call *call, void *self)
{
    const tdm_value *first;
    const tdm_value *second;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "vv", &first, &second));
    return tdm_call_reply(call, "ii", (int64_t)tdm_value_kind_of(first),
                          (int64_t)tdm_value_kind_of(tdm_value_at(second, 0)));
}

static tdm_status holder_object(tdm_call *call, void *self)
{
    struct holder *holder = self;
    tdm_ref *failing;
    tdm_status status;
    int64_t number;

    TDM_TRY(tdm_call_unpack(call, "i", &number));
    TDM_TRY(tdm_actor_call(holder->employee, "object", &failing, "i", number));
    status = tdm_call_reply(call, "R", failing);
    tdm_ref_release(failing);
    return status;
}

static tdm_status holder_employ(tdm_call *call, void *self)
{
    struct holder *holder = self;
    tdm_actor *employee;

    TDM_TRY(tdm_call_unpack(call, "h", &employee));
    tdm_actor_destroy(holder->employee);
    holder->employee = employee;
    return TDM_OK;
}

static tdm_status holder_dismiss(tdm_call *call, void *self)
{
    struct holder *holder = self;

    (void)call;
    tdm_actor_destroy(holder->employee);
    holder->employee = NULL;
    return TDM_OK;
}

static tdm_status holder_ask(tdm_call *call, void *self)
{
    struct holder *holder = self;
    int64_t number;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(tdm_call_unpack(call, "i", &number));
    TDM_TRY(tdm_actor_call(holder->employee, "add", &ref, "i", number));
    status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &number);
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", number);
}

static tdm_status holder_sum(tdm_call *call, void *self)
{
    struct tdm_ndarray array;
    int64_t sum = 0;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "a", &array));
    if (array.dtype != TDM_I64 || array.dims_count != 1) {
        return tdm_fail(TDM_E_TYPE, "not a row of 64-bit integers");
    }
    for (uint64_t i = 0; i < array.shape[0]; i++) {
        sum += ((const int64_t *)array.data)[i];
    }
    return tdm_call_reply(call, "i", sum);
}

static tdm_status holder_range(tdm_call *call, void *self)
{
    struct tdm_ndarray array = {.dtype = TDM_I64, .dims_count = 1};
    int64_t *numbers;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &array.shape[0]));
    numbers = calloc(array.shape[0], sizeof(*numbers));
    if (numbers == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a range");
    }
    for (uint64_t i = 0; i < array.shape[0]; i++) {
        numbers[i] = (int64_t)i;
    }
    array.data = numbers;
    status = tdm_call_reply(call, "a", &array);
    free(numbers);
    return status;
}

static tdm_status holder_several(tdm_call *call, void *self)
{
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    return tdm_call_reply(call, "iii", number, number + 1, number + 2);
}

static void holder_end(void *self)
{
    struct holder *holder = self;

    tdm_ref_release(holder->ref);
    tdm_actor_destroy(holder->employee);
}

TDM_ACTOR_CLASS(holder, .state_bytes = sizeof(struct holder), .construct = holder_begin,
                .destruct = holder_end,
                .methods = {
                    {"keep", holder_keep, NULL},
                    {"drop", holder_drop, NULL},
                    {"give", holder_give, NULL},
                    {"read", holder_read, NULL},
                    {"make", holder_make, NULL},
                    {"later", holder_later, NULL},
                    {"kinds", holder_kinds, NULL},
                    {"object", holder_object, NULL},
                    {"employ", holder_employ, NULL},
                    {"dismiss", holder_dismiss, NULL},
                    {"ask", holder_ask, NULL},
                    {"sum", holder_sum, NULL},
                    {"range", holder_range, NULL},
                    {"several", holder_several, NULL},
                });

/* ---- crowd ------------------------------------------------------------------------------ */

struct crowd {
    atomic_int here;
};

static tdm_status crowd_meet(tdm_call *call, void *self)
{
    struct crowd *crowd = self;
    int64_t wanted;

    TDM_TRY(tdm_call_unpack(call, "i", &wanted));
    (void)atomic_fetch_add(&crowd->here, 1);
    for (int waited_ms = 0; atomic_load(&crowd->here) < wanted; waited_ms += LOOK_AGAIN_MS) {
        if (waited_ms > TEST_TIMEOUT_MS || tdm_call_is_canceled(call) != 0) {
            return tdm_fail(TDM_E_TIMEOUT, "nobody else came");
        }
        (void)poll(NULL, 0, LOOK_AGAIN_MS);
    }
    return tdm_call_reply(call, "i", (int64_t)gettid());
}

static tdm_status crowd_here(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", (int64_t)atomic_load(&((struct crowd *)self)->here));
}

TDM_ACTOR_CLASS(crowd, .state_bytes = sizeof(struct crowd),
                .methods = {{"meet", crowd_meet, NULL}, {"here", crowd_here, NULL}});
TDM_ACTOR_CLASS(grouped_crowd, .state_bytes = sizeof(struct crowd),
                .methods = {{"meet", crowd_meet, "meetings"}, {"here", crowd_here, NULL}},
                .concurrency_groups = {{"meetings", 2}});

/* ---- desk ------------------------------------------------------------------------------- */

enum { DESK_CALLS = 256 };

struct desk {
    tdm_call *calls[DESK_CALLS];
    uint32_t calls_count;
    int64_t answer;
    pthread_t thread;
    bool has_thread;
};

static tdm_status desk_ask(tdm_call *call, void *self)
{
    struct desk *desk = self;

    if (desk->calls_count == DESK_CALLS) {
        return tdm_fail(TDM_E_LIMIT, "more than %d questions", (int)DESK_CALLS);
    }
    TDM_TRY(tdm_call_keep(call));
    desk->calls[desk->calls_count++] = call;
    return TDM_OK;
}

static tdm_status desk_asked(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", (int64_t)((struct desk *)self)->calls_count);
}

static void *desk_answer_all(void *arg)
{
    struct desk *desk = arg;

    for (uint32_t i = 0; i < desk->calls_count; i++) {
        (void)tdm_call_reply(desk->calls[i], "i", desk->answer);
    }
    return NULL;
}

static void desk_rest(struct desk *desk)
{
    if (desk->has_thread) {
        (void)pthread_join(desk->thread, NULL);
        desk->has_thread = false;
    }
    desk->calls_count = 0;
}

static tdm_status desk_answer(tdm_call *call, void *self)
{
    struct desk *desk = self;

    TDM_TRY(tdm_call_unpack(call, "i", &desk->answer));
    if (pthread_create(&desk->thread, NULL, desk_answer_all, desk) != 0) {
        return tdm_fail(TDM_E_IO, "pthread_create");
    }
    desk->has_thread = true;
    desk_rest(desk);
    return TDM_OK;
}

static tdm_status desk_refuse(tdm_call *call, void *self)
{
    struct desk *desk = self;

    (void)call;
    for (uint32_t i = 0; i < desk->calls_count; i++) {
        tdm_call_fail(desk->calls[i], TDM_E_METHOD, "question %u is not for us", i);
    }
    desk->calls_count = 0;
    return TDM_OK;
}

TDM_ACTOR_CLASS(desk, .state_bytes = sizeof(struct desk), .asynchronous = 1,
                .methods = {
                    {"ask", desk_ask, NULL},
                    {"asked", desk_asked, NULL},
                    {"answer", desk_answer, NULL},
                    {"refuse", desk_refuse, NULL},
                });

/* ---- source ----------------------------------------------------------------------------- */

struct source {
    atomic_int sent;
    atomic_int stopped;
};

static tdm_status yield_numbers(tdm_call *call, struct source *source)
{
    int64_t wanted;

    TDM_TRY(tdm_call_unpack(call, "i", &wanted));
    for (int64_t i = 0; i < wanted; i++) {
        TDM_TRY(tdm_call_yield(call, "i", i));
        (void)atomic_fetch_add(&source->sent, 1);
    }
    return TDM_OK;
}

static tdm_status source_count(tdm_call *call, void *self)
{
    return yield_numbers(call, self);
}

static tdm_status source_pour(tdm_call *call, void *self)
{
    tdm_status status = tdm_call_set_items_ahead(call, 0);

    if (status != TDM_E_INVAL) {
        return tdm_fail(TDM_E_METHOD, "0 items ahead: %s", tdm_strerror(status));
    }
    TDM_TRY(tdm_call_set_items_ahead(call, TDM_STREAM_ITEMS_UNLIMITED));
    return yield_numbers(call, self);
}

static tdm_status source_drip(tdm_call *call, void *self)
{
    TDM_TRY(tdm_call_set_items_ahead(call, 1));
    return yield_numbers(call, self);
}

static tdm_status source_falter(tdm_call *call, void *self)
{
    TDM_TRY(yield_numbers(call, self));
    return tdm_fail(TDM_E_METHOD, "the source is dry");
}

static tdm_status source_flow(tdm_call *call, void *self)
{
    struct source *source = self;
    tdm_status status;

    do {
        status = tdm_call_yield(call, "i", (int64_t)atomic_load(&source->sent));
        (void)atomic_fetch_add(&source->sent, status == TDM_OK);
    } while (status == TDM_OK);
    (void)atomic_fetch_add(&source->stopped, 1);
    return status;
}

static tdm_status source_sent(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", (int64_t)atomic_load(&((struct source *)self)->sent));
}

static tdm_status source_stopped(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", (int64_t)atomic_load(&((struct source *)self)->stopped));
}

TDM_ACTOR_CLASS(source, .state_bytes = sizeof(struct source),
                .methods = {
                    {"count", source_count, NULL},
                    {"pour", source_pour, NULL},
                    {"drip", source_drip, NULL},
                    {"falter", source_falter, NULL},
                    {"flow", source_flow, NULL},
                    {"sent", source_sent, NULL},
                    {"stopped", source_stopped, NULL},
                });

/* ---- patient ---------------------------------------------------------------------------- */

struct patient {
    atomic_int begun;
    atomic_int ended;
};

static tdm_status patient_endure(tdm_call *call, void *self)
{
    struct patient *patient = self;

    (void)atomic_fetch_add(&patient->begun, 1);
    for (int waited_ms = 0; tdm_call_is_canceled(call) == 0; waited_ms += LOOK_AGAIN_MS) {
        if (waited_ms > TEST_TIMEOUT_MS) {
            return tdm_fail(TDM_E_TIMEOUT, "nobody canceled");
        }
        (void)poll(NULL, 0, LOOK_AGAIN_MS);
    }
    (void)atomic_fetch_add(&patient->ended, 1);
    return tdm_fail(TDM_E_CANCELED, "as asked");
}

/* Callback for the cancellation of "listen": ends its wait. */
static void patient_hears(void *arg, tdm_call *call)
{
    (void)call;
    (void)sem_post(arg);
}

static tdm_status patient_listen(tdm_call *call, void *self)
{
    struct patient *patient = self;
    struct timespec until;
    sem_t canceled;
    int waited;

    (void)sem_init(&canceled, 0, 0);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += TEST_TIMEOUT_MS / 1000;
    TDM_TRY(tdm_call_on_cancel(call, patient_hears, &canceled));
    (void)atomic_fetch_add(&patient->begun, 1);
    waited = sem_timedwait(&canceled, &until);
    (void)tdm_call_on_cancel(call, NULL, NULL);
    (void)sem_destroy(&canceled);
    if (waited != 0) {
        return tdm_fail(TDM_E_TIMEOUT, "nobody canceled");
    }
    (void)atomic_fetch_add(&patient->ended, 1);
    return tdm_fail(TDM_E_CANCELED, "as asked");
}

static tdm_status patient_begun(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", (int64_t)atomic_load(&((struct patient *)self)->begun));
}

static tdm_status patient_ended(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", (int64_t)atomic_load(&((struct patient *)self)->ended));
}

static tdm_status patient_delegate(tdm_call *call, void *self)
{
    const tdm_value *others = tdm_call_arguments(call);
    uint32_t count = tdm_value_count(others);
    tdm_actor *chain[2] = {NULL, NULL};
    tdm_status status = TDM_OK;
    tdm_ref *ref = NULL;

    (void)self;
    for (uint32_t i = 0; i < count && i < 2 && status == TDM_OK; i++) {
        status = tdm_value_actor(tdm_runtime_current(), tdm_value_at(others, i), &chain[i]);
    }
    if (status == TDM_OK) {
        status = count == 2 ? tdm_actor_call(chain[1], "delegate", &ref, "h", chain[0])
                            : tdm_actor_call(chain[0], "endure", &ref, "");
    }
    if (status == TDM_OK) {
        status = tdm_get(ref, TEST_TIMEOUT_MS, "");
    }
    tdm_ref_release(ref);
    tdm_actor_destroy(chain[0]);
    tdm_actor_destroy(chain[1]);
    return status;
}

static tdm_status patient_left(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "i", tdm_call_remaining_ms(call));
}

TDM_ACTOR_CLASS(patient, .state_bytes = sizeof(struct patient),
                .methods = {
                    {"endure", patient_endure, NULL},
                    {"listen", patient_listen, NULL},
                    {"begun", patient_begun, NULL},
                    {"ended", patient_ended, NULL},
                    {"left", patient_left, NULL},
                    {"delegate", patient_delegate, NULL},
                });

/* ---- mortal ----------------------------------------------------------------------------- */

struct mortal {
    char diary[128];
    tdm_actor *child;
};

static void write_diary(const struct mortal *mortal, const char *entry)
{
    FILE *file = mortal->diary[0] == '\0' ? NULL : fopen(mortal->diary, "a");

    if (file != NULL) {
        (void)fputs(entry, file);
        (void)fclose(file);
    }
}

static tdm_status mortal_begin(tdm_call *call, void *self)
{
    struct mortal *mortal = self;

    (void)snprintf(mortal->diary, sizeof(mortal->diary), "%s",
                   tdm_value_string(tdm_value_at(tdm_call_arguments(call), 0), ""));
    write_diary(mortal, "born ");
    return TDM_OK;
}

static void mortal_end(void *self)
{
    struct mortal *mortal = self;

    write_diary(mortal, "end ");
    tdm_actor_destroy(mortal->child);
}

static tdm_status mortal_about(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    return tdm_call_reply(call, "iissss", (int64_t)info.restarts_count, (int64_t)getpid(),
                          info.job_id, info.class_name, info.actor_name, info.name_space);
}

static tdm_status mortal_perish(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    int64_t lives;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &lives));
    tdm_runtime_describe(tdm_runtime_current(), &info);
    if ((int64_t)info.restarts_count < lives) {
        (void)kill(getpid(), SIGKILL);
    }
    return tdm_call_reply(call, "i", (int64_t)info.restarts_count);
}

static tdm_status mortal_leave(tdm_call *call, void *self)
{
    (void)self;
    TDM_TRY(tdm_runtime_exit_actor(tdm_runtime_current()));
    return tdm_call_reply(call, "s", "farewell");
}

static tdm_status mortal_breed(tdm_call *call, void *self)
{
    struct mortal *mortal = self;
    struct tdm_actor_options options = {0};
    struct tdm_actor_info info;

    TDM_TRY(tdm_call_unpack(call, "s?", &options.name, &options.detached));
    TDM_TRY(tdm_actor_create(tdm_runtime_current(), "mortal", &options, &mortal->child, "s", ""));
    TDM_TRY(tdm_actor_wait_ready(mortal->child, TEST_TIMEOUT_MS));
    tdm_actor_describe(mortal->child, &info);
    return tdm_call_reply(call, "i", info.pid);
}

/* A detached child that needs a value to be constructed. */
static tdm_status mortal_expect(tdm_call *call, void *self)
{
    const struct tdm_actor_options options = {.detached = 1};
    struct mortal *mortal = self;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(tdm_call_unpack(call, "R", &ref));
    status =
        tdm_actor_create(tdm_runtime_current(), "stumbler", &options, &mortal->child, "r", ref);
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "h", mortal->child);
}

static tdm_status mortal_mumble(tdm_call *call, void *self)
{
    const char *words;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &words));
    (void)fprintf(stderr, "%s\n", words);
    (void)kill(getpid(), SIGKILL);
    return TDM_OK;
}

TDM_ACTOR_CLASS(mortal, .state_bytes = sizeof(struct mortal), .construct = mortal_begin,
                .destruct = mortal_end,
                .methods = {
                    {"about", mortal_about, NULL},
                    {"perish", mortal_perish, NULL},
                    {"leave", mortal_leave, NULL},
                    {"breed", mortal_breed, NULL},
                    {"expect", mortal_expect, NULL},
                    {"mumble", mortal_mumble, NULL},
                });

/* ---- stumbler --------------------------------------------------------------------------- */

struct stumbler {
    int64_t runs;
};

static tdm_status stumbler_begin(tdm_call *call, void *self)
{
    return tdm_value_count(tdm_call_arguments(call)) == 0
               ? TDM_OK
               : tdm_call_unpack(call, "i", &((struct stumbler *)self)->runs);
}

static tdm_status stumbler_stumble(tdm_call *call, void *self)
{
    struct stumbler *stumbler = self;
    int64_t every;

    TDM_TRY(tdm_call_unpack(call, "i", &every));
    stumbler->runs++;
    if (stumbler->runs % every != 0) {
        return tdm_fail(TDM_E_METHOD, "stumbled the %d. time", (int)stumbler->runs);
    }
    return tdm_call_reply(call, "i", stumbler->runs);
}

static tdm_status stumbler_runs(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", ((struct stumbler *)self)->runs);
}

TDM_ACTOR_CLASS(stumbler, .state_bytes = sizeof(struct stumbler), .construct = stumbler_begin,
                .methods = {
                    {"stumble", stumbler_stumble, NULL},
                    {"runs", stumbler_runs, NULL},
                });

/* ---- objector --------------------------------------------------------------------------- */

struct objector {
    int64_t objections; /* Number of calls that have failed so far. */
    tdm_call *kept;     /* Call that waits for refuse(); NULL if none does. */
};

/* Fails the call with values: the number, how many calls have failed, and a reference to the
 * number.
 */
static tdm_status objector_fail(struct objector *objector, tdm_call *call, int64_t number)
{
    tdm_ref *ref;
    tdm_status status;

    objector->objections++;
    TDM_TRY(tdm_put(tdm_runtime_current(), &ref, "i", number));
    status = tdm_call_fail_with(call, TDM_E_METHOD, "an objection", "iiR", number,
                                objector->objections, ref);
    tdm_ref_release(ref);
    return status;
}

static tdm_status objector_object(tdm_call *call, void *self)
{
    int64_t number;

    TDM_TRY(tdm_call_unpack(call, "i", &number));
    return objector_fail(self, call, number);
}

static tdm_status objector_falter(tdm_call *call, void *self)
{
    TDM_TRY(tdm_call_yield(call, "i", INT64_C(0)));
    return objector_fail(self, call, 1);
}

static tdm_status objector_wait(tdm_call *call, void *self)
{
    ((struct objector *)self)->kept = call;
    return tdm_call_keep(call);
}

static tdm_status objector_refuse(tdm_call *call, void *self)
{
    struct objector *objector = self;
    tdm_call *kept = objector->kept;

    (void)call;
    objector->kept = NULL;
    return objector_fail(objector, kept, 2);
}

static tdm_status objector_exceed(tdm_call *call, void *self)
{
    static char zeros[TDM_FAILURE_BYTES_MAX];

    (void)self;
    return tdm_call_fail_with(call, TDM_E_METHOD, "", "b", (const void *)zeros, sizeof(zeros));
}

TDM_ACTOR_CLASS(objector, .state_bytes = sizeof(struct objector), .asynchronous = 1,
                .methods = {
                    {"object", objector_object, NULL},
                    {"falter", objector_falter, NULL},
                    {"wait", objector_wait, NULL},
                    {"refuse", objector_refuse, NULL},
                    {"exceed", objector_exceed, NULL},
                });

/* ---- founder ---------------------------------------------------------------------------- */

struct founder {
    tdm_placement_group *groups[2];
    tdm_actor *children[4];
    uint32_t children_count;
};

static tdm_status founder_found(tdm_call *call, void *self)
{
    static const struct tdm_bundle bundles[2] = {{.num_cpus = 1}, {.num_cpus = 1}};
    static const struct tdm_placement_group_options options[2] = {
        {.name = "founded", .detached = 1}, {.name = "founder's own"}};
    struct founder *founder = self;

    for (int i = 0; i < 2; i++) {
        TDM_TRY(tdm_placement_group_create_with(tdm_runtime_current(), bundles, 2, &options[i],
                                                TEST_TIMEOUT_MS, &founder->groups[i]));
    }
    return tdm_call_reply(call, "");
}

static tdm_status founder_found_for_job(tdm_call *call, void *self)
{
    static const struct tdm_bundle bundle = {.num_cpus = 1};
    static const struct tdm_placement_group_options options = {.name = "job's", .of_job = 1};
    tdm_placement_group *group;

    (void)self;
    TDM_TRY(tdm_placement_group_create_with(tdm_runtime_current(), &bundle, 1, &options,
                                            TEST_TIMEOUT_MS, &group));
    tdm_placement_group_release(group);
    return tdm_call_reply(call, "");
}

static tdm_status founder_current(tdm_call *call, void *self)
{
    tdm_placement_group *group;
    uint32_t count;

    (void)self;
    TDM_TRY(tdm_placement_group_current(tdm_runtime_current(), TEST_TIMEOUT_MS, &group));
    count = tdm_placement_group_bundles_count(group);
    tdm_placement_group_release(group);
    return tdm_call_reply(call, "i", (int64_t)count);
}

static tdm_status founder_child(tdm_call *call, void *self)
{
    struct founder *founder = self;
    struct tdm_actor_options options = {0};
    int64_t scheduling;
    tdm_actor *child;

    TDM_TRY(tdm_call_unpack(call, "i", &scheduling));
    options.scheduling = (enum tdm_scheduling)scheduling;
    TDM_TRY(tdm_actor_create(tdm_runtime_current(), "founder", &options, &child, ""));
    founder->children[founder->children_count++] = child;
    TDM_TRY(tdm_actor_wait_ready(child, TEST_TIMEOUT_MS));
    return tdm_call_reply(call, "h", child);
}

static void founder_end(void *self)
{
    struct founder *founder = self;

    for (uint32_t i = 0; i < founder->children_count; i++) {
        tdm_actor_destroy(founder->children[i]);
    }
    for (int i = 0; i < 2; i++) {
        tdm_placement_group_release(founder->groups[i]);
    }
}

TDM_ACTOR_CLASS(founder, .state_bytes = sizeof(struct founder), .destruct = founder_end,
                .methods = {
                    {"found", founder_found, NULL},
                    {"found_for_job", founder_found_for_job, NULL},
                    {"current", founder_current, NULL},
                    {"child", founder_child, NULL},
                });

void test_actors_use(void)
{
    actor_fixture_link_tester();
}
