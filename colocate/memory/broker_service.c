/* broker_service.c - the daemon's service "block": the broker for the node's processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/broker_service.h"

#include "colocate/memory/filling.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

_Static_assert((int)TDM__BLOCKS_MAX <= (int)TDM__RPC_FDS_MAX,
               "a reply carries a call's blocks");

enum { KEYS_MAX = 1024, ROWS_MAX = 256 };

/* A wish for blocks whose memory is not there yet. */
struct waiting {
    STAILQ_ENTRY(waiting) link;
    struct tdm__incoming *incoming; /* to be answered; the wish's tag is its */
    struct tdm__tenant tenant;
    struct tdm__block_wish wish;
    size_t missing_bytes[TDM__BLOCKS_MAX]; /* what is being made for it */
    uint32_t missing;
    bool is_gone; /* the tenant */
};

struct broker_service {
    struct tdm__loop *loop;         /* borrowed */
    struct tdm__broker *broker;     /* owned */
    STAILQ_HEAD(, waiting) waiting; /* owned */
    struct tdm__filling *filling;   /* for the first of them; NULL: none */
};

static struct tdm__tenant tenant_of(const struct tdm__incoming *incoming)
{
    const struct tdm__identity *peer = tdm__incoming_peer(incoming);
    struct tdm__tenant tenant = {.id = peer->id};

    (void)snprintf(tenant.name, sizeof(tenant.name), "%s", peer->name);
    return tenant;
}

/* ---- the methods: each answers on success, and leaves a failure to serve() -------------- */

static tdm_status read_wish(struct tdm__incoming *incoming, struct tdm__block_wish *wish_out)
{
    struct tdm__block_wish_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__block_wish_table(), &message));
    wish_out->tag = message.tag;
    wish_out->gpu = message.gpu < UINT32_MAX ? (uint32_t)message.gpu : UINT32_MAX;
    wish_out->count = message.sizes_bytes.count;
    if (wish_out->count > TDM__BLOCKS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u blocks in one call: at most %d", wish_out->count,
                         TDM__BLOCKS_MAX);
    }
    for (uint32_t i = 0; i < wish_out->count; i++) {
        uint64_t size_bytes;

        tdm__message_list_read(&message.sizes_bytes, i, &size_bytes, sizeof(size_bytes));
        wish_out->sizes_bytes[i] = (size_t)size_bytes;
    }
    return TDM_OK;
}

static tdm_status write_keys(tdm_writer *writer, const struct tdm__id *keys, uint32_t count)
{
    const struct tdm__block_keys_message message = {.keys = {.count = count, .items = keys}};

    return tdm__block_keys_encode(&message, writer);
}

/* Makes the blocks and answers; a failure is the caller's to tell. */
static tdm_status make(struct tdm__broker *broker, struct tdm__incoming *incoming,
                       const struct tdm__tenant *tenant, const struct tdm__block_wish *wish)
{
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];
    struct tdm__id keys[TDM__BLOCKS_MAX];
    int fds[TDM__BLOCKS_MAX];
    tdm_writer *writer = NULL;
    tdm_status status;

    TDM_TRY(tdm__broker_make(broker, tenant, wish, blocks));
    status = tdm_writer_create(&writer);
    if (status == TDM_OK) {
        for (uint32_t i = 0; i < wish->count; i++) {
            keys[i] = blocks[i].key;
            fds[i] = blocks[i].fd;
        }
        status = write_keys(writer, keys, wish->count);
    }
    if (status != TDM_OK) {
        for (uint32_t i = 0; i < wish->count; i++) {
            (void)tdm__broker_release(broker, &blocks[i].key, &tenant->id);
        }
    } else {
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), fds, wish->count);
    }
    tdm_writer_destroy(writer);
    return status;
}

static void fail_first(struct broker_service *service, tdm_status status)
{
    struct waiting *first = STAILQ_FIRST(&service->waiting);

    STAILQ_REMOVE_HEAD(&service->waiting, link);
    tdm__incoming_fail(first->incoming, status, tdm_error_detail());
    free(first);
}

/* Nobody would ever give back what is made for one who has left, or who waits no more. */
static tdm_status check_awaited(const struct waiting *waiting)
{
    if (waiting->is_gone) {
        return tdm__fail(TDM_E_CLOSED, "%s has gone", waiting->tenant.name);
    }
    if (tdm__clock_ms() >= tdm__incoming_deadline(waiting->incoming)) {
        return tdm__fail(TDM_E_TIMEOUT, "%s's %s: its memory was not made in time",
                         waiting->tenant.name, waiting->wish.tag);
    }
    return TDM_OK;
}

static tdm__filled_fn on_filled;

