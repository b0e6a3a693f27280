/* null_arguments_test.c - every public function refuses a NULL argument and names it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/tandem.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* One call for each pointer argument that may not be NULL.  The other arguments point at zeroed
 * memory: a function must refuse the NULL before it looks at them.  The calls run in a child
 * process, which reports the first wrong one and would take a crash along.  The style test
 * "nulls" compares the calls with the public headers. */

static union {
    void *pointer;
    char bytes[8192];
} any;

#define ANY  ((void *)&any)
#define TEXT "text"

static const struct tdm_bytes no_bytes;
static int report_fd;

static tdm_status make_call(tdm_actor *actor, const void *value, tdm_ref **ref_out)
{
    (void)actor;
    (void)value;
    *ref_out = NULL;
    return TDM_OK;
}

static void on_done(void *arg, tdm_ref *ref)
{
    (void)arg;
    (void)ref;
}

static void on_item(void *arg, tdm_stream *stream)
{
    (void)arg;
    (void)stream;
}

static void on_cancel(void *arg, tdm_call *call)
{
    (void)arg;
    (void)call;
}

/* The last line that the parent reads names the call that was made last. */
static void report(const char *function, const char *argument, const char *problem)
{
    char line[256];
    int length = snprintf(line, sizeof(line), "%s: %s%s\n", function, argument, problem);

    if (write(report_fd, line, (size_t)length) != length) {
        _exit(2);
    }
}

static void begin_check(const char *function, const char *argument)
{
    (void)tdm_fail(TDM_E_STATE, "nothing");
    report(function, argument, " was NULL");
}

static void end_check(bool starving_refuses, const char *function, const char *argument)
{
    char named[128];

    (void)snprintf(named, sizeof(named), "%s failed: argument \"%s\" is NULL", function, argument);
    if (!starving_refuses) {
        report(function, argument, " was NULL, and the result is wrong");
        _exit(1);
    }
    if (strcmp(tdm_error_detail(), named) != 0) {
        report(function, argument, " was NULL, and the error does not name it:");
        report("", tdm_error_detail(), "");
        _exit(1);
    }
}

#define CHECK_VALUE(condition, function, argument)                                                 \
    do {                                                                                           \
        begin_check(function, argument);                                                           \
        end_check((condition), function, argument);                                                \
    } while (0)
#define CHECK_STATUS(call, function, argument)                                                     \
    CHECK_VALUE((call) == TDM_E_INVAL, function, argument)
#define CHECK_VOID(call, function, argument)                                                       \
    do {                                                                                           \
        begin_check(function, argument);                                                           \
        call;                                                                                      \
        end_check(true, function, argument);                                                       \
    } while (0)

/* ---- the calls -------------------------------------------------------------------------- */

static void call_actor_1(void)
{
    CHECK_VOID(tdm_class_register(NULL), "tdm_class_register", "actor_class");
    CHECK_VALUE(strcmp(tdm_call_method(NULL), "") == 0, "tdm_call_method", "call");
    CHECK_STATUS(tdm_call_unpack(NULL, TEXT), "tdm_call_unpack", "call");
    CHECK_STATUS(tdm_call_unpack(ANY, NULL), "tdm_call_unpack", "format");
    CHECK_VALUE(tdm_call_arguments(NULL) == NULL, "tdm_call_arguments", "call");
    CHECK_STATUS(tdm_call_reply(NULL, TEXT), "tdm_call_reply", "call");
    CHECK_STATUS(tdm_call_reply(ANY, NULL), "tdm_call_reply", "format");
    CHECK_STATUS(tdm_call_reply_packed(NULL, no_bytes), "tdm_call_reply_packed", "call");
    CHECK_VALUE(tdm_call_remaining_ms(NULL) == 0, "tdm_call_remaining_ms", "call");
    CHECK_VALUE(tdm_call_is_canceled(NULL) == 0, "tdm_call_is_canceled", "call");
    CHECK_STATUS(tdm_call_on_cancel(NULL, on_cancel, ANY), "tdm_call_on_cancel", "call");
    CHECK_STATUS(tdm_call_keep(NULL), "tdm_call_keep", "call");
    CHECK_STATUS(tdm_call_take_arguments(ANY, NULL), "tdm_call_take_arguments", "document_out");
    CHECK_STATUS(tdm_call_take_arguments(NULL, ANY), "tdm_call_take_arguments", "call");
    CHECK_VOID(tdm_call_fail(NULL, TDM_E_METHOD, TEXT), "tdm_call_fail", "call");
    CHECK_VOID(tdm_call_fail(ANY, TDM_E_METHOD, NULL), "tdm_call_fail", "format");
    CHECK_STATUS(tdm_call_fail_with(NULL, TDM_E_METHOD, TEXT, TEXT), "tdm_call_fail_with", "call");
    CHECK_STATUS(tdm_call_fail_with(ANY, TDM_E_METHOD, NULL, TEXT), "tdm_call_fail_with", "text");
    CHECK_STATUS(tdm_call_fail_with(ANY, TDM_E_METHOD, TEXT, NULL), "tdm_call_fail_with", "format");
    CHECK_STATUS(tdm_call_yield(NULL, TEXT), "tdm_call_yield", "call");
    CHECK_STATUS(tdm_call_yield(ANY, NULL), "tdm_call_yield", "format");
    CHECK_STATUS(tdm_actor_create(NULL, TEXT, ANY, ANY, TEXT), "tdm_actor_create", "runtime");
    CHECK_STATUS(tdm_actor_create(ANY, NULL, ANY, ANY, TEXT), "tdm_actor_create", "class_name");
    CHECK_STATUS(tdm_actor_create(ANY, TEXT, ANY, NULL, TEXT), "tdm_actor_create", "actor_out");
    CHECK_STATUS(tdm_actor_create(ANY, TEXT, ANY, ANY, NULL), "tdm_actor_create", "format");
    CHECK_STATUS(tdm_actor_create_packed(NULL, TEXT, ANY, no_bytes, ANY), "tdm_actor_create_packed",
                 "runtime");
}

