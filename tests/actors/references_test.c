/* references_test.c - references and handles passed between processes: borrowed, counted, lost
 * with their owners. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/actor_channel.h"
#include "actors/client/actor_handle.h"
#include "actors/objects/export.h"
#include "actors/objects/large_value.h"
#include "actors/objects/objects.h"
#include "actors/objects/owned_refs.h"
#include "actors/objects/ref_table.h"
#include "actors/process/runtime.h"
#include "tests/support/actor_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- an actor that keeps what it is given ------------------------------------------------ */

enum { SHELVES = 8 };

struct keeper {
    tdm_ref *refs[SHELVES];
    tdm_actor *actor;
};

static tdm_status shelf_of(int64_t shelf)
{
    return shelf >= 0 && shelf < SHELVES ? TDM_OK : tdm_fail(TDM_E_INVAL, "no such shelf");
}

/* Method keep (shelf, reference): stores the reference. */
static tdm_status keeper_keep(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    int64_t shelf;
    tdm_ref *ref;

    TDM_TRY(tdm_call_unpack(call, "iR", &shelf, &ref));
    TDM_TRY(shelf_of(shelf));
    tdm_ref_release(keeper->refs[shelf]);
    keeper->refs[shelf] = ref;
    return TDM_OK;
}

/* Method read (shelf): returns the integer that the stored reference refers to. */
static tdm_status keeper_read(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    int64_t shelf;
    int64_t number;

    TDM_TRY(tdm_call_unpack(call, "i", &shelf));
    TDM_TRY(shelf_of(shelf));
    TDM_TRY(tdm_get(keeper->refs[shelf], TEST_TIMEOUT_MS, "i", &number));
    return tdm_call_reply(call, "i", number);
}

/* Method drop (shelf): releases the stored reference. */
static tdm_status keeper_drop(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    int64_t shelf;

    TDM_TRY(tdm_call_unpack(call, "i", &shelf));
    TDM_TRY(shelf_of(shelf));
    tdm_ref_release(keeper->refs[shelf]);
    keeper->refs[shelf] = NULL;
    return TDM_OK;
}

/* Method give (shelf): returns the stored reference. */
static tdm_status keeper_give(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    int64_t shelf;

    TDM_TRY(tdm_call_unpack(call, "i", &shelf));
    TDM_TRY(shelf_of(shelf));
    return tdm_call_reply(call, "R", keeper->refs[shelf]);
}

/* Method make (number): returns the only reference to a new value. */
static tdm_status keeper_make(tdm_call *call, void *self)
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

/* Method stream (count): yields items (index, the only reference to a new value). */
static tdm_status keeper_stream(tdm_call *call, void *self)
{
    int64_t count;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &count));
    for (int64_t i = 0; i < count; i++) {
        tdm_ref *ref;
        tdm_status status;

        TDM_TRY(tdm_put(tdm_runtime_current(), &ref, "i", 100 + i));
        status = tdm_call_yield(call, "iR", i, ref);
        tdm_ref_release(ref);
        TDM_TRY(status);
    }
    return TDM_OK;
}

/* Method make_marked (number, path): like make; creates a file when the reply has been sent. */
static tdm_status keeper_make_marked(tdm_call *call, void *self)
{
    const char *path;
    int64_t number;
    tdm_ref *ref;
    tdm_status status;
    int fd;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "is", &number, &path));
    TDM_TRY(tdm_put(tdm_runtime_current(), &ref, "i", number));
    status = tdm_call_reply(call, "R", ref);
    tdm_ref_release(ref);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    (void)close(fd);
    return status;
}

/* Method echo (value): returns its argument, with the references in it. */
static tdm_status keeper_echo(tdm_call *call, void *self)
{
    const tdm_value *value;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "v", &value));
    return tdm_call_reply(call, "v", value);
}

/* Method linger (milliseconds, number): returns the number after a delay. */
static tdm_status keeper_linger(tdm_call *call, void *self)
{
    int64_t milliseconds;
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "ii", &milliseconds, &number));
    (void)poll(NULL, 0, (int)milliseconds);
    return number < 0 ? tdm_fail(TDM_E_METHOD, "less than nothing")
                      : tdm_call_reply(call, "i", number);
}

/* Method make_late (milliseconds): returns, after a delay, a reference and bytes that need a
 * segment. */
