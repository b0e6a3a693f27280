/* memory_quota_test.c - the node's limit on shared memory: values are spilled, read back, and
 * evicted for other processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/export.h"
#include "actors/objects/large_value.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/open_files.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { MIB = 1 << 20, STORE_MIB = 8, PIECES = 12 };

/* ---- an actor that puts and reads values of one MiB -------------------------------------- */

struct stock {
    tdm_ref *refs[PIECES];
    tdm_ref *borrowed;
};

static void fill(uint8_t *bytes, uint8_t seed)
{
    for (size_t i = 0; i < MIB; i++) {
        bytes[i] = (uint8_t)(seed + i * 13 + i / 256);
    }
}

static bool is_filled(const uint8_t *bytes, size_t size_bytes, uint8_t seed)
{
    bool same = size_bytes == MIB;

    for (size_t i = 0; same && i < MIB; i++) {
        same = bytes[i] == (uint8_t)(seed + i * 13 + i / 256);
    }
    return same;
}

static tdm_status put_piece(tdm_runtime *runtime, uint8_t seed, tdm_ref **ref_out)
{
    uint8_t *bytes = malloc(MIB);
    tdm_status status;

    if (bytes == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a piece");
    }
    fill(bytes, seed);
    status = tdm_put(runtime, ref_out, "b", (const void *)bytes, (size_t)MIB);
    free(bytes);
    return status;
}

/* Method put (count): puts that many values and keeps them. */
static tdm_status stock_put(tdm_call *call, void *self)
{
    struct stock *stock = self;
    int64_t count;

    TDM_TRY(tdm_call_unpack(call, "i", &count));
    for (int64_t i = 0; i < count && i < PIECES; i++) {
        TDM_TRY(put_piece(tdm_runtime_current(), (uint8_t)i, &stock->refs[i]));
    }
    return TDM_OK;
}

/* Method use (): replies bytes in memory and on disk. */
static tdm_status stock_use(tdm_call *call, void *self)
{
    struct tdm__object_memory_stats use;

    (void)self;
    tdm__object_memory_stats(tdm_runtime_current(), &use);
    return tdm_call_reply(call, "uu", use.used_bytes, use.spilled_bytes);
}

/* Method read (reference, seed): replies 1 if the value has the contents for `seed`; keeps it. */
static tdm_status stock_read(tdm_call *call, void *self)
{
    struct stock *stock = self;
    const void *bytes;
    size_t size_bytes;
    int64_t seed;

    TDM_TRY(tdm_call_unpack(call, "Ri", &stock->borrowed, &seed));
    TDM_TRY(tdm_get(stock->borrowed, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    return tdm_call_reply(call, "?", is_filled(bytes, size_bytes, (uint8_t)seed) ? 1 : 0);
}

static tdm_status stock_drop(tdm_call *call, void *self)
{
    struct stock *stock = self;

    (void)call;
    for (int i = 0; i < PIECES; i++) {
        tdm_ref_release(stock->refs[i]);
        stock->refs[i] = NULL;
    }
    tdm_ref_release(stock->borrowed);
    stock->borrowed = NULL;
    return TDM_OK;
}

static void stock_destruct(void *self)
{
    (void)stock_drop(NULL, self);
}

TDM_ACTOR_CLASS(stock, .state_bytes = sizeof(struct stock), .destruct = stock_destruct,
                .methods = {
                    {"put", stock_put, NULL},
                    {"use", stock_use, NULL},
                    {"read", stock_read, NULL},
                    {"drop", stock_drop, NULL},
                });

/* ---- helpers ------------------------------------------------------------------------------ */

static tdm_runtime *runtime;
static tdm_actor *other;

static void assert_ok(tdm_status status)
{
    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

static struct tdm__object_memory_stats use_here(void)
{
    struct tdm__object_memory_stats use;

    tdm__object_memory_stats(runtime, &use);
    return use;
}

static struct tdm__object_memory_stats use_of(tdm_actor *actor)
{
    struct tdm__object_memory_stats use = {0};
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, "use", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "uu", &use.used_bytes, &use.spilled_bytes));
    tdm_ref_release(ref);
    return use;
}

static void done(tdm_ref *ref)
{
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, ""));
    tdm_ref_release(ref);
}

static void drop(tdm_actor *actor)
{
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, "drop", &ref, ""));
    done(ref);
}