static void call_actor_2(void)
{
    CHECK_STATUS(tdm_actor_create_packed(ANY, NULL, ANY, no_bytes, ANY), "tdm_actor_create_packed",
                 "class_name");
    CHECK_STATUS(tdm_actor_create_packed(ANY, TEXT, ANY, no_bytes, NULL), "tdm_actor_create_packed",
                 "actor_out");
    CHECK_STATUS(tdm_actor_wait_ready(NULL, 1), "tdm_actor_wait_ready", "actor");
    CHECK_STATUS(tdm_actor_find(NULL, TEXT, 1, ANY), "tdm_actor_find", "runtime");
    CHECK_STATUS(tdm_actor_find(ANY, NULL, 1, ANY), "tdm_actor_find", "name");
    CHECK_STATUS(tdm_actor_find(ANY, TEXT, 1, NULL), "tdm_actor_find", "actor_out");
    CHECK_STATUS(tdm_actor_move_calls(NULL, ANY), "tdm_actor_move_calls", "from");
    CHECK_STATUS(tdm_actor_move_calls(ANY, NULL), "tdm_actor_move_calls", "to");
    CHECK_STATUS(tdm_actor_current(NULL, ANY), "tdm_actor_current", "runtime");
    CHECK_STATUS(tdm_actor_current(ANY, NULL), "tdm_actor_current", "actor_out");
    CHECK_STATUS(tdm_actor_find_in(NULL, TEXT, TEXT, 1, ANY), "tdm_actor_find_in", "runtime");
    CHECK_STATUS(tdm_actor_find_in(ANY, NULL, TEXT, 1, ANY), "tdm_actor_find_in", "name_space");
    CHECK_STATUS(tdm_actor_find_in(ANY, TEXT, NULL, 1, ANY), "tdm_actor_find_in", "name");
    CHECK_STATUS(tdm_actor_find_in(ANY, TEXT, TEXT, 1, NULL), "tdm_actor_find_in", "actor_out");
    CHECK_STATUS(tdm_actor_kill(NULL, 1), "tdm_actor_kill", "actor");
    CHECK_STATUS(tdm_actor_restart(NULL, 1), "tdm_actor_restart", "actor");
    CHECK_VOID(tdm_actor_describe(NULL, ANY), "tdm_actor_describe", "actor");
    CHECK_VOID(tdm_actor_describe(ANY, NULL), "tdm_actor_describe", "info_out");
    CHECK_STATUS(tdm_actor_call(NULL, TEXT, ANY, TEXT), "tdm_actor_call", "actor");
    CHECK_STATUS(tdm_actor_call(ANY, NULL, ANY, TEXT), "tdm_actor_call", "method");
    CHECK_STATUS(tdm_actor_call(ANY, TEXT, ANY, NULL), "tdm_actor_call", "format");
    CHECK_STATUS(tdm_actor_call_packed(NULL, TEXT, no_bytes, ANY), "tdm_actor_call_packed",
                 "actor");
    CHECK_STATUS(tdm_actor_call_packed(ANY, NULL, no_bytes, ANY), "tdm_actor_call_packed",
                 "method");
    CHECK_STATUS(tdm_actor_call_with(NULL, TEXT, ANY, ANY, TEXT), "tdm_actor_call_with", "actor");
}

static void call_actor_3(void)
{
    CHECK_STATUS(tdm_actor_call_with(ANY, NULL, ANY, ANY, TEXT), "tdm_actor_call_with", "method");
    CHECK_STATUS(tdm_actor_call_with(ANY, TEXT, ANY, ANY, NULL), "tdm_actor_call_with", "format");
    CHECK_STATUS(tdm_actor_call_packed_with(NULL, TEXT, ANY, no_bytes, ANY),
                 "tdm_actor_call_packed_with", "actor");
    CHECK_STATUS(tdm_actor_call_packed_with(ANY, NULL, ANY, no_bytes, ANY),
                 "tdm_actor_call_packed_with", "method");
    CHECK_STATUS(tdm_cancel(NULL, 1), "tdm_cancel", "ref");
    CHECK_STATUS(tdm_actor_stream(NULL, TEXT, ANY, ANY, TEXT), "tdm_actor_stream", "actor");
    CHECK_STATUS(tdm_actor_stream(ANY, NULL, ANY, ANY, TEXT), "tdm_actor_stream", "method");
    CHECK_STATUS(tdm_actor_stream(ANY, TEXT, ANY, NULL, TEXT), "tdm_actor_stream", "stream_out");
    CHECK_STATUS(tdm_actor_stream(ANY, TEXT, ANY, ANY, NULL), "tdm_actor_stream", "format");
    CHECK_STATUS(tdm_stream_next(NULL, 1, ANY), "tdm_stream_next", "stream");
    CHECK_STATUS(tdm_stream_next(ANY, 1, NULL), "tdm_stream_next", "ref_out");
    CHECK_VALUE(tdm_stream_failure(NULL) == NULL, "tdm_stream_failure", "stream");
    CHECK_STATUS(tdm_stream_on_item(NULL, on_item, ANY), "tdm_stream_on_item", "stream");
    CHECK_STATUS(tdm_stream_on_item(ANY, NULL, ANY), "tdm_stream_on_item", "fn");
    CHECK_STATUS(tdm_events_create(NULL), "tdm_events_create", "events_out");
    CHECK_VALUE(tdm_events_fd(NULL) == -1, "tdm_events_fd", "events");
    CHECK_STATUS(tdm_events_add_ref(NULL, ANY, 1), "tdm_events_add_ref", "events");
    CHECK_STATUS(tdm_events_add_ref(ANY, NULL, 1), "tdm_events_add_ref", "ref");
    CHECK_STATUS(tdm_events_add_stream(NULL, ANY, 1), "tdm_events_add_stream", "events");
    CHECK_STATUS(tdm_events_add_stream(ANY, NULL, 1), "tdm_events_add_stream", "stream");
    CHECK_STATUS(tdm_events_next(NULL, ANY), "tdm_events_next", "events");
    CHECK_STATUS(tdm_events_next(ANY, NULL), "tdm_events_next", "token_out");
    CHECK_STATUS(tdm_get(NULL, 1, TEXT), "tdm_get", "ref");
    CHECK_STATUS(tdm_get(ANY, 1, NULL), "tdm_get", "format");
    CHECK_STATUS(tdm_get_value(NULL, 1, ANY), "tdm_get_value", "ref");
    CHECK_STATUS(tdm_get_value(ANY, 1, NULL), "tdm_get_value", "value_out");
    CHECK_STATUS(tdm_get_many(NULL, 1, 1, ANY), "tdm_get_many", "refs");
    CHECK_STATUS(tdm_get_many(ANY, 1, 1, NULL), "tdm_get_many", "values_out");
    CHECK_STATUS(tdm_value_ref(NULL, ANY, ANY), "tdm_value_ref", "runtime");
    CHECK_STATUS(tdm_value_ref(ANY, ANY, NULL), "tdm_value_ref", "ref_out");
    CHECK_STATUS(tdm_value_actor(NULL, ANY, ANY), "tdm_value_actor", "runtime");
    CHECK_VALUE(tdm_runtime_shared_refs_count(NULL) == 0, "tdm_runtime_shared_refs_count",
                "runtime");
    CHECK_VALUE(tdm_actor_metadata(NULL).data == NULL, "tdm_actor_metadata", "actor");
    CHECK_STATUS(tdm_stream_completed(NULL, ANY), "tdm_stream_completed", "stream");
    CHECK_STATUS(tdm_stream_completed(ANY, NULL), "tdm_stream_completed", "ref_out");
    CHECK_STATUS(tdm_call_set_items_ahead(NULL, 1), "tdm_call_set_items_ahead", "call");
    CHECK_STATUS(tdm_ref_id(NULL, ANY), "tdm_ref_id", "ref");
    CHECK_STATUS(tdm_ref_id(ANY, NULL), "tdm_ref_id", "id_out");
    CHECK_STATUS(tdm_ref_export(NULL, ANY), "tdm_ref_export", "ref");
    CHECK_STATUS(tdm_ref_export(ANY, NULL), "tdm_ref_export", "portable_out");
    CHECK_STATUS(tdm_ref_import(NULL, no_bytes, ANY), "tdm_ref_import", "runtime");
    CHECK_STATUS(tdm_ref_import(ANY, no_bytes, NULL), "tdm_ref_import", "ref_out");
    CHECK_STATUS(tdm_actor_export(NULL, ANY), "tdm_actor_export", "actor");
    CHECK_STATUS(tdm_actor_export(ANY, NULL), "tdm_actor_export", "portable_out");
    CHECK_STATUS(tdm_actor_import(NULL, no_bytes, ANY), "tdm_actor_import", "runtime");
    CHECK_STATUS(tdm_actor_import(ANY, no_bytes, NULL), "tdm_actor_import", "actor_out");
}

