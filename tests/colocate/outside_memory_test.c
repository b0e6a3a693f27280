/* outside_memory_test.c - what a program allocates itself is requested, compared and released. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/outside_memory.h"

#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((uint64_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

/* A device and an arbiter that only write down what they are told. */
static struct world {
    uint64_t used_bytes;  /* What the device reports. */
    uint64_t freed_later; /* Bytes that leave used_bytes after the next report. */
    tdm_status refusal;   /* Result of a request. */
    bool has_no_report;   /* Whether the device reports nothing. */
    bool is_not_told;     /* Whether the arbiter cannot be told of the use. */
    char told[256];       /* Calls since the last told_is(). */
    tdm_outside_memory *memory;
} world;

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
    size_t length = strlen(world.told);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(world.told + length, sizeof(world.told) - length, format, args);
    va_end(args);
}

static tdm_status request(void *arg, const char *tag, size_t bytes, int64_t timeout_ms)
{
    (void)arg;
    add("request %s %llu in %lld; ", tag, (unsigned long long)(bytes / MIB), (long long)timeout_ms);
    return world.refusal == TDM_OK ? TDM_OK : tdm__fail(world.refusal, "full");
}

static void announce(void *arg, const char *tag, size_t bytes)
{
    (void)arg;
    (void)tag;
    add("announce %llu; ", (unsigned long long)(bytes / MIB));
}

static tdm_status tell_usage(void *arg, const char *tag, uint64_t declared, uint64_t reported)
{
    (void)arg;
    (void)tag;
    add("%llu declared %llu reported; ", (unsigned long long)(declared / MIB),
        (unsigned long long)(reported / MIB));
    return world.is_not_told ? tdm__fail(TDM_E_CLOSED, "no arbiter") : TDM_OK;
}

static tdm_status read_used(void *arg, uint64_t *used_bytes_out)
{
    (void)arg;
    if (world.has_no_report) {
        return tdm__fail(TDM_E_DEVICE, "no report");
    }
    *used_bytes_out = world.used_bytes;
    world.used_bytes -= world.freed_later;
    world.freed_later = 0;
    return TDM_OK;
}

/* Declares 64 MiB. */
static void declare(enum tdm_region_policy policy, bool is_host_memory)
{
    const struct tdm__outside_callbacks callbacks = {.request = request,
                                                     .announce = announce,
                                                     .tell_usage = tell_usage,
                                                     .read_used = read_used,
                                                     .is_host_memory = is_host_memory};
    const struct tdm_outside_memory_options options = {
        .tag = "torch", .size_bytes = 64 * MIB, .policy = policy};

    world = (struct world){.used_bytes = 100 * MIB};
    TRY(tdm__outside_memory_create(&callbacks, &options, &world.memory));
}

static void told_is(const char *wanted)
{
    assert_string_equal(world.told, wanted);
    world.told[0] = '\0';
}

/* Resumes; the program takes that many bytes. */
static uint64_t resume(uint64_t taken_bytes)
{
    uint64_t reported = 0;

    TRY(tdm_outside_memory_begin_resume(world.memory, 5));
    assert_false(tdm_outside_memory_is_resident(world.memory));
    world.used_bytes += taken_bytes;
    TRY(tdm_outside_memory_end_resume(world.memory, &reported));
    assert_true(tdm_outside_memory_is_resident(world.memory));
    return reported;
}

/* Pauses; the program frees that many bytes at once, and some later. */
static uint64_t pause_and_free(uint64_t freed_bytes, uint64_t later_bytes)
{
    uint64_t left = UINT64_MAX;

    TRY(tdm_outside_memory_begin_pause(world.memory));
    world.used_bytes -= freed_bytes;
    world.freed_later = later_bytes;
    TRY(tdm_outside_memory_end_pause(world.memory, later_bytes > 0 ? 5000 : 20, &left));
    assert_false(tdm_outside_memory_is_resident(world.memory));
    return left;
}

