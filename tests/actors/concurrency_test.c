/* concurrency_test.c - actors with threads, asynchronous ones, and how they leave. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_runtime *runtime;

/* ---- an actor with threads -------------------------------------------------------------- */

struct meeting {
    atomic_int here;
};

/* Returns only when as many others are inside as it was told: proof that they run at once. */
static tdm_status meet(tdm_call *call, void *self)
{
    struct meeting *meeting = self;
    int64_t others;

    TDM_TRY(tdm_call_unpack(call, "i", &others));
    (void)atomic_fetch_add(&meeting->here, 1);
    while (atomic_load(&meeting->here) < others) {
        if (tdm_call_remaining_ms(call) == 0) {
            return tdm_fail(TDM_E_TIMEOUT, "alone");
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return tdm_call_reply(call, "i", (int64_t)gettid());
}

static tdm_status here(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", (int64_t)atomic_load(&((struct meeting *)self)->here));
}

/* Calls another actor and waits, on whichever of its threads this is. */
static tdm_status ask(tdm_call *call, void *self)
{
    tdm_actor *other;
    tdm_ref *ref = NULL;
    int64_t total = 0;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_actor_find(tdm_runtime_current(), "adder", TEST_TIMEOUT_MS, &other));
    status = tdm_actor_call(other, "add", &ref, "i", (int64_t)1);
    if (status == TDM_OK) {
        status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &total);
    }
    tdm_ref_release(ref);
    tdm_actor_destroy(other);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", total);
}

TDM_ACTOR_CLASS(meeting, .state_bytes = sizeof(struct meeting),
                .methods = {{"meet", meet}, {"here", here}, {"ask", ask}});
TDM_ACTOR_CLASS(grouped_meeting, .state_bytes = sizeof(struct meeting),
                .methods = {{"meet", meet, "meetings"}, {"here", here}},
                .concurrency_groups = {{"meetings", 2}});

static tdm_actor *create(const char *class_name, uint32_t max_concurrency)
{
    tdm_actor *actor;

    assert_int_equal(
        tdm_actor_create(runtime, class_name,
                         &(struct tdm_actor_options){.max_concurrency = max_concurrency}, &actor,
                         ""),
        TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    return actor;
}

static void threads_of_an_actor_run_at_once(void **state)
{
    tdm_actor *actor = create("meeting", 4);
    tdm_ref *refs[4];
    int64_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tdm_actor_call(actor, "meet", &refs[i], "i", (int64_t)4), TDM_OK);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, "i", &threads[i]), TDM_OK);
        tdm_ref_release(refs[i]);
        for (int other = 0; other < i; other++) {
            assert_int_not_equal(threads[i], threads[other]);
        }
    }
    tdm_actor_destroy(actor);
}

static void threads_of_an_actor_wait_for_others_each_for_itself(void **state)
{
    enum { ASKS = 100 };
    tdm_actor *adder = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "adder"});
    tdm_actor *actor = create("meeting", 4);
    tdm_ref *refs[ASKS];
    int64_t sum = 0;

    (void)state;
    for (int i = 0; i < ASKS; i++) {
        assert_int_equal(tdm_actor_call(actor, "ask", &refs[i], ""), TDM_OK);
    }
    for (int i = 0; i < ASKS; i++) {
        int64_t total;

        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, "i", &total), TDM_OK);
        sum += total;
        tdm_ref_release(refs[i]);
    }
    assert_int_equal(sum, ASKS * (ASKS + 1) / 2);
    tdm_actor_destroy(actor);
    tdm_actor_destroy(adder);
}

static void busy_group_leaves_the_others_free(void **state)
{
    tdm_actor *actor = create("grouped_meeting", 0);
    tdm_ref *first;
    tdm_ref *second;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "meet", &first, "i", (int64_t)2), TDM_OK);
    /* The actor replies while "meet" is running. */
    while (actor_fixture_call_int(actor, "here") < 1) {
    }
    assert_int_equal(tdm_actor_call(actor, "meet", &second, "i", (int64_t)2), TDM_OK);
    assert_int_equal(tdm_get(first, TEST_TIMEOUT_MS, "i", &(int64_t){0}), TDM_OK);
    assert_int_equal(tdm_get(second, TEST_TIMEOUT_MS, "i", &(int64_t){0}), TDM_OK);
    tdm_ref_release(first);
    tdm_ref_release(second);
    tdm_actor_destroy(actor);
}

/* ---- an asynchronous actor -------------------------------------------------------------- */

enum { PATRONS = 1000 };

struct library {
    tdm_call *waiting[PATRONS];
    uint32_t waiting_count;
    pthread_t thread;
    int has_thread;
};

static tdm_status borrow(tdm_call *call, void *self)
{
    struct library *library = self;

    TDM_TRY(tdm_call_keep(call));
    library->waiting[library->waiting_count++] = call;
    return TDM_OK;
}

static void *serve_patrons(void *arg)
{
    struct library *library = arg;

    for (uint32_t i = 0; i < library->waiting_count; i++) {
        int64_t number = 0;
        tdm_status status = tdm_call_unpack(library->waiting[i], "i", &number);

        if (status == TDM_OK && number % 2 == 0) {
            (void)tdm_call_reply(library->waiting[i], "i", number * 2);
        } else {
            tdm_call_fail(library->waiting[i], TDM_E_METHOD, "no book %lld", (long long)number);
        }
    }
    return NULL;
}

