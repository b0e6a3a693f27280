/* broker_service.c - the daemon's RPC service "block": the block broker for the processes of the
 * node. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The service owns the broker, the queue of create requests whose memory is missing, and at most
 * one running allocation, which always serves the first request of the queue.
 *
 * A create request that the pool can serve is served at once. Otherwise the request waits; a
 * thread allocates the missing memory, which enters the pool, and the request is then tried
 * again. One allocation runs at a time, so that no more memory is allocated than the GPU has
 * free.
 *
 * All functions run on the daemon's loop thread; only block_allocation.c has a thread of its own.
 * The methods are specified in broker_service.h. */

#include "colocate/broker/broker_service.h"

#include "colocate/broker/block_allocation.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

_Static_assert((int)TDM__BLOCKS_MAX <= (int)TDM__RPC_FDS_MAX, "a reply carries a call's blocks");

enum { KEYS_MAX = 1024, USAGES_MAX = 256 };

/* A call of block.create whose memory is not allocated yet. The service owns it. */
struct waiting_request {
    STAILQ_ENTRY(waiting_request) link; /* Link in the service's list of waiting requests. */
    /* Incoming call of block.create, which owns the text of block_request.tag. The request owns the
     * call. */
    struct tdm__incoming_call *incoming;
    struct tdm__tenant tenant;               /* Process that requests the blocks. */
    struct tdm__block_request block_request; /* Which blocks the process requests. */
    /* Sizes in bytes of the blocks whose memory is being allocated. */
    size_t missing_sizes_bytes[TDM__BLOCKS_MAX];
    uint32_t missing_count; /* Number of entries in missing_sizes_bytes. */
    bool tenant_is_gone;    /* True once the process that requests the blocks has exited. */
};

/* State of the daemon's service "block"; the daemon owns it. */
struct broker_service {
    struct tdm__loop *loop;     /* Loop of the daemon; borrowed. */
    struct tdm__broker *broker; /* Broker of the node; owned. */
    /* Requests for blocks that wait for memory, in the order of arrival; owned. */
    STAILQ_HEAD(, waiting_request) waiting_requests;
    /* Running allocation of memory for the first waiting request; NULL if none runs. */
    struct tdm__block_allocation *allocation;
};

/* Returns the process that made a call, as a tenant of the broker. */
static struct tdm__tenant tenant_of(const struct tdm__incoming_call *incoming)
{
    const struct tdm__peer_identity *peer = tdm__incoming_peer(incoming);
    struct tdm__tenant tenant = {.id = peer->id};

    (void)snprintf(tenant.name, sizeof(tenant.name), "%s", peer->name);
    return tenant;
}

/* ---- the methods: each replies on success and leaves a failure to serve() --------------- */

/* Decodes the request for blocks in a call's arguments. The request's tag points into the call. */
static tdm_status read_block_request(struct tdm__incoming_call *incoming,
                                     struct tdm__block_request *request_out)
{
    struct tdm__block_request_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__block_request_table(), &message));
    request_out->tag = message.tag;
    request_out->gpu = message.gpu < UINT32_MAX ? (uint32_t)message.gpu : UINT32_MAX;
    request_out->count = message.sizes_bytes.count;
    if (request_out->count > TDM__BLOCKS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u blocks in one call: at most %d", request_out->count,
                         TDM__BLOCKS_MAX);
    }
    for (uint32_t i = 0; i < request_out->count; i++) {
        uint64_t size_bytes;

        tdm__message_list_read(&message.sizes_bytes, i, &size_bytes, sizeof(size_bytes));
        request_out->sizes_bytes[i] = (size_t)size_bytes;
    }
    return TDM_OK;
}

/* Encodes block keys as a list. */
static tdm_status write_keys(tdm_writer *writer, const struct tdm__id *keys, uint32_t count)
{
    const struct tdm__block_keys_message message = {.keys = {.count = count, .items = keys}};

    return tdm__block_keys_encode(&message, writer);
}

/* Creates the requested blocks and replies to the call with their keys and descriptors. On failure
 * the caller must fail the call. */
