/* region_api.c - the regions and the outside memory of this actor: connects them to broker and
 * arbiter. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This file owns the process's memory: one broker client, one arena, and per GPU of the actor a
 * device and its set of regions. They are created on first use and destroyed when the runtime
 * stops.
 *
 * Before a region allocates memory it calls the daemon's memory arbiter (arbiter.request) and
 * blocks until the grant; before a pause it announces the release; after a failure it cancels the
 * grant.
 *
 * Only the actor's thread enters. memory_arbiter_service.h specifies the methods. */

#include "colocate/memory/region_api.h"

#include "actors/process/runtime.h"
#include "colocate/broker/broker_remote.h"
#include "colocate/device/kinds.h"
#include "colocate/memory/device_memory.h"
#include "colocate/memory/outside_memory.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    /* Time in milliseconds after which a call of the memory broker fails. */
    BROKER_TIMEOUT_MS = 60000,
    /* Time in milliseconds that a call of the memory arbiter waits beyond the caller's timeout, so
     * that the arbiter's refusal, which names the holders, arrives first. */
    GRACE_MS = 2000,
    /* Time in milliseconds that a process waits for memory that it was granted and the GPU does not
     * report free; less than the life of an unused grant. */
    FREE_WAIT_MS = 5000
};

/* The device and the regions of one GPU of this actor. */
struct gpu_regions {
    struct tdm__device *device;   /* Device of the GPU; owned. NULL until the GPU is first used. */
    struct tdm__regions *regions; /* Regions on the GPU; owned. NULL until the GPU is first used. */
};

/* The memory of this process. There is one runtime per process, so there is one instance. It is
 * filled on first use and cleared when the runtime stops. */
static struct {
    tdm_runtime *runtime; /* Runtime of this process; borrowed. */
    /* Client of the memory broker of this node; owned, NULL until first used. */
    struct tdm__broker_client *broker;
    /* Host memory for the contents of paused regions on all GPUs; owned, NULL until first used. */
    struct tdm__arena *arena;
    /* Device and regions of each GPU, by the actor's own GPU number. */
    struct gpu_regions gpus[TDM__RUNTIME_GPUS_MAX];
} memory;

/* Destroys this process's regions, devices, arena and broker client. Called when the runtime
 * stops. */
static void process_memory_close(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < TDM__RUNTIME_GPUS_MAX; i++) {
        tdm__regions_destroy(memory.gpus[i].regions);
    }
    tdm__arena_destroy(memory.arena);
    for (uint32_t i = 0; i < TDM__RUNTIME_GPUS_MAX; i++) {
        tdm__device_close(memory.gpus[i].device);
        memory.gpus[i] = (struct gpu_regions){NULL, NULL};
    }
    tdm__broker_client_destroy(memory.broker);
    memory.arena = NULL;
    memory.broker = NULL;
}

/* Creates this process's arena on first use and registers its destruction with the runtime. */
static tdm_status process_memory_open(tdm_runtime *runtime, struct tdm__device *device)
{
    if (memory.arena != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__arena_create(device, SIZE_MAX, &memory.arena));
    return tdm__runtime_on_stop(runtime, process_memory_close, NULL);
}

/* ---- the memory_arbiter ---------------------------------------------------------------------- */

/* Calls a method of this node's memory arbiter and waits for the empty reply. `arguments` may be a
 * writer that has failed. */
static tdm_status call_memory_arbiter(const char *method, const tdm_writer *arguments,
                                      int64_t timeout_ms)
{
    TDM_TRY(tdm_writer_status(arguments));
    return tdm__runtime_call_daemon(memory.runtime, method, tdm_writer_bytes(arguments), timeout_ms,
                                    NULL);
}

/* Calls arbiter.report and reads its reply. */
static tdm_status send_device_report(const struct tdm__arbiter_report_message *message,
                                     struct tdm__arbiter_reported_message *reply_out)
{
    tdm_document *document = NULL;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__arbiter_report_encode(message, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(memory.runtime, "arbiter.report",
                                          tdm_writer_bytes(writer), GRACE_MS, &document);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK) {
        status = tdm__arbiter_reported_decode(tdm_document_root(document), reply_out);
        tdm_document_destroy(document);
    }
    return status;
}

/* Tells the memory arbiter how much memory of the real GPU is free, so that it does not grant what
 * CUDA contexts, libraries and other processes use. The daemon cannot ask the GPU itself, because
 * it has no context. A virtual GPU reports nothing. A failure is logged: the arbiter then decides
 * by the report before. Writes the free bytes. Returns true if a process has exited, whose memory
 * the GPU does not report free yet. */
