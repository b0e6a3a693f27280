/* broker.c - the node's only maker of device memory: blocks, their owners, and the capacity. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/broker.h"

#include "colocate/memory/block_memory.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct holder {
    struct holder *next;
    struct tdm__tenant who;
    uint32_t count; /* makings and openings not yet released */
};

struct block {
    struct block *next;
    struct tdm__id key;
    struct tdm__tenant owner;
    char tag[TDM__BLOCK_TAG_BYTES];
    size_t size_bytes;
    int fd;                 /* owned */
    bool adopted;           /* memory of a device: nothing is left of it to pool */
    struct holder *holders; /* owned; never empty while the block is charged */
};

struct gpu {
    size_t capacity_bytes;
    size_t used_bytes;
    size_t pooled_bytes;
    struct block *blocks;      /* charged, in the order made */
    struct block **blocks_end; /* where the next one is linked */
    struct block *pool;        /* not charged, the one that came back last first */
};

struct tdm__broker {
    struct tdm__broker_callbacks hook;
    uint32_t gpus_count;
    struct gpu gpus[];
};

/* ---- making and unmaking a block -------------------------------------------------------- */

static void block_destroy(struct block *block)
{
    while (block->holders != NULL) {
        struct holder *holder = block->holders;

        block->holders = holder->next;
        free(holder);
    }
    if (block->fd >= 0) {
        (void)close(block->fd);
    }
    free(block);
}

/* Takes a block of exactly this size out of the pool; NULL if there is none. */
static struct block *pool_take(struct gpu *gpu, size_t size_bytes)
{
    for (struct block **link = &gpu->pool; *link != NULL; link = &(*link)->next) {
        struct block *block = *link;

        if (block->size_bytes == size_bytes) {
            *link = block->next;
            block->next = NULL;
            gpu->pooled_bytes -= size_bytes;
            return block;
        }
    }
    return NULL;
}

static void pool_put(struct gpu *gpu, struct block *block)
{
    size_t kept_bytes = 0;
    struct block **link = &gpu->pool;

    block->next = gpu->pool;
    gpu->pool = block;
    gpu->pooled_bytes += block->size_bytes;
    /* What came back longest ago goes first: keep the newest that fit. */
    while (*link != NULL) {
        struct block *candidate = *link;

        if (kept_bytes + candidate->size_bytes <= gpu->capacity_bytes) {
            kept_bytes += candidate->size_bytes;
            link = &candidate->next;
            continue;
        }
        *link = candidate->next;
        gpu->pooled_bytes -= candidate->size_bytes;
        block_destroy(candidate);
    }
    TDM_ASSERT(gpu->pooled_bytes == kept_bytes);
}

/* A block that nobody holds. */
static void block_return_to_pool(struct gpu *gpu, struct block *block)
{
    if (block->adopted) {
        block_destroy(block);
    } else {
        pool_put(gpu, block);
    }
}

static tdm_status holder_add(struct block *block, const struct tdm__tenant *who)
{
    struct holder *holder;

    for (holder = block->holders; holder != NULL; holder = holder->next) {
        if (tdm__id_equal(&holder->who.id, &who->id)) {
            holder->count++;
            return TDM_OK;
        }
    }
    holder = calloc(1, sizeof(*holder));
    if (holder == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a holder of a block");
    }
    holder->who = *who;
    holder->count = 1;
    holder->next = block->holders;
    block->holders = holder;
    return TDM_OK;
}

static bool holder_is(const struct block *block, const struct tdm__id *id)
{
    for (const struct holder *holder = block->holders; holder != NULL; holder = holder->next) {
        if (tdm__id_equal(&holder->who.id, id)) {
            return true;
        }
    }
    return false;
}

/* A block whose memory is yet to come. */
static tdm_status block_create(uint32_t gpu, size_t size_bytes, struct block **block_out)
{
    struct block *block = calloc(1, sizeof(*block));

    if (block == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a block of GPU %u", gpu);
    }
    block->size_bytes = size_bytes;
    block->fd = -1;
    *block_out = block;
    return TDM_OK;
}