static tdm_status create_requested_blocks(struct tdm__broker *broker,
                                          struct tdm__incoming_call *incoming,
                                          const struct tdm__tenant *tenant,
                                          const struct tdm__block_request *block_request)
{
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];
    struct tdm__id keys[TDM__BLOCKS_MAX];
    int fds[TDM__BLOCKS_MAX];
    tdm_writer *writer = NULL;
    tdm_status status;

    TDM_TRY(tdm__broker_create_blocks(broker, tenant, block_request, blocks));
    status = tdm_writer_create(&writer);
    if (status == TDM_OK) {
        for (uint32_t i = 0; i < block_request->count; i++) {
            keys[i] = blocks[i].key;
            fds[i] = blocks[i].fd;
        }
        status = write_keys(writer, keys, block_request->count);
    }
    if (status != TDM_OK) {
        for (uint32_t i = 0; i < block_request->count; i++) {
            (void)tdm__broker_release_block(broker, &blocks[i].key, &tenant->id);
        }
    } else {
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), fds, block_request->count);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Removes the first waiting request and fails its call with `status` and the current error text. */
static void fail_first_request(struct broker_service *service, tdm_status status)
{
    struct waiting_request *first = STAILQ_FIRST(&service->waiting_requests);

    STAILQ_REMOVE_HEAD(&service->waiting_requests, link);
    tdm__incoming_fail(first->incoming, status, tdm_error_detail());
    free(first);
}

/* Fails if memory must not be allocated for a waiting request, because its process has exited or
 * its deadline has passed. */
static tdm_status check_missing_memory(const struct waiting_request *waiting_request)
{
    if (waiting_request->tenant_is_gone) {
        return tdm__fail(TDM_E_CLOSED, "%s has gone", waiting_request->tenant.name);
    }
    if (tdm__clock_ms() >= tdm__incoming_deadline(waiting_request->incoming)) {
        return tdm__fail(TDM_E_TIMEOUT, "%s's %s: its memory was not made in time",
                         waiting_request->tenant.name, waiting_request->block_request.tag);
    }
    return TDM_OK;
}

static tdm__block_allocation_done_fn on_memory_allocated;

/* Creates the blocks of the first waiting request, or starts the allocation of memory that the pool
 * does not have for it. */
static tdm_status serve_first_waiting(struct broker_service *service)
{
    struct waiting_request *first = STAILQ_FIRST(&service->waiting_requests);

    TDM_TRY(check_missing_memory(first));
    TDM_TRY(tdm__broker_missing_sizes(service->broker, &first->tenant, &first->block_request,
                                      first->missing_sizes_bytes, &first->missing_count));
    if (first->missing_count > 0) {
        return tdm__block_allocation_start(service->loop, first->block_request.gpu,
                                           first->missing_sizes_bytes, first->missing_count,
                                           on_memory_allocated, service, &service->allocation);
    }
    TDM_TRY(create_requested_blocks(service->broker, first->incoming, &first->tenant,
                                    &first->block_request));
    STAILQ_REMOVE_HEAD(&service->waiting_requests, link);
    free(first);
    return TDM_OK;
}

/* Serves waiting requests in order until one needs an allocation. One allocation runs at a time,
 * so that no more memory is allocated than the GPU has free. */
static void serve_waiting(struct broker_service *service)
{
    while (service->allocation == NULL && !STAILQ_EMPTY(&service->waiting_requests)) {
        tdm_status status = serve_first_waiting(service);

        if (status != TDM_OK) {
            fail_first_request(service, status);
        }
    }
}

/* Adds memory that was allocated for a waiting request to the broker's pool. Closes descriptors
 * that the pool does not take. */
static tdm_status add_memory_to_pool(struct tdm__broker *broker,
                                     const struct waiting_request *waiting_request, const int *fds)
{
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < waiting_request->missing_count; i++) {
        if (status == TDM_OK) {
            status = tdm__broker_add_to_pool(broker, waiting_request->block_request.gpu,
                                             waiting_request->missing_sizes_bytes[i], fds[i]);
        }
        if (status != TDM_OK) {
            (void)close(fds[i]);
        }
    }
    return status;
}

/* Callback of a block allocation: adds the memory to the pool, or fails the first waiting request,
 * and then serves the waiting requests. */
