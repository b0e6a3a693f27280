/* broker.c - the block broker: the only allocator of device memory on a node, with owners and
 * capacities. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The broker owns the blocks of the node's GPUs. A block is charged (in a GPU's list `blocks`,
 * with at least one holder) or pooled (in the list `pool`, without holders, not charged).
 *
 * Invariants, asserted after each change: a GPU's used_bytes is the sum of its charged blocks and
 * never exceeds its capacity; every charged block has a holder; pooled bytes never exceed the
 * capacity.
 *
 * A block goes from charged to pooled when its last holder releases it or dies. Registered blocks
 * (memory of a real device) are destroyed instead.
 *
 * One thread uses the broker: the daemon's loop. The rules are specified in broker.h and the RPC
 * methods in broker_service.h. */

#include "colocate/broker/broker.h"

#include "colocate/broker/block_memory.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A process that holds a block, and how often. The block owns this structure. */
struct holder {
    struct holder *next;       /* Next process in the block's list of holders; NULL at its end. */
    struct tdm__tenant tenant; /* Process that holds the block. */
    /* How often the process has created or opened the block without releasing it. */
    uint32_t count;
};

/* A block: memory of a GPU that is charged to a process or pooled. The list that contains the block
 * owns it. */
struct block {
    struct block *next; /* Next block in the GPU's list `blocks` or `pool`; NULL at its end. */
    /* Key with which processes open the block; each charge of the block gives it a new key. */
    struct tdm__id key;
    struct tdm__tenant owner; /* Process to which the block's memory is charged. */
    /* Tag that the owner gave to the block, for example "weights". */
    char tag[TDM__BLOCK_TAG_BYTES];
    size_t size_bytes; /* Size of the block in bytes. */
    int fd; /* Descriptor of the block's memory, owned; -1 while the block has no memory. */
    /* True if a process allocated the memory itself on a device; such a block is never pooled. */
    bool adopted;
    /* Processes that hold the block; owned list, never empty while the block is charged. */
    struct holder *holders;
};

/* The memory of one GPU. */
struct gpu {
    size_t capacity_bytes; /* Number of bytes of memory that the node offers for the GPU. */
    size_t used_bytes;     /* Sum of the sizes of all blocks in `blocks`. */
    size_t pooled_bytes;   /* Sum of the sizes of all blocks in `pool`. */
    size_t outside_bytes;  /* Bytes that processes use without the broker, by the last report. */
    /* Blocks of the GPU that are charged to a process, in the order of creation; owned list. */
    struct block *blocks;
    /* Address of the pointer to which the next charged block is appended. */
    struct block **blocks_end;
    struct block *pool; /* Released blocks that wait for reuse, the newest first; owned list. */
};

/* The broker of a node; broker_service.c owns it in the daemon. */
struct tdm__broker {
    struct tdm__broker_callbacks hook; /* Callbacks for each change of what a process is charged. */
    uint32_t gpus_count;               /* Number of entries in `gpus`. */
    struct gpu gpus[];                 /* Memory of each GPU of the node. */
};

/* ---- making and unmaking a block -------------------------------------------------------- */

/* Frees a block with its list of holders and closes the descriptor of its memory. */
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

/* Removes a block of exactly `size_bytes` bytes from the GPU's pool and returns it; NULL if the
 * pool has none. */
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

/* Puts a block into the GPU's pool and destroys the oldest pooled blocks that exceed the GPU's
 * capacity. */