static void call_actor_4(void)
{
    CHECK_STATUS(tdm_value_actor(ANY, ANY, NULL), "tdm_value_actor", "actor_out");
    CHECK_STATUS(tdm_wait(NULL, 1, 1, 1, ANY), "tdm_wait", "refs");
    CHECK_STATUS(tdm_wait(ANY, 1, 1, 1, NULL), "tdm_wait", "done_out");
    CHECK_STATUS(tdm_ref_on_done(NULL, on_done, ANY), "tdm_ref_on_done", "ref");
    CHECK_STATUS(tdm_ref_on_done(ANY, NULL, ANY), "tdm_ref_on_done", "fn");
    CHECK_STATUS(tdm_put(NULL, ANY, TEXT), "tdm_put", "runtime");
    CHECK_STATUS(tdm_put(ANY, NULL, TEXT), "tdm_put", "ref_out");
    CHECK_STATUS(tdm_put(ANY, ANY, NULL), "tdm_put", "format");
    CHECK_STATUS(tdm_ref_copy(NULL, ANY), "tdm_ref_copy", "ref");
    CHECK_STATUS(tdm_ref_copy(ANY, NULL), "tdm_ref_copy", "ref_out");
    CHECK_VALUE(tdm_ref_failure(NULL) == NULL, "tdm_ref_failure", "ref");
    CHECK_STATUS(tdm_ref_free_value(NULL), "tdm_ref_free_value", "ref");
}

static void call_config_1(void)
{
    CHECK_STATUS(tdm_config_read(NULL, ANY), "tdm_config_read", "path");
    CHECK_STATUS(tdm_config_read(TEXT, NULL), "tdm_config_read", "config_out");
    CHECK_STATUS(tdm_config_parse(NULL, 1, TEXT, ANY), "tdm_config_parse", "text");
    CHECK_STATUS(tdm_config_parse(TEXT, 1, NULL, ANY), "tdm_config_parse", "name");
    CHECK_STATUS(tdm_config_parse(TEXT, 1, TEXT, NULL), "tdm_config_parse", "config_out");
    CHECK_STATUS(tdm_config_override(NULL, TEXT), "tdm_config_override", "config");
    CHECK_STATUS(tdm_config_override(ANY, NULL), "tdm_config_override", "assignment");
    CHECK_STATUS(tdm_config_int(NULL, TEXT, 1, ANY), "tdm_config_int", "config");
    CHECK_STATUS(tdm_config_int(ANY, NULL, 1, ANY), "tdm_config_int", "path");
    CHECK_STATUS(tdm_config_int(ANY, TEXT, 1, NULL), "tdm_config_int", "value_out");
    CHECK_STATUS(tdm_config_double(NULL, TEXT, 0, ANY), "tdm_config_double", "config");
    CHECK_STATUS(tdm_config_double(ANY, NULL, 0, ANY), "tdm_config_double", "path");
    CHECK_STATUS(tdm_config_double(ANY, TEXT, 0, NULL), "tdm_config_double", "value_out");
    CHECK_STATUS(tdm_config_bool(NULL, TEXT, 1, ANY), "tdm_config_bool", "config");
    CHECK_STATUS(tdm_config_bool(ANY, NULL, 1, ANY), "tdm_config_bool", "path");
    CHECK_STATUS(tdm_config_bool(ANY, TEXT, 1, NULL), "tdm_config_bool", "value_out");
    CHECK_STATUS(tdm_config_string(NULL, TEXT, TEXT, ANY), "tdm_config_string", "config");
    CHECK_STATUS(tdm_config_string(ANY, NULL, TEXT, ANY), "tdm_config_string", "path");
    CHECK_STATUS(tdm_config_string(ANY, TEXT, TEXT, NULL), "tdm_config_string", "value_out");
    CHECK_VALUE(tdm_config_has(NULL, TEXT) == 0, "tdm_config_has", "config");
}

static void call_config_2(void)
{
    CHECK_VALUE(tdm_config_has(ANY, NULL) == 0, "tdm_config_has", "path");
    CHECK_VALUE(tdm_config_count(NULL, TEXT) == 0, "tdm_config_count", "config");
    CHECK_VALUE(tdm_config_count(ANY, NULL) == 0, "tdm_config_count", "path");
    CHECK_VALUE(tdm_config_key(NULL, TEXT, 1) == NULL, "tdm_config_key", "config");
    CHECK_VALUE(tdm_config_key(ANY, NULL, 1) == NULL, "tdm_config_key", "path");
    CHECK_VALUE(strcmp(tdm_config_where(NULL, TEXT), "") == 0, "tdm_config_where", "config");
    CHECK_VALUE(strcmp(tdm_config_where(ANY, NULL), "") == 0, "tdm_config_where", "path");
    CHECK_STATUS(tdm_config_json(NULL, ANY), "tdm_config_json", "config");
    CHECK_STATUS(tdm_config_json(ANY, NULL), "tdm_config_json", "text_out");
}