static tdm_status keeper_make_late(tdm_call *call, void *self)
{
    static char bytes[300 * 1024];
    int64_t milliseconds;
    tdm_ref *ref;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &milliseconds));
    (void)poll(NULL, 0, (int)milliseconds);
    TDM_TRY(tdm_put(tdm_runtime_current(), &ref, "i", (int64_t)1));
    status = tdm_call_reply(call, "Rb", ref, (const void *)bytes, sizeof(bytes));
    tdm_ref_release(ref);
    return status;
}

/* Method employ (handle) keeps the handle; method ask () returns what "count" of that actor
 * replies. */
static tdm_status keeper_employ(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    tdm_actor *actor;

    TDM_TRY(tdm_call_unpack(call, "h", &actor));
    tdm_actor_destroy(keeper->actor);
    keeper->actor = actor;
    return TDM_OK;
}

static tdm_status keeper_ask(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    int64_t number;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(keeper->actor, "linger", &ref, "ii", (int64_t)0, (int64_t)42));
    status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &number);
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", number);
}

/* Method counts (): returns the numbers of owned, pinned, borrowed and kept references. */
static tdm_status keeper_counts(tdm_call *call, void *self)
{
    struct tdm__ref_table_counts count;

    (void)self;
    tdm__ref_table_counts(tdm_runtime_current(), &count);
    return tdm_call_reply(call, "uuuu", (uint64_t)count.owned, (uint64_t)count.borrower_pins,
                          (uint64_t)count.borrowed, (uint64_t)count.reply_pins);
}

static tdm_status keeper_exit(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    _exit(9);
}

static void keeper_destruct(void *self)
{
    struct keeper *keeper = self;

    for (int i = 0; i < SHELVES; i++) {
        tdm_ref_release(keeper->refs[i]);
    }
    tdm_actor_destroy(keeper->actor);
}

TDM_ACTOR_CLASS(keeper, .state_bytes = sizeof(struct keeper), .destruct = keeper_destruct,
                .methods = {
                    {"keep", keeper_keep, NULL},
                    {"read", keeper_read, NULL},
                    {"drop", keeper_drop, NULL},
                    {"give", keeper_give, NULL},
                    {"make", keeper_make, NULL},
                    {"make_marked", keeper_make_marked, NULL},
                    {"stream", keeper_stream, NULL},
                    {"echo", keeper_echo, NULL},
                    {"linger", keeper_linger, NULL},
                    {"make_late", keeper_make_late, NULL},
                    {"employ", keeper_employ, NULL},
                    {"ask", keeper_ask, NULL},
                    {"counts", keeper_counts, NULL},
                    {"exit", keeper_exit, NULL},
                });

/* ---- helpers ------------------------------------------------------------------------------ */

static tdm_runtime *runtime;
static tdm_actor *first;
static tdm_actor *second;

static void assert_ok(tdm_status status)
{
    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *keeper_create(void)
{
    tdm_actor *actor = NULL;

    assert_ok(tdm_actor_create(runtime, "keeper", NULL, &actor, ""));
    assert_ok(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    return actor;
}

static tdm_ref *put(int64_t number)
{
    tdm_ref *ref = NULL;

    assert_ok(tdm_put(runtime, &ref, "i", number));
    return ref;
}

/* Waits for the call and returns its status. */
static tdm_status done(tdm_ref *ref)
{
    const tdm_value *value;
    tdm_status status = tdm_get_value(ref, TEST_TIMEOUT_MS, &value);

    tdm_ref_release(ref);
    return status;
}

static void keep(tdm_actor *actor, int64_t shelf, tdm_ref *reply_pins)
{
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, "keep", &ref, "iR", shelf, reply_pins));
    assert_ok(done(ref));
}

static void drop(tdm_actor *actor, int64_t shelf)
{
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, "drop", &ref, "i", shelf));
    assert_ok(done(ref));
}

static tdm_status read_shelf(tdm_actor *actor, int64_t shelf, int64_t *number_out)
{
    tdm_ref *ref;
    tdm_status status;

    assert_ok(tdm_actor_call(actor, "read", &ref, "i", shelf));
    status = tdm_get(ref, TEST_TIMEOUT_MS, "i", number_out);
    tdm_ref_release(ref);
    return status;
}