static void what_is_declared_is_taken_and_freed(void **state)
{
    (void)state;
    declare(TDM_REGION_DROP, true);
    assert_true(resume(60 * MIB) == 60 * MIB);
    told_is("request torch 64 in 5; 64 declared 64 reported; 64 declared 60 reported; ");
    assert_true(pause_and_free(58 * MIB, 0) == 0);
    told_is("announce 64; 0 declared 0 reported; ");
    tdm_outside_memory_destroy(world.memory);
    told_is("");
}

static void more_than_declared_is_told(void **state)
{
    (void)state;
    declare(TDM_REGION_DROP, false);
    assert_true(resume(200 * MIB) == 200 * MIB);
    told_is("request torch 64 in 5; 64 declared 64 reported; 64 declared 200 reported; ");
    tdm_outside_memory_destroy(world.memory);
    told_is("0 declared 0 reported; ");
}

static void what_a_pause_leaves_stays_counted(void **state)
{
    (void)state;
    declare(TDM_REGION_DROP, true);
    (void)resume(64 * MIB);
    told_is("request torch 64 in 5; 64 declared 64 reported; 64 declared 64 reported; ");
    assert_true(pause_and_free(24 * MIB, 0) == 40 * MIB);
    told_is("announce 64; 0 declared 40 reported; ");
    /* The next resume needs the rest only. */
    assert_true(resume(24 * MIB) == 64 * MIB);
    told_is("request torch 24 in 5; 64 declared 64 reported; 64 declared 64 reported; ");
    assert_true(pause_and_free(24 * MIB, 0) == 40 * MIB);
    world.told[0] = '\0';
    tdm_outside_memory_destroy(world.memory);
    told_is("0 declared 0 reported; ");
}

static void a_pause_waits_for_the_device(void **state)
{
    (void)state;
    declare(TDM_REGION_DROP, false);
    (void)resume(64 * MIB);
    assert_true(pause_and_free(0, 64 * MIB) == 0);
    tdm_outside_memory_destroy(world.memory);
}

static void kept_contents_are_compared_on_gpus_only(void **state)
{
    (void)state;
    declare(TDM_REGION_KEEP, true);
    (void)resume(64 * MIB);
    assert_true(pause_and_free(0, 0) == 0);
    assert_true(resume(0) == 64 * MIB); /* The copies are the memory again. */
    assert_true(pause_and_free(0, 0) == 0);
    assert_true(resume(100 * MIB) == 100 * MIB);
    tdm_outside_memory_destroy(world.memory);
    declare(TDM_REGION_KEEP, false);
    (void)resume(64 * MIB);
    assert_true(pause_and_free(0, 0) == 64 * MIB);
    tdm_outside_memory_destroy(world.memory);
}

static void failures_of_the_program_are_undone(void **state)
{
    uint64_t left = UINT64_MAX;

    (void)state;
    declare(TDM_REGION_DROP, true);
    TRY(tdm_outside_memory_begin_resume(world.memory, 5));
    world.used_bytes += 30 * MIB;
    TRY(tdm_outside_memory_end_pause(world.memory, 0, &left)); /* It could not take all. */
    assert_true(left == 30 * MIB);
    world.used_bytes -= 30 * MIB;
    (void)resume(64 * MIB);
    world.told[0] = '\0';
    TRY(tdm_outside_memory_begin_pause(world.memory));
    TRY(tdm_outside_memory_end_resume(world.memory, NULL)); /* It could not free any. */
    told_is("announce 64; 64 declared 64 reported; ");
    tdm_outside_memory_destroy(world.memory);
}