/* The tenant's memory behind `fd`. */
static tdm_status block_adopt(uint32_t gpu, size_t size_bytes, int fd, struct block **block_out)
{
    TDM_TRY(block_create(gpu, size_bytes, block_out));
    (*block_out)->adopted = true;
    (*block_out)->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if ((*block_out)->fd < 0) {
        int error_number = errno;

        block_destroy(*block_out);
        return tdm__fail_errno(error_number, "descriptor %d for a block of GPU %u", fd, gpu);
    }
    return TDM_OK;
}

/* Recycled, fresh, or (`fd` is not -1) the tenant's own. */
static tdm_status block_get(struct gpu *gpu, uint32_t gpu_index, size_t size_bytes, int fd,
                            struct block **block_out)
{
    tdm_status status;

    if (fd >= 0) {
        return block_adopt(gpu_index, size_bytes, fd, block_out);
    }
    *block_out = pool_take(gpu, size_bytes);
    if (*block_out != NULL) {
        return TDM_OK;
    }
    TDM_TRY(block_create(gpu_index, size_bytes, block_out));
    status = tdm__block_memory_create(gpu_index, size_bytes, &(*block_out)->fd);
    if (status != TDM_OK) {
        block_destroy(*block_out);
    }
    return status;
}

/* A block ready to be charged, under a new key. */
static tdm_status block_make(struct tdm__broker *broker, const struct tdm__tenant *owner,
                             const struct tdm__block_request *request, size_t size_bytes, int fd,
                             struct block **block_out)
{
    struct block *block;
    tdm_status status;

    TDM_TRY(block_get(&broker->gpus[request->gpu], request->gpu, size_bytes, fd, &block));
    status = tdm__id_generate(&block->key);
    if (status == TDM_OK) {
        status = holder_add(block, owner);
    }
    if (status != TDM_OK) {
        block_destroy(block);
        return status;
    }
    block->owner = *owner;
    (void)snprintf(block->tag, sizeof(block->tag), "%s", request->tag);
    *block_out = block;
    return TDM_OK;
}

/* ---- the ledger ------------------------------------------------------------------------- */

static void assert_used_is_sum_of_usages(const struct gpu *gpu)
{
    size_t sum_bytes = 0;

    for (const struct block *block = gpu->blocks; block != NULL; block = block->next) {
        TDM_ASSERT(block->holders != NULL);
        sum_bytes += block->size_bytes;
    }
    TDM_ASSERT(sum_bytes == gpu->used_bytes);
    TDM_ASSERT(gpu->used_bytes <= gpu->capacity_bytes);
}

static void gpu_charge(struct tdm__broker *broker, uint32_t gpu_index, struct block *block)
{
    struct gpu *gpu = &broker->gpus[gpu_index];

    block->next = NULL;
    *gpu->blocks_end = block;
    gpu->blocks_end = &block->next;
    gpu->used_bytes += block->size_bytes;
    if (broker->hook.charged != NULL) {
        broker->hook.charged(broker->hook.arg, gpu_index, &block->owner, block->tag,
                             block->size_bytes);
    }
}

/* Unlinks the block at `link`, whose last holder is gone, and pools its memory. */
static void gpu_discharge(struct tdm__broker *broker, uint32_t gpu_index, struct block **link)
{
    struct gpu *gpu = &broker->gpus[gpu_index];
    struct block *block = *link;
    struct tdm__tenant owner = block->owner;
    char tag[TDM__BLOCK_TAG_BYTES];
    size_t size_bytes = block->size_bytes;

    TDM_ASSERT(block->holders == NULL);
    memcpy(tag, block->tag, sizeof(tag));
    *link = block->next;
    if (gpu->blocks_end == &block->next) {
        gpu->blocks_end = link;
    }
    gpu->used_bytes -= size_bytes;
    block_return_to_pool(gpu, block);
    assert_used_is_sum_of_usages(gpu);
    if (broker->hook.released != NULL) {
        broker->hook.released(broker->hook.arg, gpu_index, &owner, tag, size_bytes);
    }
}

