/* large_value_test.c - large values are in shared memory once, and their memory is reused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/large_value.h"

#include "actors/objects/export.h"
#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "tests/support/actor_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

/* ---- an actor that reads and keeps large values ------------------------------------------ */

struct hoarder {
    tdm_ref *ref;
};

static uint64_t sum_of(const void *data, size_t size_bytes)
{
    const uint8_t *bytes = data;
    uint64_t sum = size_bytes;

    for (size_t i = 0; i < size_bytes; i += 61) {
        sum = sum * 31 + bytes[i];
    }
    return sum;
}

/* Method sum (bytes): replies the sum of the bytes. */
static tdm_status hoarder_sum(tdm_call *call, void *self)
{
    const void *bytes;
    size_t size_bytes;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "b", &bytes, &size_bytes));
    return tdm_call_reply(call, "u", sum_of(bytes, size_bytes));
}

/* Method keep (reference): keeps the value and replies the sum of its bytes. Method drop ()
 * releases it. */
static tdm_status hoarder_keep(tdm_call *call, void *self)
{
    struct hoarder *hoarder = self;
    const void *bytes;
    size_t size_bytes;

    tdm_ref_release(hoarder->ref);
    hoarder->ref = NULL;
    TDM_TRY(tdm_call_unpack(call, "R", &hoarder->ref));
    TDM_TRY(tdm_get(hoarder->ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    return tdm_call_reply(call, "u", sum_of(bytes, size_bytes));
}

static tdm_status hoarder_drop(tdm_call *call, void *self)
{
    struct hoarder *hoarder = self;

    (void)call;
    tdm_ref_release(hoarder->ref);
    hoarder->ref = NULL;
    return TDM_OK;
}

/* Method give (): replies the kept reference. */
static tdm_status hoarder_give(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "R", ((struct hoarder *)self)->ref);
}

/* Method echo (bytes): replies the bytes. */
static tdm_status hoarder_echo(tdm_call *call, void *self)
{
    const void *bytes;
    size_t size_bytes;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "b", &bytes, &size_bytes));
    return tdm_call_reply(call, "b", bytes, size_bytes);
}

/* Method mixed (integer, bytes, text, integer, reference): replies the sum of the bytes, the
 * integers and the length of the text. */
static tdm_status hoarder_mixed(tdm_call *call, void *self)
{
    const void *bytes;
    size_t size_bytes;
    int64_t first;
    int64_t second;
    const char *text;
    tdm_ref *ref;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "ibsiR", &first, &bytes, &size_bytes, &text, &second, &ref));
    tdm_ref_release(ref);
    return tdm_call_reply(
        call, "u", sum_of(bytes, size_bytes) + (uint64_t)first + (uint64_t)second + strlen(text));
}

/* Method join (bytes, ...): replies all bytes one after the other. */
static tdm_status hoarder_join(tdm_call *call, void *self)
{
    const tdm_value *arguments = tdm_call_arguments(call);
    static char joined[MIB * 4];
    size_t joined_bytes = 0;

    (void)self;
    for (uint32_t i = 0; i < tdm_value_count(arguments); i++) {
        struct tdm_bytes bytes = tdm_value_bytes(tdm_value_at(arguments, i));

        memcpy(joined + joined_bytes, bytes.data, bytes.size_bytes);
        joined_bytes += bytes.size_bytes;
    }
    return tdm_call_reply(call, "b", (const void *)joined, joined_bytes);
}

/* Method cut (bytes, pieces): streams that many equal pieces of the bytes. */
static tdm_status hoarder_cut(tdm_call *call, void *self)
{
    const char *bytes;
    size_t size_bytes;
    int64_t pieces;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "bi", &bytes, &size_bytes, &pieces));
    for (int64_t i = 0; i < pieces; i++) {
        size_t part = size_bytes / (size_t)pieces;

        TDM_TRY(tdm_call_yield(call, "b", bytes + (size_t)i * part, part));
    }
    return TDM_OK;
}

/* Method block (path): blocks until a process writes to that fifo. */
static tdm_status hoarder_block(tdm_call *call, void *self)
{
    const char *path;
    int fd;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &path));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)close(fd);
    }
    return fd >= 0 ? TDM_OK : tdm_fail(TDM_E_IO, "open: %s", path);
}