static void call_group(void)
{
    CHECK_STATUS(tdm_job_library_register(NULL), "tdm_job_library_register", "library");
    CHECK_STATUS(tdm_collective_join(NULL, ANY, ANY), "tdm_collective_join", "runtime");
    CHECK_STATUS(tdm_collective_join(ANY, NULL, ANY), "tdm_collective_join", "options");
    CHECK_STATUS(tdm_collective_join(ANY, ANY, NULL), "tdm_collective_join", "group_out");
    CHECK_VALUE(tdm_collective_rank(NULL) == 0, "tdm_collective_rank", "group");
    CHECK_VALUE(tdm_collective_ranks_count(NULL) == 0, "tdm_collective_ranks_count", "group");
    CHECK_STATUS(tdm_collective_barrier(NULL), "tdm_collective_barrier", "group");
    CHECK_STATUS(tdm_collective_pause(NULL), "tdm_collective_pause", "group");
    CHECK_STATUS(tdm_collective_resume(NULL), "tdm_collective_resume", "group");
    CHECK_STATUS(tdm_collective_all_reduce(NULL, ANY, 1, (enum tdm_reduction)1),
                 "tdm_collective_all_reduce", "group");
    CHECK_STATUS(tdm_collective_all_reduce(ANY, NULL, 1, (enum tdm_reduction)1),
                 "tdm_collective_all_reduce", "data");
    CHECK_STATUS(tdm_collective_all_reduce_double(NULL, ANY, 1, (enum tdm_reduction)1),
                 "tdm_collective_all_reduce_double", "group");
    CHECK_STATUS(tdm_collective_all_reduce_double(ANY, NULL, 1, (enum tdm_reduction)1),
                 "tdm_collective_all_reduce_double", "data");
    CHECK_STATUS(tdm_collective_all_gather(NULL, ANY, 1, ANY), "tdm_collective_all_gather",
                 "group");
    CHECK_STATUS(tdm_collective_all_gather(ANY, NULL, 1, ANY), "tdm_collective_all_gather", "in");
    CHECK_STATUS(tdm_collective_all_gather(ANY, ANY, 1, NULL), "tdm_collective_all_gather", "out");
    CHECK_STATUS(tdm_collective_reduce_scatter(NULL, ANY, 1, ANY), "tdm_collective_reduce_scatter",
                 "group");
    CHECK_STATUS(tdm_collective_reduce_scatter(ANY, NULL, 1, ANY), "tdm_collective_reduce_scatter",
                 "in");
    CHECK_STATUS(tdm_collective_reduce_scatter(ANY, ANY, 1, NULL), "tdm_collective_reduce_scatter",
                 "out");
    CHECK_STATUS(tdm_collective_broadcast(NULL, ANY, 1, 1), "tdm_collective_broadcast", "group");
    CHECK_STATUS(tdm_collective_broadcast(ANY, NULL, 1, 1), "tdm_collective_broadcast", "data");
    CHECK_STATUS(tdm_collective_gather(NULL, ANY, 1, ANY, 1), "tdm_collective_gather", "group");
    CHECK_STATUS(tdm_collective_gather(ANY, NULL, 1, ANY, 1), "tdm_collective_gather", "in");
}

static void call_placement(void)
{
    CHECK_STATUS(tdm_placement_group_create(NULL, ANY, 1, (enum tdm_placement_strategy)1, 1, ANY),
                 "tdm_placement_group_create", "runtime");
    CHECK_STATUS(tdm_placement_group_create(ANY, NULL, 1, (enum tdm_placement_strategy)1, 1, ANY),
                 "tdm_placement_group_create", "bundles");
    CHECK_STATUS(tdm_placement_group_create(ANY, ANY, 1, (enum tdm_placement_strategy)1, 1, NULL),
                 "tdm_placement_group_create", "group_out");
    CHECK_STATUS(tdm_placement_group_create_with(NULL, ANY, 1, ANY, 1, ANY),
                 "tdm_placement_group_create_with", "runtime");
    CHECK_STATUS(tdm_placement_group_create_with(ANY, NULL, 1, ANY, 1, ANY),
                 "tdm_placement_group_create_with", "bundles");
    CHECK_STATUS(tdm_placement_group_create_with(ANY, ANY, 1, NULL, 1, ANY),
                 "tdm_placement_group_create_with", "options");
    CHECK_STATUS(tdm_placement_group_create_with(ANY, ANY, 1, ANY, 1, NULL),
                 "tdm_placement_group_create_with", "group_out");
    CHECK_STATUS(tdm_placement_group_find(NULL, TEXT, TEXT, 1, ANY), "tdm_placement_group_find",
                 "runtime");
    CHECK_STATUS(tdm_placement_group_find(ANY, TEXT, NULL, 1, ANY), "tdm_placement_group_find",
                 "name");
    CHECK_STATUS(tdm_placement_group_find(ANY, TEXT, TEXT, 1, NULL), "tdm_placement_group_find",
                 "group_out");
    CHECK_STATUS(tdm_placement_group_find_by_id(NULL, TEXT, 1, ANY),
                 "tdm_placement_group_find_by_id", "runtime");
    CHECK_STATUS(tdm_placement_group_find_by_id(ANY, NULL, 1, ANY),
                 "tdm_placement_group_find_by_id", "id");
    CHECK_STATUS(tdm_placement_group_find_by_id(ANY, TEXT, 1, NULL),
                 "tdm_placement_group_find_by_id", "group_out");
    CHECK_STATUS(tdm_placement_group_wait(NULL, 1), "tdm_placement_group_wait", "group");
    CHECK_VOID(tdm_placement_group_describe(NULL, ANY), "tdm_placement_group_describe", "group");
    CHECK_VOID(tdm_placement_group_describe(ANY, NULL), "tdm_placement_group_describe", "info_out");
    CHECK_STATUS(tdm_placement_group_current(NULL, 1, ANY), "tdm_placement_group_current",
                 "runtime");
    CHECK_STATUS(tdm_placement_group_current(ANY, 1, NULL), "tdm_placement_group_current",
                 "group_out");
    CHECK_STATUS(tdm_placement_group_locate_bundle(NULL, 1, ANY),
                 "tdm_placement_group_locate_bundle", "group");
    CHECK_STATUS(tdm_placement_group_locate_bundle(ANY, 1, NULL),
                 "tdm_placement_group_locate_bundle", "placement_out");
    CHECK_VALUE(tdm_placement_group_bundles_count(NULL) == 0, "tdm_placement_group_bundles_count",
                "group");
}