static void assert_reads(tdm_ref *ref, uint8_t seed)
{
    const void *bytes;
    size_t size_bytes;

    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_true(is_filled(bytes, size_bytes, seed));
}

static void put_all(tdm_ref *refs[PIECES])
{
    for (int i = 0; i < PIECES; i++) {
        assert_ok(put_piece(runtime, (uint8_t)i, &refs[i]));
    }
}

static void release_all(tdm_ref *refs[PIECES])
{
    for (int i = 0; i < PIECES; i++) {
        tdm_ref_release(refs[i]);
        refs[i] = NULL;
    }
}

/* ---- tests ------------------------------------------------------------------------------ */

static void the_oldest_values_go_to_disk_and_come_back(void **state)
{
    tdm_ref *refs[PIECES];
    struct tdm__object_memory_stats use;

    (void)state;
    put_all(refs);
    use = use_here();
    assert_true(use.spilled_bytes > (PIECES - STORE_MIB) * (uint64_t)MIB);
    assert_true(use.node_used_bytes <= STORE_MIB * (uint64_t)MIB);
    for (int i = 0; i < PIECES; i += 3) {
        assert_reads(refs[i], (uint8_t)i);
    }
    release_all(refs);
    use = use_here();
    assert_int_equal(use.used_bytes, 0);
    assert_int_equal(use.spilled_bytes, 0);
}

/* Returns the number of this process's descriptors of files with spilled values. */
static uint32_t spilled_files_count(void)
{
    return open_files_count("/spilled-");
}

static void file_of_a_spilled_value_is_open_while_the_value_is_spilled(void **state)
{
    tdm_ref *refs[PIECES];
    uint32_t count;

    (void)state;
    assert_int_equal(spilled_files_count(), 0);
    put_all(refs);
    count = spilled_files_count();
    assert_true(count > PIECES - STORE_MIB);
    assert_true(use_here().spilled_bytes / count >= MIB); /* A value's packed bytes are more. */
    assert_true(use_here().spilled_bytes / count < 2 * (uint64_t)MIB);
    tdm_ref_release(refs[PIECES - 1]); /* Makes room for one value. */
    refs[PIECES - 1] = NULL;
    assert_reads(refs[0], 0);
    assert_int_equal(spilled_files_count(), count - 1); /* The first value was read back. */
    release_all(refs);                                  /* Some are spilled. */
    assert_int_equal(spilled_files_count(), 0);
}

static void spilled_values_are_listed(void **state)
{
    const struct tdm_object_state *objects;
    uint64_t spilled_bytes = 0;
    tdm_ref *refs[PIECES];
    uint32_t count;

    (void)state;
    put_all(refs);
    assert_ok(tdm_list_objects(runtime, TEST_TIMEOUT_MS, &objects, &count, NULL));
    assert_int_equal(count, PIECES);
    for (uint32_t i = 0; i < count; i++) {
        bool is_spilled = strcmp(objects[i].where, "SPILLED") == 0;

        assert_true(is_spilled || strcmp(objects[i].where, "SHARED") == 0);
        assert_string_equal(objects[i].id, "");
        spilled_bytes += is_spilled ? (uint64_t)objects[i].size_bytes : 0;
    }
    assert_true(spilled_bytes > 0 && spilled_bytes == use_here().spilled_bytes);
    tdm_list_free(objects);
    release_all(refs);
}

static void another_process_reads_what_is_on_disk(void **state)
{
    tdm_ref *refs[PIECES];
    tdm_ref *ref;
    int same = 0;

    (void)state;
    put_all(refs);
    assert_ok(tdm_actor_call(other, "read", &ref, "Ri", refs[0], (int64_t)0));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "?", &same));
    assert_true(same);
    tdm_ref_release(ref);
    release_all(refs);
    drop(other);
}

static void other_process_evicts_for_a_put(void **state)
{
    tdm_ref *refs[PIECES] = {NULL};
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_actor_call(other, "put", &ref, "i", (int64_t)7));
    done(ref);
    for (int i = 0; i < 4; i++) {
        assert_ok(put_piece(runtime, (uint8_t)i, &refs[i]));
    }
    assert_true(use_of(other).spilled_bytes > 0);
    assert_true(use_here().node_used_bytes <= STORE_MIB * (uint64_t)MIB);
    release_all(refs);
    drop(other);
}