/* Method use (): replies bytes in use, idle bytes, exported values, imported values. */
static tdm_status hoarder_use(tdm_call *call, void *self)
{
    struct tdm__object_memory_stats use;

    (void)self;
    tdm__object_memory_stats(tdm_runtime_current(), &use);
    return tdm_call_reply(call, "uuuu", use.used_bytes, use.idle_bytes,
                          (uint64_t)use.exported_count, (uint64_t)use.read_count);
}

static void hoarder_destruct(void *self)
{
    tdm_ref_release(((struct hoarder *)self)->ref);
}

TDM_ACTOR_CLASS(hoarder, .state_bytes = sizeof(struct hoarder), .destruct = hoarder_destruct,
                .methods = {
                    {"sum", hoarder_sum, NULL},
                    {"keep", hoarder_keep, NULL},
                    {"drop", hoarder_drop, NULL},
                    {"give", hoarder_give, NULL},
                    {"echo", hoarder_echo, NULL},
                    {"mixed", hoarder_mixed, NULL},
                    {"join", hoarder_join, NULL},
                    {"cut", hoarder_cut, NULL},
                    {"block", hoarder_block, NULL},
                    {"use", hoarder_use, NULL},
                });

/* ---- helpers ------------------------------------------------------------------------------ */

static tdm_runtime *runtime;
static tdm_actor *reader;
static char *data;
static const size_t data_bytes = 5 * MIB + 123;

static void assert_ok(tdm_status status)
{
    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *hoarder_create(void)
{
    tdm_actor *actor = NULL;

    assert_ok(tdm_actor_create(runtime, "hoarder", NULL, &actor, ""));
    assert_ok(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    return actor;
}

static uint64_t number_of(tdm_ref *ref)
{
    uint64_t number = 0;

    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "u", &number));
    tdm_ref_release(ref);
    return number;
}

static struct tdm__object_memory_stats use_of(tdm_actor *actor)
{
    struct tdm__object_memory_stats use = {0};
    uint64_t exported_count;
    uint64_t read_count;
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, "use", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "uuuu", &use.used_bytes, &use.idle_bytes,
                      &exported_count, &read_count));
    use.exported_count = (uint32_t)exported_count;
    use.read_count = (uint32_t)read_count;
    tdm_ref_release(ref);
    return use;
}

static struct tdm__object_memory_stats use_here(void)
{
    struct tdm__object_memory_stats use;

    tdm__object_memory_stats(runtime, &use);
    return use;
}

/* Exports are returned by messages of their own, so the test waits for them. */
static void assert_all_returned(tdm_actor *actor)
{
    struct tdm__object_memory_stats here = {0};
    struct tdm__object_memory_stats there = {0};

    for (int i = 0; i < TEST_TIMEOUT_MS / 5; i++) {
        there = use_of(actor);
        here = use_here();
        if (here.used_bytes + here.exported_count + here.read_count == 0 &&
            there.used_bytes + there.exported_count + there.read_count == 0) {
            return;
        }
        (void)poll(NULL, 0, 5);
    }
    fail_msg("here %llu bytes, %u exported, %u imported; there %llu, %u, %u",
             (unsigned long long)here.used_bytes, here.exported_count, here.read_count,
             (unsigned long long)there.used_bytes, there.exported_count, there.read_count);
}

static void drop(tdm_actor *actor)
{
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, "drop", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, ""));
    tdm_ref_release(ref);
}

/* ---- tests ------------------------------------------------------------------------------ */

static void large_value_is_read_in_place_by_others(void **state)
{
    tdm_ref *put;
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_put(runtime, &put, "b", (const void *)data, data_bytes));
    assert_true(use_here().used_bytes >= data_bytes);
    assert_ok(tdm_actor_call(reader, "keep", &ref, "R", put));
    assert_int_equal(number_of(ref), sum_of(data, data_bytes));
    assert_int_equal(use_here().exported_count, 1);
    assert_int_equal(use_of(reader).read_count, 1);
    assert_int_equal(use_of(reader).used_bytes, 0); /* The reader has made no copy. */
    tdm_ref_release(put);
    assert_true(use_here().used_bytes >= data_bytes);
    drop(reader);
    assert_all_returned(reader);
}