static void call_region(void)
{
    CHECK_STATUS(tdm_region_create(NULL, ANY, ANY), "tdm_region_create", "runtime");
    CHECK_STATUS(tdm_region_create(ANY, NULL, ANY), "tdm_region_create", "options");
    CHECK_STATUS(tdm_region_create(ANY, ANY, NULL), "tdm_region_create", "region_out");
    CHECK_VALUE(tdm_region_address(NULL) == NULL, "tdm_region_address", "region");
    CHECK_VALUE(tdm_region_size(NULL) == 0, "tdm_region_size", "region");
    CHECK_VALUE(strcmp(tdm_region_tag(NULL), "") == 0, "tdm_region_tag", "region");
    CHECK_VALUE(strcmp(tdm_region_device(NULL), "") == 0, "tdm_region_device", "region");
    CHECK_VALUE(tdm_region_device_number(NULL) == -1, "tdm_region_device_number", "region");
    CHECK_VALUE(tdm_region_is_resident(NULL) == 0, "tdm_region_is_resident", "region");
    CHECK_VALUE(tdm_region_find(NULL) == NULL, "tdm_region_find", "address");
    CHECK_STATUS(tdm_region_descriptor(NULL, 1, ANY, ANY), "tdm_region_descriptor", "address");
    CHECK_STATUS(tdm_region_descriptor(ANY, 1, NULL, ANY), "tdm_region_descriptor",
                 "descriptor_out");
    CHECK_STATUS(tdm_region_descriptor(ANY, 1, ANY, NULL), "tdm_region_descriptor", "offset_out");
    CHECK_VOID(tdm_region_retain(NULL), "tdm_region_retain", "region");
    CHECK_VALUE(tdm_region_contents(NULL) == NULL, "tdm_region_contents", "region");
    CHECK_STATUS(tdm_region_pause(NULL), "tdm_region_pause", "region");
    CHECK_STATUS(tdm_region_resume(NULL, 1), "tdm_region_resume", "region");
    CHECK_STATUS(tdm_gpu_memory_check_ipc(NULL, 1), "tdm_gpu_memory_check_ipc", "address");
}

static void call_outside_memory(void)
{
    CHECK_STATUS(tdm_outside_memory_create(NULL, ANY, ANY), "tdm_outside_memory_create", "runtime");
    CHECK_STATUS(tdm_outside_memory_create(ANY, NULL, ANY), "tdm_outside_memory_create", "options");
    CHECK_STATUS(tdm_outside_memory_create(ANY, ANY, NULL), "tdm_outside_memory_create",
                 "memory_out");
    CHECK_STATUS(tdm_outside_memory_begin_resume(NULL, 1), "tdm_outside_memory_begin_resume",
                 "memory");
    CHECK_STATUS(tdm_outside_memory_end_resume(NULL, ANY), "tdm_outside_memory_end_resume",
                 "memory");
    CHECK_STATUS(tdm_outside_memory_begin_pause(NULL), "tdm_outside_memory_begin_pause", "memory");
    CHECK_STATUS(tdm_outside_memory_end_pause(NULL, 1, ANY), "tdm_outside_memory_end_pause",
                 "memory");
    CHECK_VALUE(tdm_outside_memory_is_resident(NULL) == 0, "tdm_outside_memory_is_resident",
                "memory");
}

static void call_runtime(void)
{
    CHECK_STATUS(tdm_runtime_start(ANY, NULL), "tdm_runtime_start", "runtime_out");
    CHECK_STATUS(tdm_runtime_lend_cpus(NULL), "tdm_runtime_lend_cpus", "runtime");
    CHECK_STATUS(tdm_runtime_take_cpus_back(NULL), "tdm_runtime_take_cpus_back", "runtime");
    CHECK_STATUS(tdm_runtime_exit_actor(NULL), "tdm_runtime_exit_actor", "runtime");
    CHECK_STATUS(tdm_actor_watch(NULL, 1), "tdm_actor_watch", "runtime");
    CHECK_STATUS(tdm_actor_unwatch(NULL, 1), "tdm_actor_unwatch", "runtime");
    CHECK_VOID(tdm_runtime_describe(NULL, ANY), "tdm_runtime_describe", "runtime");
    CHECK_VOID(tdm_runtime_describe(ANY, NULL), "tdm_runtime_describe", "info_out");
}

/* A callback that is never called. */
static void unused_output(void *arg, const struct tdm_worker_output *output)
{
    (void)arg;
    (void)output;
}

static void call_state(void)
{
    CHECK_STATUS(tdm_list_actors(NULL, 1, ANY, ANY, ANY), "tdm_list_actors", "runtime");
    CHECK_STATUS(tdm_list_actors(ANY, 1, NULL, ANY, ANY), "tdm_list_actors", "actors_out");
    CHECK_STATUS(tdm_list_actors(ANY, 1, ANY, NULL, ANY), "tdm_list_actors", "actors_count_out");
    CHECK_STATUS(tdm_list_nodes(NULL, 1, ANY, ANY), "tdm_list_nodes", "runtime");
    CHECK_STATUS(tdm_list_nodes(ANY, 1, NULL, ANY), "tdm_list_nodes", "nodes_out");
    CHECK_STATUS(tdm_list_nodes(ANY, 1, ANY, NULL), "tdm_list_nodes", "nodes_count_out");
    CHECK_STATUS(tdm_list_objects(NULL, 1, ANY, ANY, ANY), "tdm_list_objects", "runtime");
    CHECK_STATUS(tdm_list_objects(ANY, 1, NULL, ANY, ANY), "tdm_list_objects", "objects_out");
    CHECK_STATUS(tdm_list_objects(ANY, 1, ANY, NULL, ANY), "tdm_list_objects", "objects_count_out");
    CHECK_STATUS(tdm_list_calls(NULL, 1, ANY, ANY, ANY), "tdm_list_calls", "runtime");
    CHECK_STATUS(tdm_list_calls(ANY, 1, NULL, ANY, ANY), "tdm_list_calls", "calls_out");
    CHECK_STATUS(tdm_list_calls(ANY, 1, ANY, NULL, ANY), "tdm_list_calls", "calls_count_out");
    CHECK_STATUS(tdm_list_each_call(NULL, 1, ANY, ANY, ANY), "tdm_list_each_call", "runtime");
    CHECK_STATUS(tdm_list_each_call(ANY, 1, NULL, ANY, ANY), "tdm_list_each_call", "calls_out");
    CHECK_STATUS(tdm_list_each_call(ANY, 1, ANY, NULL, ANY), "tdm_list_each_call",
                 "calls_count_out");
    CHECK_STATUS(tdm_list_placement_groups(NULL, 1, ANY, ANY), "tdm_list_placement_groups",
                 "runtime");
    CHECK_STATUS(tdm_list_placement_groups(ANY, 1, NULL, ANY), "tdm_list_placement_groups",
                 "groups_out");
    CHECK_STATUS(tdm_list_placement_groups(ANY, 1, ANY, NULL), "tdm_list_placement_groups",
                 "groups_count_out");
    CHECK_STATUS(tdm_take_worker_output(NULL, ANY, 1, unused_output, NULL),
                 "tdm_take_worker_output", "runtime");
    CHECK_STATUS(tdm_take_worker_output(ANY, ANY, 1, NULL, NULL), "tdm_take_worker_output", "fn");
}