static int64_t shelf_number(tdm_actor *actor, int64_t shelf)
{
    int64_t number = 0;

    assert_ok(read_shelf(actor, shelf, &number));
    return number;
}

/* Returns the reference that a method replied. */
static tdm_ref *given(tdm_actor *actor, const char *method, int64_t argument)
{
    tdm_ref *ref;
    tdm_ref *inner = NULL;

    assert_ok(tdm_actor_call(actor, method, &ref, "i", argument));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "R", &inner));
    tdm_ref_release(ref);
    return inner;
}

struct counts {
    uint64_t owned;
    uint64_t borrower_pins;
    uint64_t borrowed;
    uint64_t reply_pins;
};

static struct counts counts_of(tdm_actor *actor)
{
    struct counts counts = {0};
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, "counts", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "uuuu", &counts.owned, &counts.borrower_pins,
                      &counts.borrowed, &counts.reply_pins));
    tdm_ref_release(ref);
    return counts;
}

static struct counts counts_here(void)
{
    struct tdm__ref_table_counts count;

    tdm__ref_table_counts(runtime, &count);
    return (struct counts){count.owned, count.borrower_pins, count.borrowed, count.reply_pins};
}

static bool all_gone(struct counts counts)
{
    return counts.owned == 0 && counts.borrower_pins == 0 && counts.borrowed == 0 &&
           counts.reply_pins == 0;
}

/* Waits until nothing is counted in any process, since unpins are messages. */
static void assert_nothing_is_held(void)
{
    struct counts here = {0};
    struct counts one = {0};
    struct counts two = {0};

    for (int i = 0; i < TEST_TIMEOUT_MS / 5; i++) {
        one = counts_of(first);
        two = counts_of(second);
        here = counts_here();
        if (all_gone(here) && all_gone(one) && all_gone(two)) {
            return;
        }
        (void)poll(NULL, 0, 5);
    }
    fail_msg("still held: here %llu %llu %llu %llu, first %llu %llu %llu %llu, second %llu "
             "%llu %llu %llu (owned, borrower_pins, borrowed, kept)",
             (unsigned long long)here.owned, (unsigned long long)here.borrower_pins,
             (unsigned long long)here.borrowed, (unsigned long long)here.reply_pins,
             (unsigned long long)one.owned, (unsigned long long)one.borrower_pins,
             (unsigned long long)one.borrowed, (unsigned long long)one.reply_pins,
             (unsigned long long)two.owned, (unsigned long long)two.borrower_pins,
             (unsigned long long)two.borrowed, (unsigned long long)two.reply_pins);
}

/* ---- borrowing -------------------------------------------------------------------------- */

static void borrowed_value_outlives_the_owners_reference(void **state)
{
    tdm_ref *ref = put(7);

    (void)state;
    keep(first, 0, ref);
    tdm_ref_release(ref);
    assert_int_equal(counts_here().borrower_pins, 1);
    assert_int_equal(tdm_runtime_shared_refs_count(runtime), 1);
    assert_int_equal(shelf_number(first, 0), 7);
    assert_int_equal(shelf_number(first, 0), 7);
    drop(first, 0);
    assert_nothing_is_held();
}

static void borrower_passes_it_on(void **state)
{
    tdm_ref *ref = put(8);
    tdm_ref *back;
    int64_t number;

    (void)state;
    keep(first, 0, ref);
    tdm_ref_release(ref);
    back = given(first, "give", 0);
    keep(second, 1, back);
    drop(first, 0);
    assert_ok(tdm_get(back, 0, "i", &number)); /* The value is back at its owner. */
    assert_int_equal(number, 8);
    tdm_ref_release(back);
    assert_int_equal(shelf_number(second, 1), 8);
    drop(second, 1);
    assert_nothing_is_held();
}

static void actors_reference_reaches_others_through_a_driver(void **state)
{
    tdm_ref *ref = given(first, "make", 9);
    int64_t number;

    (void)state;
    keep(second, 0, ref);
    tdm_ref_release(ref);
    assert_int_equal(shelf_number(second, 0), 9);
    drop(second, 0);

    ref = given(first, "make", 10);
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "i", &number));
    assert_int_equal(number, 10);
    tdm_ref_release(ref);
    assert_nothing_is_held();
}