/* Answers the others from a thread of its own, and itself at once. */
static tdm_status open_doors(tdm_call *call, void *self)
{
    struct library *library = self;

    if (pthread_create(&library->thread, NULL, serve_patrons, library) != 0) {
        return tdm_fail(TDM_E_IO, "pthread_create");
    }
    library->has_thread = 1;
    return tdm_call_reply(call, "i", (int64_t)library->waiting_count);
}

static void close_library(void *self)
{
    struct library *library = self;

    if (library->has_thread != 0) {
        (void)pthread_join(library->thread, NULL);
    }
}

TDM_ACTOR_CLASS(library, .state_bytes = sizeof(struct library), .destruct = close_library,
                .methods = {{"borrow", borrow}, {"open", open_doors}}, .asynchronous = 1);

static void asynchronous_actor_keeps_a_thousand_calls(void **state)
{
    static tdm_ref *refs[PATRONS];
    tdm_actor *actor = create("library", PATRONS + 1);

    (void)state;
    for (int i = 0; i < PATRONS; i++) {
        assert_int_equal(tdm_actor_call(actor, "borrow", &refs[i], "i", (int64_t)i), TDM_OK);
    }
    assert_int_equal(actor_fixture_call_int(actor, "open"), PATRONS);
    for (int i = 0; i < PATRONS; i++) {
        int64_t reply = 0;
        tdm_status status = tdm_get(refs[i], TEST_TIMEOUT_MS, "i", &reply);

        assert_int_equal(status, i % 2 == 0 ? TDM_OK : TDM_E_METHOD);
        assert_int_equal(reply, i % 2 == 0 ? i * 2 : 0);
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(actor);
}

/* ---- leaving ---------------------------------------------------------------------------- */

struct leaver {
    char path[64]; /* Path of a file that counts the runs of destruct. */
};

static tdm_status will_write(tdm_call *call, void *self)
{
    struct leaver *leaver = self;
    const char *path;

    TDM_TRY(tdm_call_unpack(call, "s", &path));
    (void)snprintf(leaver->path, sizeof(leaver->path), "%s", path);
    return TDM_OK;
}

static tdm_status leave(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    TDM_TRY(tdm_runtime_exit_actor(tdm_runtime_current()));
    return tdm_call_reply(call, "s", info.class_name); /* A running method still replies. */
}

static tdm_status idle(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "i", (int64_t)getpid());
}

static void write_end(void *self)
{
    struct leaver *leaver = self;
    FILE *file = fopen(leaver->path, "a");

    if (file != NULL) {
        (void)fputs("end\n", file);
        (void)fclose(file);
    }
}

TDM_ACTOR_CLASS(leaver, .state_bytes = sizeof(struct leaver), .destruct = write_end,
                .methods = {{"will_write", will_write}, {"leave", leave}, {"idle", idle}});

static void expect_one_end(const char *path)
{
    char text[16] = "";
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    assert_string_equal(text, "end\n");
    assert_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    (void)unlink(path);
}

static void leave_from_inside(uint32_t max_concurrency)
{
    tdm_actor *actor = create("leaver", max_concurrency);
    int64_t pid = actor_fixture_call_int(actor, "idle");
    char path[64];
    tdm_ref *refs[2];
    const char *class_name = "";

    (void)snprintf(path, sizeof(path), "%s/ends", getenv("TMPDIR"));
    assert_int_equal(actor_fixture_call(actor, "will_write", path), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "leave", &refs[0], ""), TDM_OK);
    assert_int_equal(tdm_get(refs[0], TEST_TIMEOUT_MS, "s", &class_name), TDM_OK);
    assert_string_equal(class_name, "leaver");
    assert_int_equal(tdm_actor_call(actor, "idle", &refs[1], ""), TDM_OK);
    assert_int_equal(tdm_get(refs[1], TEST_TIMEOUT_MS, "i", &pid), TDM_E_ACTOR_DIED);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    expect_one_end(path);
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
    tdm_actor_destroy(actor);
}

static void actor_may_leave_by_itself(void **state)
{
    (void)state;
    leave_from_inside(0);
    leave_from_inside(3);
}

static void only_actors_leave_by_themselves(void **state)
{
    (void)state;
    assert_int_equal(tdm_runtime_exit_actor(runtime), TDM_E_STATE);
}

/* ---- an actor with methods of any name -------------------------------------------------- */

static tdm_status told(tdm_call *call, void *self)
{
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    return tdm_call_reply(call, "si", tdm_call_method(call), number);
}

TDM_ACTOR_CLASS(parrot, .methods = {{"*", told}});

static void class_may_take_every_name(void **state)
{
    tdm_actor *actor = create("parrot", 0);
    const char *name;
    tdm_ref *ref;
    int64_t number;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "__len__", &ref, "i", (int64_t)7), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "si", &name, &number), TDM_OK);
    assert_string_equal(name, "__len__");
    assert_int_equal(number, 7);
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_an_actor_run_at_once),
        cmocka_unit_test(threads_of_an_actor_wait_for_others_each_for_itself),
        cmocka_unit_test(busy_group_leaves_the_others_free),
        cmocka_unit_test(asynchronous_actor_keeps_a_thousand_calls),
        cmocka_unit_test(actor_may_leave_by_itself),
        cmocka_unit_test(only_actors_leave_by_themselves),
        cmocka_unit_test(class_may_take_every_name),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