static void call_tensor(void)
{
    CHECK_VALUE(tdm_tensor_elements(NULL) == UINT64_MAX, "tdm_tensor_elements", "info");
    CHECK_VALUE(tdm_tensor_bytes(NULL) == UINT64_MAX, "tdm_tensor_bytes", "info");
    CHECK_STATUS(tdm_safetensors_open(NULL, ANY), "tdm_safetensors_open", "path");
    CHECK_STATUS(tdm_safetensors_open(TEXT, NULL), "tdm_safetensors_open", "file_out");
    CHECK_VALUE(tdm_safetensors_count(NULL) == 0, "tdm_safetensors_count", "file");
    CHECK_VALUE(tdm_safetensors_view(NULL, 1) == NULL, "tdm_safetensors_view", "file");
    CHECK_VALUE(tdm_safetensors_find(NULL, TEXT) == NULL, "tdm_safetensors_find", "file");
    CHECK_VALUE(tdm_safetensors_find(ANY, NULL) == NULL, "tdm_safetensors_find", "name");
    CHECK_STATUS(tdm_safetensors_write(NULL, ANY, 1), "tdm_safetensors_write", "path");
    CHECK_STATUS(tdm_safetensors_write(TEXT, NULL, 1), "tdm_safetensors_write", "tensors");
    CHECK_STATUS(tdm_safetensors_write_model(NULL, ANY, 1, 1), "tdm_safetensors_write_model",
                 "directory");
    CHECK_STATUS(tdm_safetensors_write_model(TEXT, NULL, 1, 1), "tdm_safetensors_write_model",
                 "tensors");
}

static void call_util_1(void)
{
    CHECK_STATUS(tdm_queue_create(NULL, 1, ANY, ANY), "tdm_queue_create", "runtime");
    CHECK_STATUS(tdm_queue_create(ANY, 1, ANY, NULL), "tdm_queue_create", "queue_out");
    CHECK_STATUS(tdm_queue_put(NULL, 1, TEXT), "tdm_queue_put", "queue");
    CHECK_STATUS(tdm_queue_put(ANY, 1, NULL), "tdm_queue_put", "format");
    CHECK_STATUS(tdm_queue_get(NULL, 1, ANY), "tdm_queue_get", "queue");
    CHECK_STATUS(tdm_queue_get(ANY, 1, NULL), "tdm_queue_get", "item_out");
    CHECK_STATUS(tdm_queue_put_many(NULL, ANY, 1), "tdm_queue_put_many", "queue");
    CHECK_STATUS(tdm_queue_put_many(ANY, NULL, 1), "tdm_queue_put_many", "items");
    CHECK_STATUS(tdm_queue_get_many(NULL, 1, ANY), "tdm_queue_get_many", "queue");
    CHECK_STATUS(tdm_queue_get_many(ANY, 1, NULL), "tdm_queue_get_many", "items_out");
    CHECK_STATUS(tdm_queue_size(NULL, ANY), "tdm_queue_size", "queue");
    CHECK_STATUS(tdm_queue_size(ANY, NULL), "tdm_queue_size", "items_count_out");
    CHECK_STATUS(tdm_queue_is_empty(NULL, ANY), "tdm_queue_is_empty", "queue");
    CHECK_STATUS(tdm_queue_is_empty(ANY, NULL), "tdm_queue_is_empty", "empty_out");
    CHECK_STATUS(tdm_queue_is_full(NULL, ANY), "tdm_queue_is_full", "queue");
    CHECK_STATUS(tdm_queue_is_full(ANY, NULL), "tdm_queue_is_full", "full_out");
    CHECK_STATUS(tdm_actor_pool_create(NULL, 1, ANY), "tdm_actor_pool_create", "actors");
    CHECK_STATUS(tdm_actor_pool_create(ANY, 1, NULL), "tdm_actor_pool_create", "pool_out");
    CHECK_STATUS(tdm_actor_pool_submit(NULL, TEXT, TEXT), "tdm_actor_pool_submit", "pool");
    CHECK_STATUS(tdm_actor_pool_submit(ANY, NULL, TEXT), "tdm_actor_pool_submit", "method");
}