static void on_memory_allocated(void *arg, tdm_status status, const char *detail, const int *fds)
{
    struct broker_service *service = arg;
    const struct waiting_request *first = STAILQ_FIRST(&service->waiting_requests);

    service->allocation = NULL;
    if (status == TDM_OK) {
        status = add_memory_to_pool(service->broker, first, fds);
    } else {
        (void)tdm__fail(status, "%s", detail);
        status = tdm__broker_fail_no_memory(service->broker, &first->tenant, &first->block_request,
                                            status);
    }
    if (status != TDM_OK) {
        fail_first_request(service, status);
    }
    serve_waiting(service);
}

/* Handles block.create: replies at once if the pool has all the memory, else queues the request. */
static tdm_status serve_create(struct broker_service *service, struct tdm__incoming_call *incoming)
{
    struct waiting_request *waiting_request = calloc(1, sizeof(*waiting_request));
    tdm_status status;

    if (waiting_request == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a request for blocks");
    }
    waiting_request->incoming = incoming;
    waiting_request->tenant = tenant_of(incoming);
    status = read_block_request(incoming, &waiting_request->block_request);
    if (status == TDM_OK) {
        status = tdm__broker_missing_sizes(
            service->broker, &waiting_request->tenant, &waiting_request->block_request,
            waiting_request->missing_sizes_bytes, &waiting_request->missing_count);
    }
    if (status == TDM_OK && waiting_request->missing_count > 0) {
        STAILQ_INSERT_TAIL(&service->waiting_requests, waiting_request, link);
        serve_waiting(service);
        return TDM_OK;
    }
    if (status == TDM_OK) {
        status = create_requested_blocks(service->broker, incoming, &waiting_request->tenant,
                                         &waiting_request->block_request);
    }
    free(waiting_request);
    return status;
}

/* Replies to a call with block keys. */
static tdm_status reply_keys(struct tdm__incoming_call *incoming, const struct tdm__id *keys,
                             uint32_t count)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = write_keys(writer, keys, count);
    if (status == TDM_OK) {
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Registers memory that the calling process allocated itself with the broker, and replies with the
 * new blocks' keys. */
static tdm_status register_and_reply(struct tdm__broker *broker,
                                     struct tdm__incoming_call *incoming,
                                     const struct tdm__block_request *block_request, const int *fds)
{
    struct tdm__tenant tenant = tenant_of(incoming);
    struct tdm__id keys[TDM__BLOCKS_MAX];
    tdm_status status;

    TDM_TRY(tdm__broker_register_blocks(broker, &tenant, block_request, fds, keys));
    status = reply_keys(incoming, keys, block_request->count);
    for (uint32_t i = 0; i < block_request->count && status != TDM_OK; i++) {
        (void)tdm__broker_release_block(broker, &keys[i], &tenant.id);
    }
    return status;
}

/* Handles block.adopt: takes the descriptors of the call and registers their memory with the
 * broker. */
static tdm_status serve_adopt(struct tdm__broker *broker, struct tdm__incoming_call *incoming)
{
    struct tdm__block_request block_request = {0};
    tdm_status status = TDM_OK;
    int fds[TDM__BLOCKS_MAX];
    uint32_t taken = 0;

    TDM_TRY(read_block_request(incoming, &block_request));
    while (taken < block_request.count && status == TDM_OK) {
        fds[taken] = tdm__incoming_take_fd(incoming, taken);
        if (fds[taken] < 0) {
            status = tdm__fail(TDM_E_PROTOCOL, "%u descriptors for %u blocks", taken,
                               block_request.count);
        } else {
            taken++;
        }
    }
    if (status == TDM_OK) {
        status = register_and_reply(broker, incoming, &block_request, fds);
    }
    while (taken > 0) {
        taken--;
        (void)close(fds[taken]);
    }
    return status;
}

/* Handles block.open: replies with the size and the descriptor of a block. */
static tdm_status serve_open(struct tdm__broker *broker, struct tdm__incoming_call *incoming)
{
    struct tdm__tenant tenant = tenant_of(incoming);
    struct tdm__block_handle block;
    struct tdm__block_open_message message;
    struct tdm__block_opened_message reply;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__block_open_table(), &message));
    TDM_TRY(tdm__broker_open_block(broker, &message.key, &tenant, &block));
    status = tdm_writer_create(&writer);
    if (status == TDM_OK) {
        reply.size_bytes = block.size_bytes;
        status = tdm__block_opened_encode(&reply, writer);
        if (status == TDM_OK) {
            tdm__incoming_reply(incoming, tdm_writer_bytes(writer), &block.fd, 1);
        }
        tdm_writer_destroy(writer);
    }
    if (status != TDM_OK) {
        (void)tdm__broker_release_block(broker, &message.key, &tenant.id);
    }
    return status;
}