static void pool_put(struct gpu *gpu, struct block *block)
{
    size_t kept_bytes = 0;
    struct block **link = &gpu->pool;

    block->next = gpu->pool;
    gpu->pool = block;
    gpu->pooled_bytes += block->size_bytes;
    /* The pool keeps the newest blocks that fit the capacity; the older ones are destroyed. */
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

/* Puts a block without holders into the GPU's pool, or destroys the block if its memory is
 * adopted. */
static void block_return_to_pool(struct gpu *gpu, struct block *block)
{
    if (block->adopted) {
        block_destroy(block);
    } else {
        pool_put(gpu, block);
    }
}

/* Records that a process holds the block once more. */
static tdm_status holder_add(struct block *block, const struct tdm__tenant *tenant)
{
    struct holder *holder;

    for (holder = block->holders; holder != NULL; holder = holder->next) {
        if (tdm__id_equal(&holder->tenant.id, &tenant->id)) {
            holder->count++;
            return TDM_OK;
        }
    }
    holder = calloc(1, sizeof(*holder));
    if (holder == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a holder of a block");
    }
    holder->tenant = *tenant;
    holder->count = 1;
    holder->next = block->holders;
    block->holders = holder;
    return TDM_OK;
}

/* Returns true if the process with this ID holds the block. */
static bool block_is_held_by(const struct block *block, const struct tdm__id *id)
{
    for (const struct holder *holder = block->holders; holder != NULL; holder = holder->next) {
        if (tdm__id_equal(&holder->tenant.id, id)) {
            return true;
        }
    }
    return false;
}

/* Allocates the struct of a block without memory. */
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

/* Creates a block around the tenant's memory behind `fd`, which is duplicated. */
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

/* Provides a block with memory: the tenant's own if `fd` is not -1, else from the pool, else fresh
 * memory. */
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

/* Provides a block that is ready to be charged: with memory, a new key, its owner and its tag. */
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

/* Asserts the invariants of a GPU: used_bytes is the sum of its charged blocks and does not exceed
 * the capacity. */
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

/* Appends a block to the GPU's charged blocks and calls the callback `charged`. */
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

/* Ends the charge of the block at `link`, whose last holder is gone: returns it to the pool and
 * calls the callback `released`. */
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

/* Records that the process `id` holds the block `count` times fewer, or not at all if `count` is 0.
 * Returns true if the process held the block. */
static bool holder_remove(struct block *block, const struct tdm__id *id, uint32_t count)
{
    for (struct holder **link = &block->holders; *link != NULL; link = &(*link)->next) {
        struct holder *holder = *link;

        if (!tdm__id_equal(&holder->tenant.id, id)) {
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

/* Returns the address of the list pointer to the charged block with this key; NULL if there is no
 * such block. */
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

/* Fails with TDM_E_NOT_FOUND because no block has this key. */
static tdm_status fail_no_block(const struct tdm__id *key)
{
    char text[TDM__ID_TEXT_BYTES];

    return tdm__fail(TDM_E_NOT_FOUND,
                     "no block has the key %s: its last holder released it or died",
                     tdm__id_text(key, text));
}

bool tdm__broker_is_charged(const struct tdm__broker *broker, uint32_t gpu,
                            const struct tdm__id *tenant)
{
    TDM_ASSERT(gpu < broker->gpus_count);
    for (const struct block *block = broker->gpus[gpu].blocks; block != NULL; block = block->next) {
        if (tdm__id_equal(&block->owner.id, tenant)) {
            return true;
        }
    }
    return false;
}

/* Returns true if the block has the owner and the tag of the usage record. */
static bool usage_matches(const struct tdm__broker_usage *usage, const struct block *block)
{
    return tdm__id_equal(&usage->owner.id, &block->owner.id) && strcmp(usage->tag, block->tag) == 0;
}

uint32_t tdm__broker_list_usage(const struct tdm__broker *broker, uint32_t gpu,
                                struct tdm__broker_usage *usages_out, uint32_t capacity)
{
    uint32_t count = 0;

    TDM_ASSERT(gpu < broker->gpus_count);
    for (const struct block *block = broker->gpus[gpu].blocks; block != NULL; block = block->next) {
        struct tdm__broker_usage *usage = usages_out;

        while (usage < usages_out + count && !usage_matches(usage, block)) {
            usage++;
        }
        if (usage == usages_out + count) {
            if (count == capacity) {
                continue;
            }
            count++;
            memset(usage, 0, sizeof(*usage));
            usage->owner = block->owner;
            memcpy(usage->tag, block->tag, sizeof(usage->tag));
        }
        usage->bytes += block->size_bytes;
        if (!block_is_held_by(block, &block->owner.id)) {
            usage->releasing_bytes += block->size_bytes;
            memcpy(usage->holder, block->holders->tenant.name, sizeof(usage->holder));
        }
        usage->blocks_count++;
    }
    return count;
}

/* Returns the sum of the block sizes of a request, which was checked before. */
static size_t request_total_bytes(const struct tdm__block_request *request)
{
    size_t wanted_bytes = 0;

    for (uint32_t i = 0; i < request->count; i++) {
        wanted_bytes += request->sizes_bytes[i];
    }
    return wanted_bytes;
}

/* Fails with TDM_E_DEVICE_FULL because the request exceeds the GPU's capacity. The message names
 * the holders of the GPU's memory. */
static tdm_status fail_full(const struct tdm__broker *broker, const struct tdm__tenant *owner,
                            const struct tdm__block_request *request)
{
    const struct gpu *gpu = &broker->gpus[request->gpu];
    struct tdm__broker_usage usages[16];
    uint32_t usages_count = tdm__broker_list_usage(broker, request->gpu, usages, 16);
    char text[TDM__ERROR_DETAIL_BYTES];
    size_t used = (size_t)snprintf(
        text, sizeof(text), "GPU %u cannot hold %s's %s: %.1f MiB wanted, %.1f MiB free of %.1f",
        request->gpu, owner->name, request->tag, (double)request_total_bytes(request) / (1 << 20),
        (double)(gpu->capacity_bytes - gpu->used_bytes) / (1 << 20),
        (double)gpu->capacity_bytes / (1 << 20));

    for (uint32_t i = 0; i < usages_count && used < sizeof(text) - 1; i++) {
        bool is_releasing = usages[i].releasing_bytes > 0;

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s %s holds %s %.1f MiB%s%s%s",
                                 i == 0 ? ";" : ",", usages[i].owner.name, usages[i].tag,
                                 (double)usages[i].bytes / (1 << 20),
                                 is_releasing ? " (being released: " : "", usages[i].holder,
                                 is_releasing ? " still maps it)" : "");
    }
    return tdm__fail(TDM_E_DEVICE_FULL, "%s", text);
}

/* Fails with TDM_E_INVAL unless the GPU, the tag, the count and the sizes of the request are
 * valid. */
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

/* Destroys all blocks of a list, which begins with `block`. */
static void blocks_destroy(struct block *block)
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
        blocks_destroy(broker->gpus[i].blocks);
        blocks_destroy(broker->gpus[i].pool);
    }
    free(broker);
}

void tdm__broker_set_callbacks(struct tdm__broker *broker, const struct tdm__broker_callbacks *hook)
{
    broker->hook = hook != NULL ? *hook : (struct tdm__broker_callbacks){0};
}

/* Provides all blocks of a request in `made` without charging them. On failure the blocks go back
 * to the pool. */
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

/* Checks that the request is valid and that the GPU has enough free memory for it. */
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

/* Creates and charges all blocks of the request. `fds` is NULL if the broker allocates the
 * memory. */
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

/* Returns true if the GPU's pool has at least `count` blocks of `size_bytes` bytes. */
static bool pool_has_blocks(const struct gpu *gpu, size_t size_bytes, uint32_t count)
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
        /* Number of blocks of this size among the request's first i + 1 blocks. */
        uint32_t as_large = 1;

        for (uint32_t j = 0; j < i; j++) {
            as_large += request->sizes_bytes[j] == request->sizes_bytes[i] ? 1 : 0;
        }
        if (!pool_has_blocks(&broker->gpus[request->gpu], request->sizes_bytes[i], as_large)) {
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
        .outside_bytes = broker->gpus[gpu].outside_bytes,
    };
}

void tdm__broker_set_outside_usage(struct tdm__broker *broker, uint32_t gpu, size_t bytes)
{
    TDM_ASSERT(gpu < broker->gpus_count);
    broker->gpus[gpu].outside_bytes = bytes;
}