static bool report_device_memory(struct tdm__device *device, uint64_t *free_bytes_out)
{
    struct tdm__arbiter_reported_message reply = {false};
    uint64_t total_bytes = 0;
    tdm_status status = device->ops->memory_info(device, &total_bytes, free_bytes_out);

    if (status == TDM_OK && total_bytes == 0) {
        return false;
    }
    if (status == TDM_OK) {
        const struct tdm__arbiter_report_message message = {device->gpu, total_bytes,
                                                            *free_bytes_out};

        status = send_device_report(&message, &reply);
    }
    if (status != TDM_OK) {
        tdm__log(TDM__INFO, "region", "the free memory of %s is not reported: %s", device->uuid,
                 tdm_error_detail());
    }
    return status == TDM_OK && reply.settles;
}

/* Reports the memory of the device to the arbiter. If the GPU has fewer than `bytes` free, and more
 * will be when it has returned the memory of an exited process, repeats the report until then, for
 * at most `timeout_ms` milliseconds. The arbiter would refuse a request before that. */
static void report_settled_memory(struct tdm__device *device, uint64_t bytes, int64_t timeout_ms)
{
    static const struct timespec nap = {.tv_nsec = 5000000};
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    uint64_t free_bytes = 0;

    while (report_device_memory(device, &free_bytes) && free_bytes < bytes &&
           tdm__deadline_remaining_ms(deadline_ms) != 0) {
        (void)nanosleep(&nap, NULL);
    }
}

/* Callback of a set of regions: blocks until the memory arbiter grants the memory, refuses it, or
 * the timeout passes. Memory that is granted on a real GPU may still be used for a moment: then
 * this waits until the GPU reports it free. */
static tdm_status request_memory_grant(void *arg, const char *tag, size_t bytes, int64_t timeout_ms)
{
    const struct gpu_regions *entry = arg;
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    struct tdm__arbiter_request_message message = {entry->device->gpu, tag, bytes, timeout_ms};
    tdm_writer *writer;
    tdm_status status;

    report_settled_memory(entry->device, bytes, timeout_ms);
    message.timeout_ms = tdm__deadline_remaining_ms(deadline_ms);
    TDM_TRY(tdm_writer_create(&writer));
    (void)tdm__arbiter_request_encode(&message, writer);
    status = call_memory_arbiter("arbiter.request", writer,
                                 tdm__timeout_add(message.timeout_ms, GRACE_MS));
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    return tdm__device_await_memory(entry->device, tag, bytes, FREE_WAIT_MS);
}

/* Callback of a set of regions: announces a release to the memory arbiter, so that waiting requests
 * are not refused. A failure does not stop the pause and is only logged. */
static void announce_memory_release(void *arg, const char *tag, size_t bytes)
{
    const struct gpu_regions *entry = arg;
    const struct tdm__arbiter_announce_release_message message = {entry->device->gpu, tag, bytes};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    (void)tdm__arbiter_announce_release_encode(&message, writer);
    if (call_memory_arbiter("arbiter.announce_release", writer, GRACE_MS) != TDM_OK) {
        tdm__log(TDM__INFO, "region", "a pause of %s is not announced: %s", tag,
                 tdm_error_detail());
    }
    tdm_writer_destroy(writer);
}

/* Callback of a set of regions: cancels the memory arbiter's grants for a tag. Otherwise a grant
 * would stand until it expires and block the next attempt. */
static void cancel_memory_grant(void *arg, const char *tag)
{
    const struct gpu_regions *entry = arg;
    const struct tdm__arbiter_cancel_grant_message message = {entry->device->gpu, tag};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    (void)tdm__arbiter_cancel_grant_encode(&message, writer);
    if (call_memory_arbiter("arbiter.cancel_grant", writer, GRACE_MS) != TDM_OK) {
        tdm__log(TDM__INFO, "region", "what was granted to %s is not given back: %s", tag,
                 tdm_error_detail());
    }
    tdm_writer_destroy(writer);
}

/* Callback of outside memory: tells the memory arbiter what this process and those that it has
 * started use. */
static tdm_status tell_outside_usage(void *arg, const char *tag, uint64_t declared_bytes,
                                     uint64_t reported_bytes)
{
    const struct gpu_regions *entry = arg;
    const struct tdm__arbiter_outside_usage_message message = {entry->device->gpu, tag,
                                                               declared_bytes, reported_bytes};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    (void)tdm__arbiter_outside_usage_encode(&message, writer);
    status = call_memory_arbiter("arbiter.outside_usage", writer, GRACE_MS);
    tdm_writer_destroy(writer);
    return status;
}

/* Callback of outside memory: reads how much memory the device reports as used. */
static tdm_status read_device_used(void *arg, uint64_t *used_bytes_out)
{
    const struct gpu_regions *entry = arg;

    return tdm__device_used_bytes(entry->device, used_bytes_out);
}

