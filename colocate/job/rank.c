/* rank.c - the state and functions that trainer and engine actors share. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The constructors of both classes first call tdm__rank_open(). It decodes the arguments, opens
 * the library, finds the GPU of this process and joins the collective group. tdm__rank_close()
 * undoes this and may be called after a failure at any point. Regions are created paused; resume
 * and pause skip regions that are in the wanted state already, so that both are idempotent. The
 * functions run on the actor's method thread. */
#include "colocate/job/rank.h"

#include "actors/process/runtime.h"
#include "colocate/job/job_file.h"
#include "colocate/memory/region_api.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Longest time in milliseconds to wait for the memory of a region. */
enum { RESUME_MS = 10000 };
/* Longest time in milliseconds to wait until a device reports outside memory free. */
enum { OUTSIDE_FREE_MS = 5000 };
/* Bytes of the host memory by which tdm__rank_check_device() asks the GPU. */
enum { PROBE_BYTES = 4096 };

/* ---- names ------------------------------------------------------------------------------ */

void tdm__rank_name(char name[TDM__RANK_NAME_BYTES], const char *model, const char *format, ...)
{
    bool is_default = strcmp(model, TDM__JOB_MODEL) == 0;
    int begun = snprintf(name, TDM__RANK_NAME_BYTES, "%s%s", is_default ? "" : model,
                         is_default ? "" : "/");
    va_list args;

    va_start(args, format);
    (void)vsnprintf(name + begun, TDM__RANK_NAME_BYTES - (size_t)begun, format, args);
    va_end(args);
}

/* ---- open and close --------------------------------------------------------------------- */

/* Joins the group of the ranks that compute together. Blocks until all have joined. */
static tdm_status join_collective_group(struct tdm__rank *rank,
                                        const struct tdm__rank_arguments_message *arguments)
{
    struct tdm_collective_options options = {.name = arguments->group,
                                             .rank = arguments->rank,
                                             .ranks_count = arguments->ranks_count,
                                             .timeout_ms = rank->timeout_ms,
                                             .node_id = arguments->meeting_node};

    return tdm_collective_join(rank->runtime, &options, &rank->group);
}

/* Builds the rank's named layout, if its section of the job file names one, and tells the
 * library about it. */
static tdm_status create_named_layout(struct tdm__rank *rank,
                                      const struct tdm__rank_arguments_message *arguments,
                                      const char *section)
{
    const struct tdm__named_layout_options options = {.config = rank->config,
                                                      .section = section,
                                                      .model_config = rank->files.model_config.path,
                                                      .rank = arguments->rank,
                                                      .ranks_count = arguments->ranks_count};

    TDM_TRY(tdm__named_layout_create(&options, &rank->named_layout));
    tdm__named_layout_fill_context(rank->named_layout, &rank->context);
    return TDM_OK;
}