/* Serves block.release. All keys are tried; the first failure is returned. */
static tdm_status serve_release(struct tdm__broker *broker, struct tdm__incoming_call *incoming)
{
    struct tdm__tenant tenant = tenant_of(incoming);
    struct tdm__block_keys_message message;
    tdm_status first = TDM_OK;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__block_keys_table(), &message));
    if (message.keys.count > KEYS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u keys in one call: at most %d", message.keys.count,
                         KEYS_MAX);
    }
    for (uint32_t i = 0; i < message.keys.count; i++) {
        struct tdm__id key;
        tdm_status status;

        tdm__message_list_read(&message.keys, i, &key, sizeof(key));
        status = tdm__broker_release_block(broker, &key, &tenant.id);
        first = first == TDM_OK ? status : first;
    }
    if (first == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    }
    return first;
}

/* Writes one entry of a map: its name and an unsigned integer. */
static void write_uint_field(tdm_writer *writer, const char *name, uint64_t value)
{
    tdm_write_string(writer, name);
    tdm_write_uint(writer, value);
}

/* Writes one usage record as a map. */
static void write_usage(tdm_writer *writer, const struct tdm__broker_usage *usage)
{
    char text[TDM__ID_TEXT_BYTES];

    tdm_write_map(writer, 7);
    tdm_write_string(writer, "owner");
    tdm_write_string(writer, usage->owner.name);
    tdm_write_string(writer, "owner_id");
    tdm_write_string(writer, tdm__id_text(&usage->owner.id, text));
    tdm_write_string(writer, "tag");
    tdm_write_string(writer, usage->tag);
    tdm_write_string(writer, "holder");
    tdm_write_string(writer, usage->holder);
    write_uint_field(writer, "bytes", usage->bytes);
    write_uint_field(writer, "releasing_bytes", usage->releasing_bytes);
    write_uint_field(writer, "blocks", usage->blocks_count);
}

/* Writes the memory of one GPU and its usage records as a map. */
static void write_gpu(tdm_writer *writer, const struct tdm__broker *broker, uint32_t index)
{
    struct tdm__broker_usage usages[USAGES_MAX];
    uint32_t usages_count = tdm__broker_list_usage(broker, index, usages, USAGES_MAX);
    struct tdm__broker_gpu gpu;

    tdm__broker_gpu_usage(broker, index, &gpu);
    tdm_write_map(writer, 5);
    write_uint_field(writer, "capacity_bytes", gpu.capacity_bytes);
    write_uint_field(writer, "used_bytes", gpu.used_bytes);
    write_uint_field(writer, "pooled_bytes", gpu.pooled_bytes);
    write_uint_field(writer, "outside_bytes", gpu.outside_bytes);
    tdm_write_string(writer, "rows");
    tdm_write_array(writer, usages_count);
    for (uint32_t i = 0; i < usages_count; i++) {
        write_usage(writer, &usages[i]);
    }
}

/* Handles block.ledger: replies with the memory usage of all GPUs. */
static tdm_status serve_ledger(struct tdm__broker *broker, struct tdm__incoming_call *incoming)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, tdm__broker_gpus_count(broker));
    for (uint32_t i = 0; i < tdm__broker_gpus_count(broker); i++) {
        write_gpu(writer, broker, i);
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- the service ------------------------------------------------------------------------ */

/* Calls the function that handles the method of a call. */
static tdm_status dispatch_method(struct broker_service *service,
                                  struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming) + strlen("block.");
    struct tdm__broker *broker = service->broker;

    if (strcmp(method, "create") == 0) {
        return serve_create(service, incoming);
    }
    if (strcmp(method, "adopt") == 0) {
        return serve_adopt(broker, incoming);
    }
    if (strcmp(method, "open") == 0) {
        return serve_open(broker, incoming);
    }
    if (strcmp(method, "release") == 0) {
        return serve_release(broker, incoming);
    }
    if (strcmp(method, "ledger") == 0) {
        return serve_ledger(broker, incoming);
    }
    return tdm__fail(TDM_E_NOT_FOUND, "the broker has no method %s", method);
}