/* Takes `count` holds of `id` away (all of them where count is 0); true if it had any. */
static bool holder_remove(struct block *block, const struct tdm__id *id, uint32_t count)
{
    for (struct holder **link = &block->holders; *link != NULL; link = &(*link)->next) {
        struct holder *holder = *link;

        if (!tdm__id_equal(&holder->who.id, id)) {
            continue;
        }
        if (count == 0 || holder->count <= count) {
            *link = holder->next;
            free(holder);
        } else {
            holder->count -= count;
        }
        return true;
    }
    return false;
}

/* Where the block with this key is linked; NULL if there is none. */
static struct block **find_block(struct tdm__broker *broker, const struct tdm__id *key,
                                 uint32_t *gpu_out)
{
    for (uint32_t i = 0; i < broker->gpus_count; i++) {
        for (struct block **link = &broker->gpus[i].blocks; *link != NULL; link = &(*link)->next) {
            if (tdm__id_equal(&(*link)->key, key)) {
                *gpu_out = i;
                return link;
            }
        }
    }
    return NULL;
}

static tdm_status fail_no_block(const struct tdm__id *key)
{
    char text[TDM__ID_TEXT_BYTES];

    return tdm__fail(TDM_E_NOT_FOUND,
                     "no block has the key %s: its last holder released it or died",
                     tdm__id_text(key, text));
}

static bool usage_matches(const struct tdm__broker_usage *row, const struct block *block)
{
    return tdm__id_equal(&row->owner.id, &block->owner.id) && strcmp(row->tag, block->tag) == 0;
}

uint32_t tdm__broker_list_usage(const struct tdm__broker *broker, uint32_t gpu,
                                struct tdm__broker_usage *usages_out, uint32_t room)
{
    uint32_t count = 0;

    TDM_ASSERT(gpu < broker->gpus_count);
    for (const struct block *block = broker->gpus[gpu].blocks; block != NULL; block = block->next) {
        struct tdm__broker_usage *row = usages_out;

        while (row < usages_out + count && !usage_matches(row, block)) {
            row++;
        }
        if (row == usages_out + count) {
            if (count == room) {
                continue;
            }
            count++;
            memset(row, 0, sizeof(*row));
            row->owner = block->owner;
            memcpy(row->tag, block->tag, sizeof(row->tag));
        }
        row->bytes += block->size_bytes;
        if (!holder_is(block, &block->owner.id)) {
            row->releasing_bytes += block->size_bytes;
            memcpy(row->holder, block->holders->who.name, sizeof(row->holder));
        }
        row->blocks_count++;
    }
    return count;
}

/* Of a request that is checked. */
static size_t request_total_bytes(const struct tdm__block_request *request)
{
    size_t wanted_bytes = 0;

    for (uint32_t i = 0; i < request->count; i++) {
        wanted_bytes += request->sizes_bytes[i];
    }
    return wanted_bytes;
}

static tdm_status fail_full(const struct tdm__broker *broker, const struct tdm__tenant *owner,
                            const struct tdm__block_request *request)
{
    const struct gpu *gpu = &broker->gpus[request->gpu];
    struct tdm__broker_usage rows[16];
    uint32_t rows_count = tdm__broker_list_usage(broker, request->gpu, rows, 16);
    char text[TDM__ERROR_DETAIL_BYTES];
    size_t used = (size_t)snprintf(
        text, sizeof(text), "GPU %u cannot hold %s's %s: %.1f MiB wanted, %.1f MiB free of %.1f",
        request->gpu, owner->name, request->tag, (double)request_total_bytes(request) / (1 << 20),
        (double)(gpu->capacity_bytes - gpu->used_bytes) / (1 << 20),
        (double)gpu->capacity_bytes / (1 << 20));

    for (uint32_t i = 0; i < rows_count && used < sizeof(text) - 1; i++) {
        bool is_releasing = rows[i].releasing_bytes > 0;

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s %s holds %s %.1f MiB%s%s%s",
                                 i == 0 ? ";" : ",", rows[i].owner.name, rows[i].tag,
                                 (double)rows[i].bytes / (1 << 20),
                                 is_releasing ? " (being released: " : "", rows[i].holder,
                                 is_releasing ? " still maps it)" : "");
    }
    return tdm__fail(TDM_E_DEVICE_FULL, "%s", text);
}