/* ---- the sets --------------------------------------------------------------------------- */

/* Opens the device that the daemon assigned to this process as GPU number `gpu`. */
static tdm_status open_device(tdm_runtime *runtime, uint32_t gpu, struct tdm__device **device_out)
{
    const struct tdm__device_kind *kind;
    char uuid[TDM__UUID_BYTES];

    TDM_TRY(tdm__device_of_process(runtime->gpu_indices[gpu], &kind, uuid));
    return kind->open(memory.broker, runtime->gpu_indices[gpu], uuid, device_out);
}

/* Opens the device of the actor's GPU number `gpu` and creates the set of its regions. */
static tdm_status process_gpu_open(tdm_runtime *runtime, uint32_t gpu)
{
    struct gpu_regions *entry = &memory.gpus[gpu];
    struct tdm__conn *daemon;
    uint64_t free_bytes = 0;

    memory.runtime = runtime;
    if (memory.broker == NULL) {
        TDM_TRY(tdm__runtime_daemon(runtime, &daemon));
        TDM_TRY(tdm__broker_client_open_remote(daemon, BROKER_TIMEOUT_MS, &memory.broker));
    }
    /* The device may be open already, from an earlier attempt that failed later. */
    if (entry->device == NULL) {
        TDM_TRY(open_device(runtime, gpu, &entry->device));
        /* The new context has taken some memory of its own. */
        (void)report_device_memory(entry->device, &free_bytes);
    }
    TDM_TRY(process_memory_open(runtime, entry->device));
    TDM_TRY(tdm__regions_create(entry->device, memory.arena, &entry->regions));
    tdm__regions_set_grant_request(entry->regions, request_memory_grant, entry);
    tdm__regions_set_release_notice(entry->regions, announce_memory_release, entry);
    tdm__regions_set_grant_cancel(entry->regions, cancel_memory_grant, entry);
    return TDM_OK;
}

tdm_status tdm__runtime_regions_of_gpu(tdm_runtime *runtime, uint32_t gpu,
                                       struct tdm__regions **regions_out)
{
    if (gpu >= runtime->gpus_count) {
        return tdm__fail(TDM_E_INVAL, "GPU %u of an actor that has %u: ask for GPUs in its options",
                         gpu, runtime->gpus_count);
    }
    if (memory.gpus[gpu].regions == NULL) {
        TDM_TRY(process_gpu_open(runtime, gpu));
    }
    *regions_out = memory.gpus[gpu].regions;
    return TDM_OK;
}

tdm_status tdm_region_create(tdm_runtime *runtime, const struct tdm_region_options *options,
                             tdm_region **region_out)
{
    TDM__REQUIRE(region_out);
    *region_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    struct tdm__regions *regions;

    TDM_TRY(tdm__runtime_regions_of_gpu(runtime, options->gpu, &regions));
    return tdm__region_create(regions, options, region_out);
}

tdm_region *tdm_region_find(const void *address)
{
    TDM__REQUIRE_OR(address, NULL);

    tdm_region *found = NULL;

    for (uint32_t i = 0; i < TDM__RUNTIME_GPUS_MAX && found == NULL; i++) {
        if (memory.gpus[i].regions != NULL) {
            found = tdm__regions_find_by_address(memory.gpus[i].regions, address);
        }
    }
    return found;
}

tdm_status tdm_region_descriptor(const void *address, size_t size_bytes, int *descriptor_out,
                                 uint64_t *offset_out)
{
    TDM__REQUIRE(address);
    TDM__REQUIRE(descriptor_out);
    TDM__REQUIRE(offset_out);

    const tdm_region *region = tdm_region_find(address);

    if (region == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "no region of this process has the address %p", address);
    }
    return tdm__region_descriptor_at(region, address, size_bytes, descriptor_out, offset_out);
}

tdm_status tdm_outside_memory_create(tdm_runtime *runtime,
                                     const struct tdm_outside_memory_options *options,
                                     tdm_outside_memory **memory_out)
{
    TDM__REQUIRE(memory_out);
    *memory_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    struct tdm__outside_callbacks callbacks = {.request = request_memory_grant,
                                               .announce = announce_memory_release,
                                               .tell_usage = tell_outside_usage,
                                               .read_used = read_device_used};
    struct tdm__regions *regions;

    TDM_TRY(tdm__runtime_regions_of_gpu(runtime, options->gpu, &regions));
    callbacks.is_host_memory = strcmp(tdm__regions_device(regions)->ops->name, "host") == 0;
    callbacks.arg = &memory.gpus[options->gpu];
    return tdm__outside_memory_create(&callbacks, options, memory_out);
}