tdm_status tdm__rank_open(struct tdm__rank *rank, tdm_call *call, const char *section)
{
    struct tdm__rank_arguments_message arguments;
    struct tdm__id node;

    TDM_TRY(tdm__rank_arguments_decode(tdm_call_arguments(call), &arguments));
    rank->runtime = tdm_runtime_current();
    if (arguments.ranks_per_engine == 0 || arguments.gather_groups == 0 ||
        arguments.ranks_per_group == 0 || arguments.engines_per_group == 0) {
        return tdm__fail(
            TDM_E_PROTOCOL, "a rank of %u gather groups of %u ranks for engines of %u ranks",
            arguments.gather_groups, arguments.ranks_per_group, arguments.ranks_per_engine);
    }
    rank->groups = (struct tdm__gather_groups){.count = arguments.gather_groups,
                                               .ranks_per_group = arguments.ranks_per_group,
                                               .ranks_per_engine = arguments.ranks_per_engine,
                                               .engines_per_group = arguments.engines_per_group};
    rank->bucket_bytes = arguments.bucket_bytes;
    rank->timeout_ms = arguments.timeout_ms;
    if (arguments.verify > TDM__VERIFY_SAMPLE) {
        return tdm__fail(TDM_E_PROTOCOL, "a rank that is to verify in way %u", arguments.verify);
    }
    rank->verify = (enum tdm__verify)arguments.verify;
    rank->overwrites = arguments.overwrites;
    if (strlen(arguments.model) >= sizeof(rank->model)) {
        return tdm__fail(TDM_E_PROTOCOL, "a rank of a model whose name has %zu bytes",
                         strlen(arguments.model));
    }
    (void)snprintf(rank->model, sizeof(rank->model), "%s", arguments.model);
    (void)snprintf(rank->group_name, sizeof(rank->group_name), "%s", arguments.group);
    TDM_TRY(tdm_config_parse(arguments.config_json, strlen(arguments.config_json),
                             arguments.config_name, &rank->config));
    TDM_TRY(tdm__rank_files_open(rank->runtime, &arguments, rank->config, &rank->files,
                                 &rank->library));
    TDM_TRY(tdm__runtime_regions_of_gpu(rank->runtime, 0, &rank->regions));
    TDM_TRY(tdm__id_parse(rank->runtime->node_id, &node));
    rank->location = tdm__location_of_device(&node, tdm__regions_device(rank->regions));
    TDM_TRY(join_collective_group(rank, &arguments));
    rank->context =
        (struct tdm_rank_context){.config = rank->config,
                                  .rank = arguments.rank,
                                  .ranks_count = arguments.ranks_count,
                                  .engine = arguments.engine,
                                  .seed = arguments.seed,
                                  .group = rank->group,
                                  .module_folder = tdm__rank_files_module_folder(&rank->files)};
    return create_named_layout(rank, &arguments, section);
}

void tdm__rank_close(struct tdm__rank *rank, void (*close)(void *state))
{
    if (rank->state != NULL) {
        close(rank->state);
    }
    for (uint32_t i = 0; i < rank->memory_count; i++) {
        tdm_region_destroy(rank->memory[i]);
        tdm_outside_memory_destroy(rank->outside[i]);
    }
    tdm_collective_leave(rank->group);
    tdm__named_layout_destroy(rank->named_layout);
    tdm_config_destroy(rank->config);
    /* The library is not closed: its destructors run when the process ends. */
}

/* ---- faults ----------------------------------------------------------------------------- */