static void result_to_come_can_be_passed_on(void **state)
{
    tdm_ref *late;
    tdm_ref *failed;
    int64_t number;

    (void)state;
    assert_ok(tdm_actor_call(first, "linger", &late, "ii", (int64_t)50, (int64_t)11));
    keep(second, 0, late);
    tdm_ref_release(late);
    assert_int_equal(shelf_number(second, 0), 11);

    assert_ok(tdm_actor_call(first, "linger", &failed, "ii", (int64_t)20, (int64_t)-1));
    keep(second, 1, failed);
    tdm_ref_release(failed);
    assert_int_equal(read_shelf(second, 1, &number), TDM_E_METHOD);
    assert_non_null(strstr(tdm_error_detail(), "less than nothing"));
    drop(second, 0);
    drop(second, 1);
    assert_nothing_is_held();
}

static void references_inside_values_live_with_them(void **state)
{
    tdm_ref *inner = put(12);
    tdm_ref *outer;
    tdm_ref *ref;
    tdm_ref *found;
    tdm_ref *none;
    const tdm_value *values;
    int64_t number;

    (void)state;
    assert_ok(tdm_put(runtime, &outer, "(sR)", "inside", inner));
    tdm_ref_release(inner);
    assert_ok(tdm_actor_call(first, "echo", &ref, "r", outer));
    tdm_ref_release(outer);
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "v", &values));
    assert_ok(tdm_value_ref(runtime, tdm_value_at(values, 1), &found));
    tdm_ref_release(ref);
    assert_ok(tdm_get(found, TEST_TIMEOUT_MS, "i", &number));
    assert_int_equal(number, 12);
    assert_int_equal(tdm_value_ref(runtime, NULL, &none), TDM_E_TYPE);
    assert_null(none);
    tdm_ref_release(found);

    /* The same with a value that another process owns, which contains a reference of a third. */
    found = given(first, "make", 13);
    assert_ok(tdm_put(runtime, &outer, "R", found));
    tdm_ref_release(found);
    keep(second, 0, outer);
    tdm_ref_release(outer);
    outer = given(second, "give", 0);
    drop(second, 0);
    assert_ok(tdm_get(outer, TEST_TIMEOUT_MS, "R", &found));
    tdm_ref_release(outer);
    assert_ok(tdm_get(found, TEST_TIMEOUT_MS, "i", &number));
    assert_int_equal(number, 13);
    tdm_ref_release(found);
    assert_nothing_is_held();
}

static void many_references_are_awaited_together(void **state)
{
    tdm_ref *refs[3];
    const tdm_value *values[3];
    tdm_ref *copy;
    uint8_t ready[3];

    (void)state;
    refs[0] = put(1);
    refs[1] = given(first, "make", 2);
    assert_ok(tdm_actor_call(second, "linger", &refs[2], "ii", (int64_t)20, (int64_t)3));
    assert_ok(tdm_wait(refs, 3, 3, TEST_TIMEOUT_MS, ready));
    assert_ok(tdm_get_many(refs, 3, TEST_TIMEOUT_MS, values));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm_value_int(tdm_value_at(values[i], 0), 0), i + 1);
    }
    assert_ok(tdm_ref_copy(refs[1], &copy));
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
    assert_ok(tdm_get_many(&copy, 1, 0, values));
    tdm_ref_release(copy);

    assert_ok(tdm_actor_call(first, "linger", &refs[0], "ii", (int64_t)0, (int64_t)-1));
    assert_ok(tdm_actor_call(second, "linger", &refs[1], "ii", (int64_t)300, (int64_t)1));
    assert_int_equal(tdm_get_many(refs, 2, TEST_TIMEOUT_MS, values), TDM_E_METHOD);
    assert_non_null(strstr(tdm_error_detail(), "result 1 of 2"));
    assert_int_equal(tdm_get_many(&refs[1], 1, 0, values), TDM_E_TIMEOUT);
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
    assert_nothing_is_held();
}

static void counts_of_many_puts_return_to_zero(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 2000; i++) {
        tdm_ref *ref = put(i);
        int64_t number = -1;

        assert_ok(tdm_get(ref, 0, "i", &number));
        assert_int_equal(number, i);
        if (i % 100 == 0) {
            keep(first, 0, ref);
            assert_int_equal(shelf_number(first, 0), i);
        }
        tdm_ref_release(ref);
    }
    drop(first, 0);
    assert_nothing_is_held();
}