static void call_util_2(void)
{
    CHECK_STATUS(tdm_actor_pool_submit(ANY, TEXT, NULL), "tdm_actor_pool_submit", "format");
    CHECK_STATUS(tdm_actor_pool_submit_with(NULL, make_call, ANY), "tdm_actor_pool_submit_with",
                 "pool");
    CHECK_STATUS(tdm_actor_pool_submit_with(ANY, NULL, ANY), "tdm_actor_pool_submit_with", "call");
    CHECK_STATUS(tdm_actor_pool_get_next(NULL, 1, ANY), "tdm_actor_pool_get_next", "pool");
    CHECK_STATUS(tdm_actor_pool_get_next(ANY, 1, NULL), "tdm_actor_pool_get_next", "ref_out");
    CHECK_STATUS(tdm_actor_pool_get_next_unordered(NULL, 1, ANY),
                 "tdm_actor_pool_get_next_unordered", "pool");
    CHECK_STATUS(tdm_actor_pool_get_next_unordered(ANY, 1, NULL),
                 "tdm_actor_pool_get_next_unordered", "ref_out");
    CHECK_VALUE(tdm_actor_pool_has_next(NULL) == 0, "tdm_actor_pool_has_next", "pool");
    CHECK_VALUE(tdm_actor_pool_has_free(NULL) == 0, "tdm_actor_pool_has_free", "pool");
    CHECK_VALUE(tdm_actor_pool_pop_idle(NULL) == NULL, "tdm_actor_pool_pop_idle", "pool");
    CHECK_STATUS(tdm_actor_pool_push(NULL, ANY), "tdm_actor_pool_push", "pool");
    CHECK_STATUS(tdm_actor_pool_push(ANY, NULL), "tdm_actor_pool_push", "actor");
    CHECK_STATUS(tdm_actor_pool_map(NULL, ANY, 1), "tdm_actor_pool_map", "pool");
    CHECK_STATUS(tdm_actor_pool_map(ANY, NULL, 1), "tdm_actor_pool_map", "map");
    CHECK_STATUS(tdm_actor_pool_map_unordered(NULL, ANY, 1), "tdm_actor_pool_map_unordered",
                 "pool");
    CHECK_STATUS(tdm_actor_pool_map_unordered(ANY, NULL, 1), "tdm_actor_pool_map_unordered", "map");
}

static void call_value_1(void)
{
    CHECK_VALUE(tdm_ndarray_bytes(NULL) == UINT64_MAX, "tdm_ndarray_bytes", "ndarray");
    CHECK_STATUS(tdm_writer_create(NULL), "tdm_writer_create", "writer_out");
    CHECK_VOID(tdm_writer_clear(NULL), "tdm_writer_clear", "writer");
    CHECK_VALUE(tdm_writer_bytes(NULL).data == NULL, "tdm_writer_bytes", "writer");
    CHECK_VOID(tdm_write_int(NULL, 1), "tdm_write_int", "writer");
    CHECK_VOID(tdm_write_uint(NULL, 1), "tdm_write_uint", "writer");
    CHECK_VOID(tdm_write_double(NULL, 0), "tdm_write_double", "writer");
    CHECK_VOID(tdm_write_bool(NULL, 1), "tdm_write_bool", "writer");
    CHECK_VOID(tdm_write_string(NULL, TEXT), "tdm_write_string", "writer");
    CHECK_VOID(tdm_write_bytes(NULL, ANY, 1), "tdm_write_bytes", "writer");
    CHECK_VOID(tdm_write_ndarray(NULL, ANY), "tdm_write_ndarray", "writer");
    CHECK_VOID(tdm_write_nil(NULL), "tdm_write_nil", "writer");
    CHECK_VOID(tdm_write_array(NULL, 1), "tdm_write_array", "writer");
    CHECK_VOID(tdm_write_map(NULL, 1), "tdm_write_map", "writer");
    CHECK_VOID(tdm_write_value(NULL, ANY), "tdm_write_value", "writer");
    CHECK_VOID(tdm_write_packed(NULL, no_bytes), "tdm_write_packed", "writer");
    CHECK_STATUS(tdm_writer_status(NULL), "tdm_writer_status", "writer");
    CHECK_STATUS(tdm_pack(NULL, TEXT), "tdm_pack", "writer");
    CHECK_STATUS(tdm_pack(ANY, NULL), "tdm_pack", "format");
    CHECK_STATUS(tdm_document_parse(no_bytes, NULL), "tdm_document_parse", "document_out");
}

static void call_value_2(void)
{
    CHECK_VALUE(tdm_document_root(NULL) == NULL, "tdm_document_root", "document");
    CHECK_VALUE(tdm_value_find(ANY, NULL) == NULL, "tdm_value_find", "key");
    CHECK_STATUS(tdm_unpack(ANY, NULL), "tdm_unpack", "format");
}

static void call_value_va(int unused, ...)
{
    va_list args;

    va_start(args, unused);
    CHECK_STATUS(tdm_pack_va(NULL, TEXT, args), "tdm_pack_va", "writer");
    CHECK_STATUS(tdm_pack_va(ANY, NULL, args), "tdm_pack_va", "format");
    CHECK_STATUS(tdm_unpack_va(ANY, NULL, args), "tdm_unpack_va", "format");
    va_end(args);
}

static void call_weights(void)
{
    CHECK_STATUS(tdm_weights_sender_create(NULL, ANY, ANY), "tdm_weights_sender_create", "runtime");
    CHECK_STATUS(tdm_weights_sender_create(ANY, NULL, ANY), "tdm_weights_sender_create", "options");
    CHECK_STATUS(tdm_weights_sender_create(ANY, ANY, NULL), "tdm_weights_sender_create",
                 "sender_out");
    CHECK_STATUS(tdm_weights_sender_create_set(NULL, ANY, 1, ANY), "tdm_weights_sender_create_set",
                 "runtime");
    CHECK_STATUS(tdm_weights_sender_create_set(ANY, NULL, 1, ANY), "tdm_weights_sender_create_set",
                 "options");
    CHECK_STATUS(tdm_weights_sender_create_set(ANY, ANY, 1, NULL), "tdm_weights_sender_create_set",
                 "sender_out");
    CHECK_STATUS(tdm_weights_sender_connect(NULL), "tdm_weights_sender_connect", "sender");
    CHECK_STATUS(tdm_weights_attach(NULL, no_bytes), "tdm_weights_attach", "sender");
    CHECK_STATUS(tdm_weights_send(NULL, ANY), "tdm_weights_send", "sender");
    CHECK_STATUS(tdm_weights_send_async(NULL), "tdm_weights_send_async", "sender");
    CHECK_STATUS(tdm_weights_wait(NULL, 1, ANY), "tdm_weights_wait", "sender");
    CHECK_VALUE(tdm_weights_receivers_count(NULL) == 0, "tdm_weights_receivers_count", "sender");
    CHECK_STATUS(tdm_weights_receiver_create(NULL, ANY, ANY), "tdm_weights_receiver_create",
                 "runtime");
    CHECK_STATUS(tdm_weights_receiver_create(ANY, NULL, ANY), "tdm_weights_receiver_create",
                 "options");
    CHECK_STATUS(tdm_weights_receiver_create(ANY, ANY, NULL), "tdm_weights_receiver_create",
                 "receiver_out");
    CHECK_STATUS(tdm_weights_receiver_create_set(NULL, ANY, 1, ANY),
                 "tdm_weights_receiver_create_set", "runtime");
    CHECK_STATUS(tdm_weights_receiver_create_set(ANY, NULL, 1, ANY),
                 "tdm_weights_receiver_create_set", "options");
    CHECK_STATUS(tdm_weights_receiver_create_set(ANY, ANY, 1, NULL),
                 "tdm_weights_receiver_create_set", "receiver_out");
    CHECK_VALUE(tdm_weights_receiver_of(NULL, ANY) == NULL, "tdm_weights_receiver_of", "receiver");
    CHECK_VALUE(tdm_weights_receiver_of(ANY, NULL) == NULL, "tdm_weights_receiver_of", "model");
    CHECK_STATUS(tdm_weights_receiver_connect(NULL), "tdm_weights_receiver_connect", "receiver");
    CHECK_STATUS(tdm_weights_receive(NULL, 1, ANY), "tdm_weights_receive", "receiver");
    CHECK_STATUS(tdm_weights_read_begin(NULL, ANY), "tdm_weights_read_begin", "receiver");
    CHECK_VOID(tdm_weights_read_end(NULL), "tdm_weights_read_end", "receiver");
    CHECK_VALUE(tdm_weights_data(NULL, 1) == NULL, "tdm_weights_data", "receiver");
    CHECK_VALUE(tdm_weights_attached(NULL).size_bytes == 0, "tdm_weights_attached", "receiver");
    CHECK_STATUS(tdm_weights_serve(NULL, ANY), "tdm_weights_serve", "call");
}