/* Each step fails if the device or the arbiter does, and may be repeated. */
static void failures_of_device_and_arbiter_change_nothing(void **state)
{
    (void)state;
    declare(TDM_REGION_DROP, true);
    world.has_no_report = true;
    assert_int_equal(tdm_outside_memory_begin_resume(world.memory, 5), TDM_E_DEVICE);
    world.has_no_report = false;
    world.is_not_told = true;
    assert_int_equal(tdm_outside_memory_begin_resume(world.memory, 5), TDM_E_CLOSED);
    world.is_not_told = false;
    TRY(tdm_outside_memory_begin_resume(world.memory, 5));
    world.used_bytes += 64 * MIB;
    world.has_no_report = true;
    assert_int_equal(tdm_outside_memory_end_resume(world.memory, NULL), TDM_E_DEVICE);
    world.has_no_report = false;
    world.is_not_told = true;
    assert_int_equal(tdm_outside_memory_end_resume(world.memory, NULL), TDM_E_CLOSED);
    assert_false(tdm_outside_memory_is_resident(world.memory));
    world.is_not_told = false;
    TRY(tdm_outside_memory_end_resume(world.memory, NULL));
    world.has_no_report = true;
    assert_int_equal(tdm_outside_memory_begin_pause(world.memory), TDM_E_DEVICE);
    assert_true(tdm_outside_memory_is_resident(world.memory));
    world.has_no_report = false;
    TRY(tdm_outside_memory_begin_pause(world.memory));
    world.used_bytes -= 64 * MIB;
    world.has_no_report = true;
    assert_int_equal(tdm_outside_memory_end_pause(world.memory, 0, NULL), TDM_E_DEVICE);
    world.has_no_report = false;
    world.is_not_told = true;
    assert_int_equal(tdm_outside_memory_end_pause(world.memory, 0, NULL), TDM_E_CLOSED);
    world.is_not_told = false;
    TRY(tdm_outside_memory_end_pause(world.memory, 0, NULL));
    (void)resume(64 * MIB);
    world.is_not_told = true; /* The end is not told, and nothing else happens. */
    tdm_outside_memory_destroy(world.memory);
    tdm_outside_memory_destroy(NULL);
}

static void wrong_calls_are_refused(void **state)
{
    const struct tdm__outside_callbacks callbacks = {.request = request};
    struct tdm_outside_memory_options options = {.tag = "", .size_bytes = 1};
    tdm_outside_memory *memory;

    (void)state;
    assert_int_equal(tdm__outside_memory_create(&callbacks, &options, &memory), TDM_E_INVAL);
    options.tag = "a tag that has more than 31 bytes.";
    assert_int_equal(tdm__outside_memory_create(&callbacks, &options, &memory), TDM_E_INVAL);
    options = (struct tdm_outside_memory_options){.size_bytes = 1};
    assert_int_equal(tdm__outside_memory_create(&callbacks, &options, &memory), TDM_E_INVAL);
    options = (struct tdm_outside_memory_options){.tag = "torch"};
    assert_int_equal(tdm__outside_memory_create(&callbacks, &options, &memory), TDM_E_INVAL);
    options.size_bytes = ((size_t)1 << 47) + 1;
    assert_int_equal(tdm__outside_memory_create(&callbacks, &options, &memory), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "outside memory torch of"));
    declare(TDM_REGION_DROP, true);
    assert_int_equal(tdm_outside_memory_end_resume(world.memory, NULL), TDM_E_STATE);
    assert_string_equal(tdm_error_detail(), "end_resume: the outside memory torch is paused");
    assert_int_equal(tdm_outside_memory_begin_pause(world.memory), TDM_E_STATE);
    assert_int_equal(tdm_outside_memory_end_pause(world.memory, 0, NULL), TDM_E_STATE);
    world.refusal = TDM_E_DEVICE_FULL;
    assert_int_equal(tdm_outside_memory_begin_resume(world.memory, 0), TDM_E_DEVICE_FULL);
    world.refusal = TDM_OK;
    (void)resume(64 * MIB);
    assert_int_equal(tdm_outside_memory_begin_resume(world.memory, 0), TDM_E_STATE);
    tdm_outside_memory_destroy(world.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_declared_is_taken_and_freed),
        cmocka_unit_test(more_than_declared_is_told),
        cmocka_unit_test(what_a_pause_leaves_stays_counted),
        cmocka_unit_test(a_pause_waits_for_the_device),
        cmocka_unit_test(kept_contents_are_compared_on_gpus_only),
        cmocka_unit_test(failures_of_the_program_are_undone),
        cmocka_unit_test(failures_of_device_and_arbiter_change_nothing),
        cmocka_unit_test(wrong_calls_are_refused),
    };

    return cmocka_run_group_tests_name("outside_memory", tests, NULL, NULL);
}