static void value_larger_than_the_store_is_refused(void **state)
{
    size_t size_bytes = (STORE_MIB + 1) * (size_t)MIB;
    char *bytes = calloc(1, size_bytes);
    tdm_ref *ref;

    (void)state;
    assert_non_null(bytes);
    assert_int_equal(tdm_put(runtime, &ref, "b", (const void *)bytes, size_bytes), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "--object-store-bytes"));
    free(bytes);
}

static void share_of_a_dead_process_is_free_again(void **state)
{
    tdm_actor *mortal;
    tdm_ref *refs[PIECES] = {NULL};
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_actor_create(runtime, "stock", NULL, &mortal, ""));
    assert_ok(tdm_actor_call(mortal, "put", &ref, "i", (int64_t)6));
    done(ref);
    assert_ok(tdm_actor_kill(mortal, TEST_TIMEOUT_MS));
    tdm_actor_destroy(mortal);
    for (int i = 0; i < 3; i++) { /* `other` may have up to three idle segments besides. */
        assert_ok(put_piece(runtime, (uint8_t)i, &refs[i]));
    }
    assert_int_equal(use_here().spilled_bytes, 0);
    release_all(refs);
}

/* Memory files count against the process's limit on file sizes, too. The last value that is put
 * is below that limit; the one that assert_ok be spilled for it is above. */
static void full_disk_says_so(void **state)
{
    enum { SMALL_BYTES = 300 * 1024, SMALL_MAX = 8 };
    static char small[SMALL_BYTES];
    struct rlimit before;
    struct rlimit half;
    tdm_ref *refs[PIECES] = {NULL};
    tdm_ref *smalls[SMALL_MAX] = {NULL};
    tdm_status status = TDM_OK;

    (void)state;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    for (int i = 0; i < STORE_MIB - 1; i++) {
        assert_ok(put_piece(runtime, (uint8_t)i, &refs[i]));
    }
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    half = (struct rlimit){.rlim_cur = MIB / 2, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &half), 0);
    for (int i = 0; i < SMALL_MAX && status == TDM_OK; i++) {
        status = tdm_put(runtime, &smalls[i], "b", (const void *)small, sizeof(small));
        smalls[i] = status == TDM_OK ? smalls[i] : NULL;
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "were spilled to"));
    for (int i = 0; i < STORE_MIB - 1; i++) {
        assert_reads(refs[i], (uint8_t)i);
    }
    release_all(refs);
    for (int i = 0; i < SMALL_MAX; i++) {
        tdm_ref_release(smalls[i]);
    }
}

/* All values are being read, so nothing can be spilled. The put fails after it has waited. */
static void value_that_is_read_stays_in_memory(void **state)
{
    tdm_ref *refs[PIECES] = {NULL};
    int count = 0;
    tdm_status status = TDM_OK;

    (void)state;
    for (; count < PIECES; count++) {
        status = put_piece(runtime, (uint8_t)count, &refs[count]);
        if (status != TDM_OK) {
            break;
        }
        assert_reads(refs[count], (uint8_t)count);
    }
    assert_int_equal(status, TDM_E_LIMIT);
    assert_int_equal(count, STORE_MIB - 1); /* A segment is a little larger than its value. */
    assert_non_null(strstr(tdm_error_detail(), "release references"));
    refs[count] = NULL;
    release_all(refs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_values_go_to_disk_and_come_back),
        cmocka_unit_test(file_of_a_spilled_value_is_open_while_the_value_is_spilled),
        cmocka_unit_test(spilled_values_are_listed),
        cmocka_unit_test(another_process_reads_what_is_on_disk),
        cmocka_unit_test(other_process_evicts_for_a_put),
        cmocka_unit_test(value_larger_than_the_store_is_refused),
        cmocka_unit_test(share_of_a_dead_process_is_free_again),
        cmocka_unit_test(full_disk_says_so),
        cmocka_unit_test(value_that_is_read_stays_in_memory),
    };
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    int failed;

    options.object_store_bytes = STORE_MIB * (uint64_t)MIB;
    runtime = actor_fixture_open(&options);
    if (tdm_actor_create(runtime, "stock", NULL, &other, "") != TDM_OK ||
        tdm_actor_wait_ready(other, TEST_TIMEOUT_MS) != TDM_OK) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_actor_destroy(other);
    return failed + actor_fixture_close(runtime);
}