/* ---- streams, and replies that are sent again --------------------------------------------- */

static void references_come_in_items(void **state)
{
    enum { ITEMS = 40 }; /* More items than the stream may send ahead. */
    tdm_ref *found[ITEMS];
    tdm_stream *stream;
    tdm_ref *item;

    (void)state;
    assert_ok(tdm_actor_stream(first, "stream", NULL, &stream, "i", (int64_t)ITEMS));
    for (int64_t i = 0; i < ITEMS; i++) {
        int64_t index = -1;

        assert_ok(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item));
        assert_ok(tdm_get(item, TEST_TIMEOUT_MS, "iR", &index, &found[i]));
        assert_int_equal(index, i);
        tdm_ref_release(item);
    }
    assert_int_equal(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item), TDM_E_END);
    tdm_stream_destroy(stream);
    for (int64_t i = 0; i < ITEMS; i++) {
        int64_t number = 0;

        assert_ok(tdm_get(found[i], TEST_TIMEOUT_MS, "i", &number));
        assert_int_equal(number, 100 + i);
        tdm_ref_release(found[i]);
    }
    assert_nothing_is_held();
}

static void items_that_are_not_taken_leave_nothing_pinned(void **state)
{
    tdm_stream *stream;
    tdm_ref *item;

    (void)state;
    assert_ok(tdm_actor_stream(first, "stream", NULL, &stream, "i", (int64_t)1000));
    assert_ok(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item));
    tdm_ref_release(item);
    tdm_stream_destroy(stream);
    assert_nothing_is_held();
}

/* Closes the connection when the reply has arrived but is unread; this thread has the loop. */
static void cut_after(tdm_actor *actor, const char *path)
{
    bool marked = false;

    for (int i = 0; i < TEST_TIMEOUT_MS && !marked; i++) {
        marked = access(path, F_OK) == 0;
        (void)poll(NULL, 0, 1);
    }
    assert_true(marked);
    tdm__conn_close(actor->channel->conn);
}

static void repeated_reply_still_has_its_references(void **state)
{
    tdm_actor *actor = keeper_create();
    char path[256];
    tdm_ref *ref = NULL;
    tdm_ref *inner = NULL;
    struct counts counts;
    int64_t number = 0;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/marked", runtime->directory);
    (void)counts_of(actor); /* The call opens a connection. */
    {
        TDM__LOCK(runtime);

        assert_ok(tdm_actor_call(actor, "make_marked", &ref, "is", (int64_t)17, path));
        cut_after(actor, path);
    }
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "R", &inner));
    tdm_ref_release(ref);
    assert_ok(tdm_get(inner, TEST_TIMEOUT_MS, "i", &number));
    assert_int_equal(number, 17);
    tdm_ref_release(inner);
    for (int i = 0; i < TEST_TIMEOUT_MS / 5; i++) {
        counts = counts_of(actor);
        if (all_gone(counts)) {
            break;
        }
        (void)poll(NULL, 0, 5);
    }
    assert_true(all_gone(counts));
    assert_int_equal(unlink(path), 0);
    tdm_actor_destroy(actor);
    assert_nothing_is_held();
}

static void late_reply_leaves_nothing_pinned(void **state)
{
    struct tdm_call_options options = {.timeout_ms = 100};
    struct tdm__object_memory_stats use;
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_actor_call_with(first, "make_late", &options, &ref, "i", (int64_t)300));
    assert_int_equal(done(ref), TDM_E_TIMEOUT);
    assert_nothing_is_held();
    tdm__object_memory_stats(runtime, &use);
    assert_int_equal(use.read_count, 0);
}

/* ---- ends of processes -------------------------------------------------------------------- */

/* Writes the path of the socket at which the actor listens for borrowers. */
static void owner_socket(tdm_actor *actor, char *path, size_t path_bytes)
{
    struct tdm_runtime_info node;
    struct tdm_actor_info info;

    tdm_runtime_describe(runtime, &node);
    tdm_actor_describe(actor, &info);
    (void)snprintf(path, path_bytes, "%s/" TDM__OWNER_SOCKET, node.directory, info.id);
}