tdm_status tdm__rank_check_device(const struct tdm__rank *rank, tdm_status status)
{
    struct tdm__device *device = tdm__regions_device(rank->regions);
    char detail[TDM__ERROR_DETAIL_BYTES];
    void *memory;

    if (status != TDM_E_DEVICE) {
        return status;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    /* Any call tells; this one needs no memory of the GPU and no stream. */
    if (device->ops->host_alloc(device, PROBE_BYTES, &memory) == TDM_OK) {
        device->ops->host_free(device, memory, PROBE_BYTES);
    }
    return tdm__fail(status, "%s", detail);
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Returns true if the library allocates this memory itself. */
static bool is_outside(const struct tdm_region_spec *spec)
{
    return spec->policy == TDM_REGION_OUTSIDE_KEEP || spec->policy == TDM_REGION_OUTSIDE_DROP;
}

/* Declares memory that the library allocates itself. */
static tdm_status declare_outside(struct tdm__rank *rank, const struct tdm_region_spec *spec)
{
    const struct tdm_outside_memory_options options = {
        .tag = spec->tag,
        .size_bytes = spec->size_bytes,
        .policy = spec->policy == TDM_REGION_OUTSIDE_KEEP ? TDM_REGION_KEEP : TDM_REGION_DROP};

    if (rank->pause_outside == NULL || rank->resume_outside == NULL) {
        return tdm__fail(TDM_E_INVAL,
                         "the library declares the outside memory \"%s\", but its table lacks "
                         "pause() or resume()",
                         spec->tag);
    }
    TDM_TRY(tdm_outside_memory_create(rank->runtime, &options, &rank->outside[rank->memory_count]));
    rank->memory_count++;
    return TDM_OK;
}

tdm_status tdm__rank_reserve_regions(struct tdm__rank *rank, const struct tdm_region_spec *specs,
                                     uint32_t count)
{
    if (count > TDM_RANK_REGIONS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u regions of one rank, at most %d", count,
                         (int)TDM_RANK_REGIONS_MAX);
    }
    if (rank->named_layout != NULL) {
        TDM_TRY(tdm__named_layout_check_regions(rank->named_layout, specs, count));
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm_region_options options = {.tag = specs[i].tag,
                                                   .size_bytes = specs[i].size_bytes,
                                                   .policy = specs[i].policy,
                                                   .paused = 1};

        if (is_outside(&specs[i])) {
            TDM_TRY(declare_outside(rank, &specs[i]));
            continue;
        }
        TDM_TRY(tdm__region_create(rank->regions, &options, &rank->memory[rank->memory_count]));
        rank->memory_count++;
    }
    return TDM_OK;
}

tdm_status tdm__rank_find_region(struct tdm__rank *rank, const char *tag, tdm_region **region_out)
{
    for (uint32_t i = 0; i < rank->memory_count; i++) {
        if (rank->memory[i] != NULL && strcmp(tdm_region_tag(rank->memory[i]), tag) == 0) {
            *region_out = rank->memory[i];
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_NOT_FOUND, "the library declares no region \"%s\"", tag);
}

void tdm__rank_region_addresses(struct tdm__rank *rank, void *addresses[TDM_RANK_REGIONS_MAX])
{
    for (uint32_t i = 0; i < rank->memory_count; i++) {
        addresses[i] = rank->memory[i] == NULL ? NULL : tdm_region_address(rank->memory[i]);
    }
}

/* Adds a span for a region that was resumed or paused. Contents are moved from or to "host" only
 * if the region has a host copy; otherwise the other end is "nowhere". */
static void add_region_span(struct tdm__rank *rank, bool resumed, const tdm_region *region,
                            bool has_host_copy, int64_t begin_ns)
{
    const char *away = has_host_copy ? "host" : "nowhere";
    struct tdm__span span = {.begin_ns = begin_ns, .bytes = tdm_region_size(region)};

    (void)snprintf(span.name, sizeof(span.name), "%s %s", resumed ? "resume" : "pause",
                   tdm_region_tag(region));
    (void)snprintf(span.from, sizeof(span.from), "%s", resumed ? away : "device");
    (void)snprintf(span.to, sizeof(span.to), "%s", resumed ? "device" : away);
    tdm__spans_add_transfer(&rank->spans, &span);
}

/* Adds a span for outside memory that the library has allocated or freed; its contents are the
 * library's. */
static void add_outside_span(struct tdm__rank *rank, bool resumed,
                             const tdm_outside_memory *outside, int64_t begin_ns)
{
    struct tdm__span span = {.begin_ns = begin_ns, .bytes = tdm__outside_memory_bytes(outside)};

    (void)snprintf(span.name, sizeof(span.name), "%s %s", resumed ? "resume" : "pause",
                   tdm__outside_memory_tag(outside));
    (void)snprintf(span.from, sizeof(span.from), "%s", resumed ? "library" : "device");
    (void)snprintf(span.to, sizeof(span.to), "%s", resumed ? "device" : "library");
    tdm__spans_add_transfer(&rank->spans, &span);
}

/* Lets the library allocate outside memory once it is granted. If the library fails, what it has
 * freed again is not counted. */
static tdm_status resume_outside(struct tdm__rank *rank, tdm_outside_memory *outside)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    int64_t begin_ns = tdm__clock_ns();
    tdm_status status;

    TDM_TRY(tdm_outside_memory_begin_resume(outside, RESUME_MS));
    status = tdm__wrap(rank->resume_outside(rank->state, tdm__outside_memory_tag(outside)),
                       "resume(\"%s\")", tdm__outside_memory_tag(outside));
    if (status != TDM_OK) {
        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        (void)tdm_outside_memory_end_pause(outside, 0, NULL);
        return tdm__fail(status, "%s", detail);
    }
    TDM_TRY(tdm_outside_memory_end_resume(outside, NULL));
    add_outside_span(rank, true, outside, begin_ns);
    return TDM_OK;
}

/* Lets the library free outside memory. If the library fails, the memory stays resident. */
static tdm_status pause_outside(struct tdm__rank *rank, tdm_outside_memory *outside)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    int64_t begin_ns = tdm__clock_ns();
    tdm_status status;

    TDM_TRY(tdm_outside_memory_begin_pause(outside));
    status = tdm__wrap(rank->pause_outside(rank->state, tdm__outside_memory_tag(outside)),
                       "pause(\"%s\")", tdm__outside_memory_tag(outside));
    if (status != TDM_OK) {
        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        (void)tdm_outside_memory_end_resume(outside, NULL);
        return tdm__fail(status, "%s", detail);
    }
    TDM_TRY(tdm_outside_memory_end_pause(outside, OUTSIDE_FREE_MS, NULL));
    add_outside_span(rank, false, outside, begin_ns);
    return TDM_OK;
}