static tdm_status check_request(const struct tdm__broker *broker,
                                const struct tdm__block_request *request)
{
    if (request->gpu >= broker->gpus_count) {
        return tdm__fail(TDM_E_INVAL, "GPU %u of %u", request->gpu, broker->gpus_count);
    }
    if (request->tag == NULL || request->tag[0] == '\0' ||
        strlen(request->tag) >= TDM__BLOCK_TAG_BYTES) {
        return tdm__fail(TDM_E_INVAL, "a tag has 1 to %d bytes", TDM__BLOCK_TAG_BYTES - 1);
    }
    if (request->count == 0 || request->count > TDM__BLOCKS_MAX) {
        return tdm__fail(TDM_E_INVAL, "%u blocks in one call: 1 to %d are possible", request->count,
                         TDM__BLOCKS_MAX);
    }
    for (uint32_t i = 0; i < request->count; i++) {
        size_t size_bytes = request->sizes_bytes[i];

        if (size_bytes == 0 || size_bytes % TDM__BLOCK_BYTES_UNIT != 0 ||
            size_bytes > SIZE_MAX / 2 / TDM__BLOCKS_MAX) {
            return tdm__fail(TDM_E_INVAL, "a block of %zu bytes: sizes are multiples of 2 MiB",
                             size_bytes);
        }
    }
    return TDM_OK;
}

/* ---- the broker ------------------------------------------------------------------------- */

tdm_status tdm__broker_create(uint32_t gpus_count, size_t capacity_bytes,
                              struct tdm__broker **broker_out)
{
    struct tdm__broker *broker =
        calloc(1, sizeof(*broker) + (size_t)gpus_count * sizeof(broker->gpus[0]));

    if (broker == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a broker of %u GPUs", gpus_count);
    }
    broker->gpus_count = gpus_count;
    for (uint32_t i = 0; i < gpus_count; i++) {
        broker->gpus[i].capacity_bytes = capacity_bytes;
        broker->gpus[i].blocks_end = &broker->gpus[i].blocks;
    }
    *broker_out = broker;
    return TDM_OK;
}

static void destroy_all(struct block *block)
{
    while (block != NULL) {
        struct block *next = block->next;

        block_destroy(block);
        block = next;
    }
}

void tdm__broker_destroy(struct tdm__broker *broker)
{
    if (broker == NULL) {
        return;
    }
    for (uint32_t i = 0; i < broker->gpus_count; i++) {
        destroy_all(broker->gpus[i].blocks);
        destroy_all(broker->gpus[i].pool);
    }
    free(broker);
}

void tdm__broker_set_callbacks(struct tdm__broker *broker, const struct tdm__broker_callbacks *hook)
{
    broker->hook = hook != NULL ? *hook : (struct tdm__broker_callbacks){0};
}

/* Makes or adopts all blocks of a request that fits, uncharged. */
static tdm_status broker_create_all(struct tdm__broker *broker, const struct tdm__tenant *owner,
                                    const struct tdm__block_request *request, const int *fds,
                                    struct block **made)
{
    struct gpu *gpu = &broker->gpus[request->gpu];