static void missing_values_are_lost_when_the_owner_dies(void **state)
{
    tdm_actor *owner = keeper_create();
    char socket[200];
    tdm_ref *here = given(owner, "make", 14);
    tdm_ref *lost = given(owner, "make", 15);
    tdm_ref *ref;
    int64_t number;

    (void)state;
    assert_ok(tdm_get(here, TEST_TIMEOUT_MS, "i", &number));
    keep(first, 0, lost);
    owner_socket(owner, socket, sizeof(socket));
    assert_int_equal(access(socket, F_OK), 0);
    assert_ok(tdm_actor_call(owner, "exit", &ref, ""));
    assert_int_equal(done(ref), TDM_E_ACTOR_DIED);
    assert_int_equal(access(socket, F_OK), -1);
    assert_int_equal(tdm_get(lost, TEST_TIMEOUT_MS, "i", &number), TDM_E_OWNER_DIED);
    assert_non_null(strstr(tdm_error_detail(), "exit code 9"));
    assert_ok(tdm_get(here, 0, "i", &number));
    assert_int_equal(number, 14);
    assert_int_equal(read_shelf(first, 0, &number), TDM_E_OWNER_DIED);
    /* A reference that is passed on now cannot be registered; the receiver is told, too. */
    keep(second, 0, lost);
    assert_int_equal(read_shelf(second, 0, &number), TDM_E_OWNER_DIED);
    drop(first, 0);
    drop(second, 0);
    tdm_ref_release(here);
    tdm_ref_release(lost);
    tdm_actor_destroy(owner);
    assert_nothing_is_held();
}

static void borrowers_death_returns_its_holds(void **state)
{
    tdm_actor *borrower = keeper_create();
    tdm_ref *ref = put(16);

    (void)state;
    keep(borrower, 0, ref);
    keep(first, 0, ref);
    tdm_ref_release(ref);
    assert_int_equal(counts_here().borrower_pins, 2);
    assert_ok(tdm_actor_kill(borrower, TEST_TIMEOUT_MS));
    tdm_actor_destroy(borrower);
    assert_int_equal(shelf_number(first, 0), 16);
    drop(first, 0);
    assert_nothing_is_held();
}

/* ---- handles ---------------------------------------------------------------------------- */

static void handle_works_where_it_arrives(void **state)
{
    tdm_actor *third = keeper_create();
    tdm_ref *ref;
    int64_t number;

    (void)state;
    assert_ok(tdm_actor_call(first, "employ", &ref, "h", third));
    assert_ok(done(ref));
    assert_ok(tdm_actor_call(first, "ask", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "i", &number));
    assert_int_equal(number, 42);
    tdm_ref_release(ref);
    assert_int_equal(counts_of(first).borrowed, 1);

    /* This releases the handle of the third actor. */
    assert_ok(tdm_actor_call(first, "employ", &ref, "h", second));
    assert_ok(done(ref));
    /* The actor gets a handle to itself. */
    assert_ok(tdm_actor_call(first, "employ", &ref, "h", first));
    assert_ok(done(ref));
    tdm_actor_destroy(third);
    assert_int_equal(counts_of(first).borrowed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(borrowed_value_outlives_the_owners_reference),
        cmocka_unit_test(borrower_passes_it_on),
        cmocka_unit_test(actors_reference_reaches_others_through_a_driver),
        cmocka_unit_test(result_to_come_can_be_passed_on),
        cmocka_unit_test(references_inside_values_live_with_them),
        cmocka_unit_test(many_references_are_awaited_together),
        cmocka_unit_test(counts_of_many_puts_return_to_zero),
        cmocka_unit_test(references_come_in_items),
        cmocka_unit_test(items_that_are_not_taken_leave_nothing_pinned),
        cmocka_unit_test(repeated_reply_still_has_its_references),
        cmocka_unit_test(late_reply_leaves_nothing_pinned),
        cmocka_unit_test(missing_values_are_lost_when_the_owner_dies),
        cmocka_unit_test(borrowers_death_returns_its_holds),
        cmocka_unit_test(handle_works_where_it_arrives),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    first = keeper_create();
    second = keeper_create();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_actor_destroy(first);
    tdm_actor_destroy(second);
    return failed + actor_fixture_close(runtime);
}