/* Resumes a paused region. */
static tdm_status resume_region(struct tdm__rank *rank, tdm_region *region)
{
    bool has_host_copy = tdm_region_contents(region) != NULL;
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(tdm_region_resume(region, RESUME_MS));
    add_region_span(rank, true, region, has_host_copy, begin_ns);
    return TDM_OK;
}

/* Pauses a resident region. */
static tdm_status pause_region(struct tdm__rank *rank, tdm_region *region)
{
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(tdm_region_pause(region));
    add_region_span(rank, false, region, tdm_region_contents(region) != NULL, begin_ns);
    return TDM_OK;
}

/* Returns true if the rank's memory number `i` is resident. */
static bool memory_is_resident(const struct tdm__rank *rank, uint32_t i)
{
    return rank->memory[i] == NULL ? tdm_outside_memory_is_resident(rank->outside[i])
                                   : tdm_region_is_resident(rank->memory[i]);
}

tdm_status tdm__rank_resume_regions(struct tdm__rank *rank, const char *tag)
{
    for (uint32_t i = 0; i < rank->memory_count; i++) {
        tdm_region *region = rank->memory[i];
        const char *own_tag =
            region == NULL ? tdm__outside_memory_tag(rank->outside[i]) : tdm_region_tag(region);

        if (memory_is_resident(rank, i) || (tag != NULL && strcmp(own_tag, tag) != 0)) {
            continue;
        }
        TDM_TRY(region == NULL ? resume_outside(rank, rank->outside[i])
                               : resume_region(rank, region));
    }
    return TDM_OK;
}

tdm_status tdm__rank_pause_regions(struct tdm__rank *rank)
{
    for (uint32_t i = rank->memory_count; i-- > 0;) {
        if (memory_is_resident(rank, i)) {
            TDM_TRY(rank->memory[i] == NULL ? pause_outside(rank, rank->outside[i])
                                            : pause_region(rank, rank->memory[i]));
        }
    }
    return TDM_OK;
}

/* ---- calls ------------------------------------------------------------------------------ */

tdm_status tdm__rank_call(tdm_actor *actor, const char *method, const struct tdm__message *table,
                          const void *arguments, tdm_ref **ref_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__message_encode(table, arguments, writer);
    if (status == TDM_OK) {
        status = tdm_actor_call_packed(actor, method, tdm_writer_bytes(writer), ref_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__rank_compares_logprobs(const struct tdm__rank *rank, bool *compares_out)
{
    double converted;
    double plain;

    TDM_TRY(tdm_config_double(rank->config, "update.logprob_tolerance", 0, &plain));
    TDM_TRY(tdm_config_double(rank->config, "update.logprob_tolerance_converted", 0, &converted));
    *compares_out = plain > 0 || converted > 0;
    return TDM_OK;
}

tdm_status tdm__rank_method_trace(struct tdm__rank *rank, tdm_call *call)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm__spans_write(&rank->spans, writer);
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__rank_reply_layout(const struct tdm__rank *rank, tdm_call *call,
                                  const struct tdm__layout *layout, const tdm_region *weights,
                                  bool converts)
{
    tdm_writer *writer;
    tdm_writer *packed;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_writer_create(&packed);
    if (status == TDM_OK) {
        status = tdm__layout_encode(layout, tdm_region_address(weights), packed);
        if (status == TDM_OK) {
            const struct tdm__engine_layout_message message = {
                tdm_region_size(weights), tdm_writer_bytes(packed), converts, rank->location.gpu};

            status = tdm__engine_layout_encode(&message, writer);
        }
        tdm_writer_destroy(packed);
    }
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}