/* Handles one call of the service "block", and fails the call if its method fails. Takes ownership
 * of `incoming`. */
static void serve(void *self, struct tdm__incoming_call *incoming)
{
    tdm_status status = dispatch_method(self, incoming);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Marks the waiting requests of a process that has exited as abandoned. */
static void peer_exited(void *self, const struct tdm__peer_identity *peer)
{
    struct broker_service *service = self;
    struct waiting_request *waiting_request;

    STAILQ_FOREACH(waiting_request, &service->waiting_requests, link)
    {
        waiting_request->tenant_is_gone |= tdm__id_equal(&waiting_request->tenant.id, &peer->id);
    }
}

/* Releases all blocks of a process that has exited. Its child processes may have mapped them, so
 * this waits until they have ended. */
static void peer_tree_ended(void *self, const struct tdm__peer_identity *peer)
{
    struct broker_service *service = self;

    tdm__log(TDM__DEBUG, "broker", "all processes of %s have ended: its blocks are released",
             peer->name);
    tdm__broker_remove_tenant(service->broker, &peer->id);
}

/* Destroys the state of the service "block": cancels the allocation, fails the waiting requests and
 * destroys the broker. */
static void destroy(void *self)
{
    struct broker_service *service = self;

    if (service->allocation != NULL) {
        tdm__block_allocation_cancel(service->allocation);
    }
    while (!STAILQ_EMPTY(&service->waiting_requests)) {
        fail_first_request(service, tdm__fail(TDM_E_CLOSED, "the daemon ends"));
    }
    tdm__broker_destroy(service->broker);
    free(service);
}

tdm_status tdm__broker_service_create(struct tdm__loop *loop, struct tdm__broker *broker,
                                      void **self_out)
{
    struct broker_service *service = calloc(1, sizeof(*service));

    if (service == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the broker's service");
    }
    service->loop = loop;
    service->broker = broker;
    STAILQ_INIT(&service->waiting_requests);
    *self_out = service;
    return TDM_OK;
}

/* Writes a gauge for each GPU in Prometheus' text format: the field of struct tdm__broker_gpu at
 * `offset`. */
static void collect_gpu_metrics(FILE *out, const struct tdm__broker *broker, const char *name,
                                const char *help, size_t offset)
{
    tdm__metrics_family(out, name, "gauge", help);
    for (uint32_t i = 0; i < tdm__broker_gpus_count(broker); i++) {
        char index[16];
        const char *const labels[] = {"gpu", index, NULL};
        struct tdm__broker_gpu gpu;
        size_t bytes;

        (void)snprintf(index, sizeof(index), "%u", i);
        tdm__broker_gpu_usage(broker, i, &gpu);
        memcpy(&bytes, (const char *)&gpu + offset, sizeof(bytes));
        tdm__metrics_sample(out, name, labels, (double)bytes);
    }
}

/* Writes the metrics of the service "block" to `out`. */
static void collect_metrics(void *self, FILE *out)
{
    const struct broker_service *service = self;

    collect_gpu_metrics(out, service->broker, "tandem_gpu_capacity_bytes", "Memory of a GPU.",
                        offsetof(struct tdm__broker_gpu, capacity_bytes));
    collect_gpu_metrics(out, service->broker, "tandem_gpu_used_bytes",
                        "Bytes of GPU memory that are charged to blocks.",
                        offsetof(struct tdm__broker_gpu, used_bytes));
    collect_gpu_metrics(
        out, service->broker, "tandem_gpu_outside_bytes",
        "Bytes of GPU memory that processes use without Tandem, by the last report.",
        offsetof(struct tdm__broker_gpu, outside_bytes));
}

const struct tdm__service_ops tdm__broker_service = {.prefix = "block",
                                                     .serve = serve,
                                                     .peer_exited = peer_exited,
                                                     .peer_tree_ended = peer_tree_ended,
                                                     .destroy = destroy,
                                                     .write_metrics = collect_metrics};