/* Serves the first that waits, or begins to make its memory. */
static tdm_status serve_first(struct broker_service *service)
{
    struct waiting *first = STAILQ_FIRST(&service->waiting);

    TDM_TRY(check_awaited(first));
    TDM_TRY(tdm__broker_missing(service->broker, &first->tenant, &first->wish,
                                first->missing_bytes, &first->missing));
    if (first->missing > 0) {
        return tdm__filling_begin(service->loop, first->wish.gpu, first->missing_bytes,
                                  first->missing, on_filled, service, &service->filling);
    }
    TDM_TRY(make(service->broker, first->incoming, &first->tenant, &first->wish));
    STAILQ_REMOVE_HEAD(&service->waiting, link);
    free(first);
    return TDM_OK;
}

/* One after the other, so that no more memory is made than the GPU has room for. */
static void serve_waiting(struct broker_service *service)
{
    while (service->filling == NULL && !STAILQ_EMPTY(&service->waiting)) {
        tdm_status status = serve_first(service);

        if (status != TDM_OK) {
            fail_first(service, status);
        }
    }
}

/* Takes the descriptors, into the pool or back. */
static tdm_status stock(struct tdm__broker *broker, const struct waiting *waiting,
                        const int *fds)
{
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < waiting->missing; i++) {
        if (status == TDM_OK) {
            status =
                tdm__broker_stock(broker, waiting->wish.gpu, waiting->missing_bytes[i], fds[i]);
        }
        if (status != TDM_OK) {
            (void)close(fds[i]);
        }
    }
    return status;
}

static void on_filled(void *arg, tdm_status status, const char *detail, const int *fds)
{
    struct broker_service *service = arg;
    const struct waiting *first = STAILQ_FIRST(&service->waiting);

    service->filling = NULL;
    if (status == TDM_OK) {
        status = stock(service->broker, first, fds);
    } else {
        (void)tdm__fail(status, "%s", detail);
        status = tdm__broker_no_memory(service->broker, &first->tenant, &first->wish, status);
    }
    if (status != TDM_OK) {
        fail_first(service, status);
    }
    serve_waiting(service);
}

/* What the pool has is handed out at once. */
static tdm_status serve_create(struct broker_service *service, struct tdm__incoming *incoming)
{
    struct waiting *waiting = calloc(1, sizeof(*waiting));
    tdm_status status;

    if (waiting == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a wish for blocks");
    }
    waiting->incoming = incoming;
    waiting->tenant = tenant_of(incoming);
    status = read_wish(incoming, &waiting->wish);
    if (status == TDM_OK) {
        status = tdm__broker_missing(service->broker, &waiting->tenant, &waiting->wish,
                                     waiting->missing_bytes, &waiting->missing);
    }
    if (status == TDM_OK && waiting->missing > 0) {
        STAILQ_INSERT_TAIL(&service->waiting, waiting, link);
        serve_waiting(service);
        return TDM_OK;
    }
    if (status == TDM_OK) {
        status = make(service->broker, incoming, &waiting->tenant, &waiting->wish);
    }
    free(waiting);
    return status;
}

/* Answers with the keys of blocks that now stand in the ledger. */
static tdm_status reply_keys(struct tdm__incoming *incoming, const struct tdm__id *keys,
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

static tdm_status adopt(struct tdm__broker *broker, struct tdm__incoming *incoming,
                        const struct tdm__block_wish *wish, const int *fds)
{
    struct tdm__tenant tenant = tenant_of(incoming);
    struct tdm__id keys[TDM__BLOCKS_MAX];
    tdm_status status;

    TDM_TRY(tdm__broker_adopt(broker, &tenant, wish, fds, keys));
    status = reply_keys(incoming, keys, wish->count);
    for (uint32_t i = 0; i < wish->count && status != TDM_OK; i++) {
        (void)tdm__broker_release(broker, &keys[i], &tenant.id);
    }
    return status;
}

static tdm_status serve_adopt(struct tdm__broker *broker, struct tdm__incoming *incoming)
{
    struct tdm__block_wish wish = {0};
    tdm_status status = TDM_OK;
    int fds[TDM__BLOCKS_MAX];
    uint32_t taken = 0;

    TDM_TRY(read_wish(incoming, &wish));
    while (taken < wish.count && status == TDM_OK) {
        fds[taken] = tdm__incoming_take_fd(incoming, taken);
        if (fds[taken] < 0) {
            status =
                tdm__fail(TDM_E_PROTOCOL, "%u descriptors for %u blocks", taken, wish.count);
        } else {
            taken++;
        }
    }
    if (status == TDM_OK) {
        status = adopt(broker, incoming, &wish, fds);
    }
    while (taken > 0) {
        taken--;
        (void)close(fds[taken]);
    }
    return status;
}

static tdm_status serve_open(struct tdm__broker *broker, struct tdm__incoming *incoming)
{
    struct tdm__tenant tenant = tenant_of(incoming);
    struct tdm__block_handle block;
    struct tdm__block_open_message message;
    struct tdm__block_opened_message reply;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__block_open_table(), &message));
    TDM_TRY(tdm__broker_open(broker, &message.key, &tenant, &block));
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
        (void)tdm__broker_release(broker, &message.key, &tenant.id);
    }
    return status;
}