/* ---- the tests -------------------------------------------------------------------------- */

static void make_calls(void)
{
    call_actor_1();
    call_actor_2();
    call_actor_3();
    call_actor_4();
    call_config_1();
    call_config_2();
    call_group();
    call_placement();
    call_region();
    call_outside_memory();
    call_runtime();
    call_state();
    call_tensor();
    call_util_1();
    call_util_2();
    call_value_1();
    call_value_2();
    call_value_va(0);
    call_weights();
}

static void test_null_arguments_are_refused_by_name(void **state)
{
    static char said[1 << 16];
    size_t used = 0;
    ssize_t got;
    int ends[2];
    int wait_status;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        report_fd = ends[1];
        make_calls();
        _exit(0);
    }
    (void)close(ends[1]);
    while ((got = read(ends[0], said + used, sizeof(said) - 1 - used)) > 0) {
        used += (size_t)got;
    }
    said[used] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    if (wait_status != 0) {
        fail_msg("wait status %d after:\n%s", wait_status, said + (used > 400 ? used - 400 : 0));
    }
}

/* A writer remembers what was wrong until it is asked. */
static void test_writer_reports_values_that_are_null(void **state)
{
    tdm_writer *writer;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_bytes(writer, NULL, 1);
    assert_int_equal(tdm_writer_status(writer), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "argument \"data\" of tdm_write_bytes is NULL"));
    tdm_writer_clear(writer);
    tdm_write_ndarray(writer, NULL);
    assert_int_equal(tdm_writer_status(writer), TDM_E_INVAL);
    assert_non_null(
        strstr(tdm_error_detail(), "argument \"ndarray\" of tdm_write_ndarray is NULL"));
    tdm_writer_destroy(writer);
}

static void test_failed_call_sets_its_out_parameter_to_null(void **state)
{
    tdm_config *config = ANY;
    tdm_document *document = ANY;
    tdm_actor *actor = ANY;

    (void)state;
    assert_int_equal(tdm_config_read("/no/such/file", &config), TDM_E_NOT_FOUND);
    assert_null(config);
    assert_int_equal(tdm_document_parse(no_bytes, &document), TDM_E_PROTOCOL);
    assert_null(document);
    assert_int_equal(tdm_actor_find(NULL, TEXT, 0, &actor), TDM_E_INVAL);
    assert_null(actor);
}

/* Look-ups can be chained without a check in between. */
static void test_null_value_reads_as_nil(void **state)
{
    static const char *const no_format; /* The compiler would refuse a literal NULL. */
    const char *text = "left";

    (void)state;
    assert_int_equal(tdm_value_kind_of(NULL), TDM_NIL);
    assert_int_equal(tdm_value_count(NULL), 0);
    assert_null(tdm_value_at(NULL, 0));
    assert_null(tdm_value_find(NULL, TEXT));
    assert_null(tdm_value_pair(NULL, 0, NULL));
    assert_int_equal(tdm_value_int(NULL, 3), 3);
    assert_int_equal(tdm_value_uint(NULL, 3), 3);
    assert_true(tdm_value_double(NULL, 3) > 2);
    assert_int_equal(tdm_value_bool(NULL, 1), 1);
    assert_string_equal(tdm_value_string(NULL, "other"), "other");
    assert_null(tdm_value_bytes(NULL).data);
    assert_null(tdm_value_ndarray(NULL));
    assert_int_equal(tdm_unpack(NULL, "s", &text), TDM_E_TYPE);
    assert_string_equal(text, "left");
    tdm_check(TDM_OK, NULL);
    assert_int_equal((tdm_fail)(TDM_E_LIMIT, no_format), TDM_E_LIMIT);
    assert_string_equal(tdm_error_detail(), "tdm_fail failed: argument \"format\" is NULL");
}

static void test_null_is_allowed_where_there_is_nothing_to_free(void **state)
{
    (void)state;
    tdm_actor_destroy(NULL);
    tdm_actor_pool_destroy(NULL);
    tdm_config_destroy(NULL);
    tdm_document_destroy(NULL);
    tdm_collective_leave(NULL);
    tdm_list_free(NULL);
    tdm_placement_group_release(NULL);
    (void)tdm_placement_group_remove(NULL, 0);
    tdm_ref_release(NULL);
    tdm_region_destroy(NULL);
    tdm_region_release(NULL);
    tdm_outside_memory_destroy(NULL);
    tdm_runtime_stop(NULL);
    tdm_safetensors_close(NULL);
    tdm_events_destroy(NULL);
    tdm_stream_destroy(NULL);
    tdm_weights_receiver_shutdown(NULL);
    tdm_weights_sender_shutdown(NULL);
    tdm_writer_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_arguments_are_refused_by_name),
        cmocka_unit_test(test_writer_reports_values_that_are_null),
        cmocka_unit_test(test_failed_call_sets_its_out_parameter_to_null),
        cmocka_unit_test(test_null_value_reads_as_nil),
        cmocka_unit_test(test_null_is_allowed_where_there_is_nothing_to_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