static void memory_is_used_again_while_it_is_warm(void **state)
{
    tdm_ref *ref;
    uint64_t idle_bytes;

    (void)state;
    assert_ok(tdm_put(runtime, &ref, "b", (const void *)data, data_bytes));
    tdm_ref_release(ref);
    idle_bytes = use_here().idle_bytes;
    assert_true(idle_bytes >= data_bytes);
    for (int i = 0; i < 20; i++) {
        assert_ok(tdm_put(runtime, &ref, "b", (const void *)data, data_bytes - (size_t)i));
        tdm_ref_release(ref);
    }
    assert_int_equal(use_here().idle_bytes, idle_bytes);
}

static void freed_value_gives_its_memory_back_while_references_live(void **state)
{
    const void *bytes;
    size_t size_bytes;
    tdm_ref *unread;
    tdm_ref *read;
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_put(runtime, &unread, "b", (const void *)data, data_bytes));
    assert_ok(tdm_get(unread, 0, "b", &bytes, &size_bytes));
    assert_ok(tdm_ref_free_value(unread));
    assert_int_equal(use_here().used_bytes, 0);
    assert_int_equal(tdm_get(unread, 0, "b", &bytes, &size_bytes), TDM_E_VALUE_LOST);
    tdm_ref_release(unread);

    assert_ok(tdm_put(runtime, &read, "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(reader, "keep", &ref, "R", read));
    assert_int_equal(number_of(ref), sum_of(data, data_bytes));
    assert_ok(tdm_ref_free_value(read));
    /* The reader keeps its export as long as it reads. */
    assert_int_equal(use_here().exported_count, 1);
    assert_true(use_here().used_bytes >= data_bytes);
    drop(reader);
    assert_all_returned(reader);
    tdm_ref_release(read);

    assert_ok(tdm_actor_call(reader, "echo", &ref, "b", (const void *)data, data_bytes));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_ok(
        tdm_ref_free_value(ref)); /* The value is in the memory of the process that created it. */
    assert_int_equal(use_here().read_count, 0);
    tdm_ref_release(ref);
    assert_all_returned(reader);
}

static void exported_segment_is_not_reused(void **state)
{
    tdm_ref *put;
    tdm_ref *ref;
    const void *bytes;
    size_t size_bytes;

    (void)state;
    assert_ok(tdm_put(runtime, &put, "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(reader, "keep", &ref, "R", put));
    (void)number_of(ref);
    assert_ok(tdm_actor_call(reader, "give", &ref, ""));
    tdm_ref_release(put);
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "R", &put));
    tdm_ref_release(ref);
    for (int i = 0; i < 4; i++) {
        char other[200 * 1024];
        tdm_ref *next;

        memset(other, i, sizeof(other));
        assert_ok(tdm_put(runtime, &next, "b", (const void *)other, sizeof(other)));
        tdm_ref_release(next);
    }
    assert_ok(tdm_get(put, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_int_equal(size_bytes, data_bytes);
    assert_memory_equal(bytes, data, data_bytes);
    tdm_ref_release(put);
    drop(reader);
    assert_all_returned(reader);
}

static void large_arguments_and_replies_travel_by_descriptor(void **state)
{
    tdm_ref *ref;
    const void *bytes;
    size_t size_bytes;

    (void)state;
    assert_ok(tdm_actor_call(reader, "sum", &ref, "b", (const void *)data, data_bytes));
    assert_int_equal(number_of(ref), sum_of(data, data_bytes));
    assert_ok(tdm_actor_call(reader, "echo", &ref, "b", (const void *)data, data_bytes));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_int_equal(size_bytes, data_bytes);
    assert_memory_equal(bytes, data, data_bytes);
    assert_int_equal(use_here().read_count, 1);
    tdm_ref_release(ref);
    assert_all_returned(reader);
}

/* Two calls end before they begin: one is canceled, the deadline of the other passes. */
static void arguments_of_calls_that_never_run_come_back(void **state)
{
    const struct tdm_call_options hurried = {.timeout_ms = 20};
    char path[128];
    tdm_ref *blocked;
    tdm_ref *canceled;
    tdm_ref *late;
    int fd;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/tandem-large-test-%d", (int)getpid());
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_ok(tdm_actor_call(reader, "block", &blocked, "s", path));
    assert_ok(tdm_actor_call(reader, "sum", &canceled, "b", (const void *)data, data_bytes));
    assert_ok(
        tdm_actor_call_with(reader, "sum", &hurried, &late, "b", (const void *)data, data_bytes));
    assert_int_equal(tdm_get(late, TEST_TIMEOUT_MS, ""), TDM_E_TIMEOUT);
    assert_ok(tdm_cancel(canceled, 0));
    assert_int_equal(tdm_get(canceled, TEST_TIMEOUT_MS, ""), TDM_E_CANCELED);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)unlink(path);
    assert_ok(tdm_get(blocked, TEST_TIMEOUT_MS, ""));
    tdm_ref_release(blocked);
    tdm_ref_release(canceled);
    tdm_ref_release(late);
    assert_all_returned(reader);
}

static void large_items_travel_by_descriptor(void **state)
{
    enum { PIECES = 5 };
    size_t part = data_bytes / PIECES;
    tdm_stream *stream;
    tdm_ref *item;

    (void)state;
    assert_ok(tdm_actor_stream(reader, "cut", NULL, &stream, "bi", (const void *)data, data_bytes,
                               (int64_t)PIECES));
    for (size_t i = 0; i < PIECES; i++) {
        const void *bytes;
        size_t size_bytes;

        assert_ok(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item));
        assert_ok(tdm_get(item, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
        assert_int_equal(size_bytes, part);
        assert_memory_equal(bytes, data + i * part, part);
        assert_true(use_here().read_count > 0);
        tdm_ref_release(item);
    }
    assert_int_equal(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item), TDM_E_END);
    tdm_stream_destroy(stream);

    assert_ok(tdm_actor_stream(reader, "cut", NULL, &stream, "bi", (const void *)data, data_bytes,
                               (int64_t)40));
    assert_ok(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item));
    tdm_ref_release(item);
    tdm_stream_destroy(stream); /* Items that arrive now are returned unread. */
    assert_all_returned(reader);
}

static void large_value_is_an_argument(void **state)
{
    tdm_ref *put;
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_put(runtime, &put, "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(reader, "sum", &ref, "r", put));
    tdm_ref_release(put);
    assert_int_equal(number_of(ref), sum_of(data, data_bytes));

    /* A result in the memory of one actor becomes the argument of another. */
    assert_ok(tdm_actor_call(reader, "echo", &put, "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(reader, "sum", &ref, "r", put));
    tdm_ref_release(put);
    assert_int_equal(number_of(ref), sum_of(data, data_bytes));
    assert_all_returned(reader);
}

/* Each receiver had a copy of its own before. */
static void value_passed_to_several_is_not_copied(void **state)
{
    tdm_actor *others[2] = {hoarder_create(), hoarder_create()};
    struct tdm__object_memory_stats before;
    tdm_ref *sums[3];
    uint8_t done = 0;
    tdm_ref *put;

    (void)state;
    assert_ok(tdm_put(runtime, &put, "b", (const void *)data, data_bytes));
    before = use_here();
    assert_ok(tdm_actor_call(reader, "sum", &sums[0], "r", put));
    assert_ok(tdm_actor_call(others[0], "sum", &sums[1], "r", put));
    assert_ok(tdm_actor_call(others[1], "sum", &sums[2], "r", put));
    assert_true(use_here().used_bytes == before.used_bytes);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(number_of(sums[i]), sum_of(data, data_bytes));
    }
    assert_int_equal(use_of(others[0]).used_bytes, 0);
    tdm_ref_release(put);
    assert_all_returned(reader);

    /* A result of another process is copied once, in the first call, into a segment of this
     * process. */
    assert_ok(tdm_actor_call(reader, "echo", &put, "b", (const void *)data, data_bytes));
    assert_ok(tdm_wait(&put, 1, 1, TEST_TIMEOUT_MS, &done));
    before = use_here();
    assert_ok(tdm_actor_call(others[0], "sum", &sums[0], "r", put));
    assert_true(use_here().used_bytes >= before.used_bytes + data_bytes);
    before = use_here();
    assert_ok(tdm_actor_call(others[1], "sum", &sums[1], "r", put));
    assert_true(use_here().used_bytes == before.used_bytes);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(number_of(sums[i]), sum_of(data, data_bytes));
    }
    tdm_ref_release(put);
    assert_all_returned(reader);
    tdm_actor_destroy(others[0]);
    tdm_actor_destroy(others[1]);
}

/* An actor stands still, and the value of one of its results does not come. Calls of it, and calls
 * of another actor with that result, are made nevertheless. */
static void call_waits_for_no_process_and_no_value(void **state)
{
    tdm_actor *still = hoarder_create();
    struct tdm_actor_info info;
    tdm_ref *absent;
    tdm_ref *sums[3];
    uint8_t done[3];
    int64_t begun_ms;
    tdm_ref *put;

    (void)state;
    tdm_actor_describe(still, &info);
    assert_ok(tdm_put(runtime, &put, "b", (const void *)data, data_bytes));
    assert_int_equal(kill((pid_t)info.pid, SIGSTOP), 0);
    begun_ms = tdm__clock_ms();
    assert_ok(tdm_actor_call(still, "echo", &absent, "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(still, "sum", &sums[0], "r", put));
    assert_ok(tdm_actor_call(still, "sum", &sums[1], "r", absent));
    assert_ok(tdm_actor_call(reader, "sum", &sums[2], "r", absent));
    assert_int_equal(tdm_wait(sums, 3, 1, 0, done), TDM_E_TIMEOUT);
    assert_true(tdm__clock_ms() < begun_ms + TEST_TIMEOUT_MS);
    assert_int_equal(kill((pid_t)info.pid, SIGCONT), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(number_of(sums[i]), sum_of(data, data_bytes));
    }
    tdm_ref_release(absent);
    tdm_ref_release(put);
    assert_all_returned(still);
    tdm_actor_destroy(still);
    assert_all_returned(reader);
}

/* Method mixed: small and large values of references between other arguments. */
static void shared_values_keep_their_places_among_the_arguments(void **state)
{
    const void *bytes;
    size_t size_bytes;
    tdm_ref *refs[12];
    tdm_ref *small;
    tdm_ref *sum;
    uint64_t number;

    (void)state;
    assert_ok(tdm_put(runtime, &small, "i", (int64_t)42));
    for (int i = 0; i < 12; i++) {
        assert_ok(tdm_put(runtime, &refs[i], "b", (const void *)(data + i), 200000 + (size_t)i));
    }
    assert_ok(tdm_actor_call(reader, "mixed", &sum, "irsrR", (int64_t)1, refs[0], "text", small,
                             refs[1]));
    assert_ok(tdm_get(sum, TEST_TIMEOUT_MS, "u", &number));
    assert_int_equal(number, sum_of(data, 200000) + 1 + 42 + 4);
    tdm_ref_release(sum);

    /* One message has room for eight descriptors; with ten values all are copied. */
    assert_ok(tdm_actor_call(reader, "join", &sum, "rrrrrrrrrr", refs[0], refs[1], refs[2], refs[3],
                             refs[4], refs[5], refs[6], refs[7], refs[8], refs[9]));
    assert_ok(tdm_get(sum, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_int_equal(size_bytes, 10 * 200000 + 45);
    for (size_t i = 0, at = 0; i < 10; at += 200000 + i, i++) {
        assert_memory_equal((const char *)bytes + at, data + i, 200000 + i);
    }
    tdm_ref_release(sum);
    assert_ok(tdm_actor_call(reader, "absent", &sum, "r", refs[2]));
    assert_int_equal(tdm_get(sum, TEST_TIMEOUT_MS, ""), TDM_E_NOT_FOUND);
    tdm_ref_release(sum);
    for (int i = 0; i < 12; i++) {
        tdm_ref_release(refs[i]);
    }
    tdm_ref_release(small);
    assert_all_returned(reader);
}

static void reader_that_dies_returns_what_it_read(void **state)
{
    tdm_actor *mortal = hoarder_create();
    tdm_ref *put;
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_put(runtime, &put, "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(mortal, "keep", &ref, "R", put));
    (void)number_of(ref);
    tdm_ref_release(put);
    assert_int_equal(use_here().exported_count, 1);
    assert_ok(tdm_actor_kill(mortal, TEST_TIMEOUT_MS));
    tdm_actor_destroy(mortal);
    assert_all_returned(reader);
}

static void imported_value_outlives_its_creator(void **state)
{
    tdm_actor *mortal = hoarder_create();
    tdm_ref *ref;
    const void *bytes;
    size_t size_bytes;

    (void)state;
    assert_ok(tdm_actor_call(mortal, "echo", &ref, "b", (const void *)data, data_bytes));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_ok(tdm_actor_kill(mortal, TEST_TIMEOUT_MS));
    assert_memory_equal(bytes, data, data_bytes);
    tdm_ref_release(ref);
    tdm_actor_destroy(mortal);
    assert_all_returned(reader);
}

static void mappings_of_a_dead_exporter_are_not_kept(void **state)
{
    tdm_actor *mortal = hoarder_create();
    uint64_t before = use_here().unused_view_bytes;
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_actor_call(mortal, "echo", &ref, "b", (const void *)data, data_bytes));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "v", &(const tdm_value *){NULL}));
    tdm_ref_release(ref);
    assert_true(use_here().unused_view_bytes >= before + data_bytes);
    assert_ok(tdm_actor_kill(mortal, TEST_TIMEOUT_MS));
    tdm_actor_destroy(mortal);
    for (int i = 0; i < TEST_TIMEOUT_MS / 5 && use_here().unused_view_bytes != before; i++) {
        (void)use_of(reader); /* The loop learns of the closed connection. */
        (void)poll(NULL, 0, 5);
    }
    assert_int_equal(use_here().unused_view_bytes, before);
}

static tdm_status import_described(const char *format, uint64_t capacity_bytes, uint64_t size_bytes,
                                   int fd)
{
    tdm_document *document = NULL;
    tdm_document *told;
    tdm_writer *writer;
    uint8_t id[16] = {1};
    tdm_status status;

    assert_ok(tdm_writer_create(&writer));
    assert_ok(tdm_pack(writer, format, UINT64_C(1), (const void *)id, sizeof(id), capacity_bytes,
                       size_bytes));
    assert_ok(tdm_document_parse(tdm_writer_bytes(writer), &told));
    tdm_writer_destroy(writer);
    {
        TDM__LOCK(runtime); /* The loop runs on another thread meanwhile. */

        status =
            tdm__large_import(runtime, runtime->daemon, tdm_document_root(told), fd, &document);
    }
    tdm_document_destroy(told);
    tdm_document_destroy(document);
    return status;
}

static void hostile_descriptors_are_refused(void **state)
{
    int fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(ftruncate(fd, 65536), 0);
    /* The file has no seals. */
    assert_int_equal(import_described("ubuu", 65536, 10, dup(fd)), TDM_E_PROTOCOL);
    assert_int_equal(import_described("ubu", 65536, 10, dup(fd)), TDM_E_PROTOCOL);
    (void)close(fd);
    /* The descriptor is no memory file. */
    assert_int_equal(import_described("ubuu", 65536, 10, dup(0)), TDM_E_PROTOCOL);
    assert_ok(tdm_put(runtime, &ref, "i", (int64_t)1)); /* The runtime still works. */
    tdm_ref_release(ref);
    assert_all_returned(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_value_is_read_in_place_by_others),
        cmocka_unit_test(memory_is_used_again_while_it_is_warm),
        cmocka_unit_test(freed_value_gives_its_memory_back_while_references_live),
        cmocka_unit_test(exported_segment_is_not_reused),
        cmocka_unit_test(large_arguments_and_replies_travel_by_descriptor),
        cmocka_unit_test(arguments_of_calls_that_never_run_come_back),
        cmocka_unit_test(large_items_travel_by_descriptor),
        cmocka_unit_test(large_value_is_an_argument),
        cmocka_unit_test(value_passed_to_several_is_not_copied),
        cmocka_unit_test(call_waits_for_no_process_and_no_value),
        cmocka_unit_test(shared_values_keep_their_places_among_the_arguments),
        cmocka_unit_test(reader_that_dies_returns_what_it_read),
        cmocka_unit_test(imported_value_outlives_its_creator),
        cmocka_unit_test(mappings_of_a_dead_exporter_are_not_kept),
        cmocka_unit_test(hostile_descriptors_are_refused),
    };
    tdm_ref *last;
    int failed;

    runtime = actor_fixture_open(NULL);
    data = malloc(data_bytes);
    for (size_t i = 0; data != NULL && i < data_bytes; i++) {
        data[i] = (char)(i * 7 + i / 256);
    }
    reader = hoarder_create();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (tdm_put(runtime, &last, "b", (const void *)data, data_bytes) != TDM_OK) {
        failed++;
    }
    tdm_actor_destroy(reader);
    failed += actor_fixture_close(runtime);
    tdm_ref_release(last); /* A reference may be released after its runtime has stopped. */
    free(data);
    return failed;
}