    for (uint32_t i = 0; i < request->count; i++) {
        tdm_status status = block_make(broker, owner, request, request->sizes_bytes[i],
                                       fds != NULL ? fds[i] : -1, &made[i]);

        if (status != TDM_OK) {
            while (i > 0) {
                i--;
                (void)holder_remove(made[i], &owner->id, 0);
                block_return_to_pool(gpu, made[i]);
            }
            return status;
        }
    }
    return TDM_OK;
}

tdm_status tdm__broker_fail_no_memory(const struct tdm__broker *broker,
                                      const struct tdm__tenant *owner,
                                      const struct tdm__block_request *request, tdm_status reason)
{
    const struct gpu *gpu = &broker->gpus[request->gpu];

    return tdm__wrap(reason, "%s's %s: %.1f MiB wanted, %.1f MiB free of %.1f", owner->name,
                     request->tag, (double)request_total_bytes(request) / (1 << 20),
                     (double)(gpu->capacity_bytes - gpu->used_bytes) / (1 << 20),
                     (double)gpu->capacity_bytes / (1 << 20));
}

/* That the request makes sense and the GPU has room for it. */
static tdm_status check_capacity(const struct tdm__broker *broker, const struct tdm__tenant *owner,
                                 const struct tdm__block_request *request)
{
    const struct gpu *gpu;

    TDM_TRY(check_request(broker, request));
    gpu = &broker->gpus[request->gpu];
    return request_total_bytes(request) > gpu->capacity_bytes - gpu->used_bytes
               ? fail_full(broker, owner, request)
               : TDM_OK;
}

/* `fds` is NULL where the memory is to be made here. */
static tdm_status block_create_and_charge(struct tdm__broker *broker,
                                          const struct tdm__tenant *owner,
                                          const struct tdm__block_request *request, const int *fds,
                                          struct tdm__block_handle *blocks_out)
{
    struct block *made[TDM__BLOCKS_MAX] = {NULL};
    tdm_status status;

    TDM_TRY(check_capacity(broker, owner, request));
    status = broker_create_all(broker, owner, request, fds, made);
    if (status != TDM_OK) {
        return tdm__broker_fail_no_memory(broker, owner, request, status);
    }
    for (uint32_t i = 0; i < request->count; i++) {
        blocks_out[i] = (struct tdm__block_handle){
            .key = made[i]->key, .size_bytes = made[i]->size_bytes, .fd = made[i]->fd};
        gpu_charge(broker, request->gpu, made[i]);
    }
    assert_used_is_sum_of_usages(&broker->gpus[request->gpu]);
    return TDM_OK;
}

/* Whether the pool has so many blocks of this size. */
static bool pool_count_of_size(const struct gpu *gpu, size_t size_bytes, uint32_t count)
{
    for (const struct block *block = gpu->pool; block != NULL && count > 0; block = block->next) {
        count -= block->size_bytes == size_bytes ? 1 : 0;
    }
    return count == 0;
}

tdm_status tdm__broker_missing_sizes(const struct tdm__broker *broker,
                                     const struct tdm__tenant *owner,
                                     const struct tdm__block_request *request,
                                     size_t *sizes_bytes_out, uint32_t *count_out)
{
    uint32_t missing = 0;

    TDM_TRY(check_capacity(broker, owner, request));
    for (uint32_t i = 0; i < request->count; i++) {
        uint32_t as_large = 1; /* this one and those before it */

        for (uint32_t j = 0; j < i; j++) {
            as_large += request->sizes_bytes[j] == request->sizes_bytes[i] ? 1 : 0;
        }
        if (!pool_count_of_size(&broker->gpus[request->gpu], request->sizes_bytes[i], as_large)) {
            sizes_bytes_out[missing++] = request->sizes_bytes[i];
        }
    }
    *count_out = missing;
    return TDM_OK;
}

tdm_status tdm__broker_add_to_pool(struct tdm__broker *broker, uint32_t gpu, size_t size_bytes,
                                   int fd)
{
    struct block *block;

    TDM_TRY(block_create(gpu, size_bytes, &block));
    block->fd = fd;
    pool_put(&broker->gpus[gpu], block);
    return TDM_OK;
}