/* Releases or accepts every key of the call; all are tried, the first failure counts. */
static tdm_status serve_keys(struct tdm__broker *broker, struct tdm__incoming *incoming,
                             bool accept)
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
        status = accept ? tdm__broker_accept(broker, &key, &tenant)
                        : tdm__broker_release(broker, &key, &tenant.id);
        first = first == TDM_OK ? status : first;
    }
    if (first == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    }
    return first;
}

static void write_uint_field(tdm_writer *writer, const char *name, uint64_t value)
{
    tdm_write_string(writer, name);
    tdm_write_uint(writer, value);
}

static void write_row(tdm_writer *writer, const struct tdm__broker_row *row)
{
    char text[TDM__ID_TEXT_BYTES];

    tdm_write_map(writer, 7);
    tdm_write_string(writer, "owner");
    tdm_write_string(writer, row->owner.name);
    tdm_write_string(writer, "owner_id");
    tdm_write_string(writer, tdm__id_text(&row->owner.id, text));
    tdm_write_string(writer, "tag");
    tdm_write_string(writer, row->tag);
    tdm_write_string(writer, "holder");
    tdm_write_string(writer, row->holder);
    write_uint_field(writer, "bytes", row->bytes);
    write_uint_field(writer, "releasing_bytes", row->releasing_bytes);
    write_uint_field(writer, "blocks", row->blocks_count);
}

static void write_gpu(tdm_writer *writer, const struct tdm__broker *broker, uint32_t index)
{
    struct tdm__broker_row rows[ROWS_MAX];
    uint32_t rows_count = tdm__broker_rows(broker, index, rows, ROWS_MAX);
    struct tdm__broker_gpu gpu;

    tdm__broker_describe(broker, index, &gpu);
    tdm_write_map(writer, 4);
    write_uint_field(writer, "capacity_bytes", gpu.capacity_bytes);
    write_uint_field(writer, "used_bytes", gpu.used_bytes);
    write_uint_field(writer, "pooled_bytes", gpu.pooled_bytes);
    tdm_write_string(writer, "rows");
    tdm_write_array(writer, rows_count);
    for (uint32_t i = 0; i < rows_count; i++) {
        write_row(writer, &rows[i]);
    }
}

static tdm_status serve_ledger(struct tdm__broker *broker, struct tdm__incoming *incoming)
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

static tdm_status dispatch(struct broker_service *service, struct tdm__incoming *incoming)
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
        return serve_keys(broker, incoming, false);
    }
    if (strcmp(method, "accept") == 0) {
        return serve_keys(broker, incoming, true);
    }
    if (strcmp(method, "ledger") == 0) {
        return serve_ledger(broker, incoming);
    }
    return tdm__fail(TDM_E_NOT_FOUND, "the broker has no method %s", method);
}

static void serve(void *self, struct tdm__incoming *incoming)
{
    tdm_status status = dispatch(self, incoming);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

static void peer_gone(void *self, const struct tdm__identity *peer)
{
    struct broker_service *service = self;
    struct waiting *waiting;

    STAILQ_FOREACH(waiting, &service->waiting, link)
    {
        waiting->is_gone |= tdm__id_equal(&waiting->tenant.id, &peer->id);
    }
    tdm__broker_peer_gone(service->broker, &peer->id);
}

static void destroy(void *self)
{
    struct broker_service *service = self;

    if (service->filling != NULL) {
        tdm__filling_cancel(service->filling);
    }
    while (!STAILQ_EMPTY(&service->waiting)) {
        fail_first(service, tdm__fail(TDM_E_CLOSED, "the daemon ends"));
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
    STAILQ_INIT(&service->waiting);
    *self_out = service;
    return TDM_OK;
}

static void measure_gpus(FILE *out, const struct tdm__broker *broker, const char *name,
                         const char *help, size_t offset)
{
    tdm__metrics_family(out, name, "gauge", help);
    for (uint32_t i = 0; i < tdm__broker_gpus_count(broker); i++) {
        char index[16];
        const char *const labels[] = {"gpu", index, NULL};
        struct tdm__broker_gpu gpu;
        size_t bytes;

        (void)snprintf(index, sizeof(index), "%u", i);
        tdm__broker_describe(broker, i, &gpu);
        memcpy(&bytes, (const char *)&gpu + offset, sizeof(bytes));
        tdm__metrics_sample(out, name, labels, (double)bytes);
    }
}

static void measure(void *self, FILE *out)
{
    const struct broker_service *service = self;

    measure_gpus(out, service->broker, "tandem_gpu_capacity_bytes", "Memory of a GPU.",
                 offsetof(struct tdm__broker_gpu, capacity_bytes));
    measure_gpus(out, service->broker, "tandem_gpu_used_bytes",
                 "Bytes of it that blocks are charged for.",
                 offsetof(struct tdm__broker_gpu, used_bytes));
}

const struct tdm__service_ops tdm__broker_service = {.prefix = "block",
                                                     .serve = serve,
                                                     .peer_gone = peer_gone,
                                                     .destroy = destroy,
                                                     .measure = measure};