tdm_status tdm__broker_create_blocks(struct tdm__broker *broker, const struct tdm__tenant *owner,
                                     const struct tdm__block_request *request,
                                     struct tdm__block_handle *blocks_out)
{
    return block_create_and_charge(broker, owner, request, NULL, blocks_out);
}

tdm_status tdm__broker_register_blocks(struct tdm__broker *broker, const struct tdm__tenant *owner,
                                       const struct tdm__block_request *request, const int *fds,
                                       struct tdm__id *keys_out)
{
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];

    TDM_TRY(block_create_and_charge(broker, owner, request, fds, blocks));
    for (uint32_t i = 0; i < request->count; i++) {
        keys_out[i] = blocks[i].key;
    }
    return TDM_OK;
}

tdm_status tdm__broker_open_block(struct tdm__broker *broker, const struct tdm__id *key,
                                  const struct tdm__tenant *holder,
                                  struct tdm__block_handle *block_out)
{
    uint32_t gpu;
    struct block **link = find_block(broker, key, &gpu);

    if (link == NULL) {
        return fail_no_block(key);
    }
    TDM_TRY(holder_add(*link, holder));
    *block_out = (struct tdm__block_handle){
        .key = *key, .size_bytes = (*link)->size_bytes, .fd = (*link)->fd};
    return TDM_OK;
}

tdm_status tdm__broker_release_block(struct tdm__broker *broker, const struct tdm__id *key,
                                     const struct tdm__id *holder)
{
    uint32_t gpu;
    struct block **link = find_block(broker, key, &gpu);

    if (link == NULL || !holder_remove(*link, holder, 1)) {
        return fail_no_block(key);
    }
    if ((*link)->holders == NULL) {
        gpu_discharge(broker, gpu, link);
    }
    return TDM_OK;
}

tdm_status tdm__broker_transfer_block(struct tdm__broker *broker, const struct tdm__id *key,
                                      const struct tdm__tenant *owner)
{
    uint32_t gpu;
    struct block **link = find_block(broker, key, &gpu);
    struct block *block;

    if (link == NULL) {
        return fail_no_block(key);
    }
    block = *link;
    if (!holder_is(block, &owner->id)) {
        return tdm__fail(TDM_E_STATE, "%s cannot accept %s's %s: open the block first", owner->name,
                         block->owner.name, block->tag);
    }
    if (broker->hook.released != NULL) {
        broker->hook.released(broker->hook.arg, gpu, &block->owner, block->tag, block->size_bytes);
    }
    block->owner = *owner;
    if (broker->hook.charged != NULL) {
        broker->hook.charged(broker->hook.arg, gpu, &block->owner, block->tag, block->size_bytes);
    }
    return TDM_OK;
}

void tdm__broker_remove_tenant(struct tdm__broker *broker, const struct tdm__id *peer)
{
    for (uint32_t i = 0; i < broker->gpus_count; i++) {
        struct block **link = &broker->gpus[i].blocks;

        while (*link != NULL) {
            if (holder_remove(*link, peer, 0) && (*link)->holders == NULL) {
                gpu_discharge(broker, i, link);
            } else {
                link = &(*link)->next;
            }
        }
    }
}

uint32_t tdm__broker_gpus_count(const struct tdm__broker *broker)
{
    return broker->gpus_count;
}

void tdm__broker_gpu_usage(const struct tdm__broker *broker, uint32_t gpu,
                           struct tdm__broker_gpu *gpu_out)
{
    TDM_ASSERT(gpu < broker->gpus_count);
    *gpu_out = (struct tdm__broker_gpu){
        .capacity_bytes = broker->gpus[gpu].capacity_bytes,
        .used_bytes = broker->gpus[gpu].used_bytes,
        .pooled_bytes = broker->gpus[gpu].pooled_bytes,
    };
}
