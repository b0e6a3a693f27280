/* resources.h - what nodes have, what actors and bundles ask for, and what they were given. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RESOURCES_H
#define TDM_SCHEDULER_RESOURCES_H

#include "runtime/id.h"
#include "runtime/messages/messages.h"
#include "runtime/text.h"
#include "scheduler/labels.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/placement.h>
#include <tandem/value.h>

/* Amounts are whole numbers of 1/10,000, so that what is taken and given back a million times
 * is exactly what it was, and 0.4 + 0.4 + 0.2 fill a GPU. */
enum {
    TDM__RESOURCE_ONE = 10000,
    TDM__CUSTOM_RESOURCES_MAX = TDM_BUNDLE_RESOURCES_MAX,
    TDM__RESOURCE_NAME_BYTES = 32, /* with the NUL */
    TDM__NODE_NAME_BYTES = 64,     /* with the NUL */
    TDM__NODE_GPUS_MAX = TDM_BUNDLE_GPUS_MAX
};
/* Enough for bytes of memory. */
#define TDM__RESOURCE_AMOUNT_MAX (INT64_C(100000000000000) * TDM__RESOURCE_ONE)

struct tdm__custom_resource {
    char name[TDM__RESOURCE_NAME_BYTES];
    int64_t amount;
};

/* A request.  Start from zeros; add with tdm__resources_add(). */
struct tdm__resources {
    int64_t cpu;
    int64_t gpu; /* at most one, or a multiple of one */
    /* Sorted by name, amounts over zero; ends at the first without a name.  Unused entries are
     * all zeros, so equal requests are equal bytes. */
    struct tdm__custom_resource custom[TDM__CUSTOM_RESOURCES_MAX];
};

/* What a request was given. */
struct tdm__grant {
    int64_t cpu;
    uint32_t gpus_count;
    uint32_t gpu_indices[TDM__NODE_GPUS_MAX]; /* ascending */
    int64_t gpu_amount;                       /* of each of them; 0 if there are none */
    struct tdm__custom_resource custom[TDM__CUSTOM_RESOURCES_MAX]; /* as in the request */
};

struct tdm__amount {
    int64_t total;
    int64_t free; /* 0 … total */
};

struct tdm__custom_pool {
    char name[TDM__RESOURCE_NAME_BYTES];
    struct tdm__amount amount;
};

/* Something that can be taken from: a node, or a bundle whose actors share what it holds. */
struct tdm__pool {
    struct tdm__amount cpu;
    uint32_t gpus_count;
    struct tdm__amount gpus[TDM__NODE_GPUS_MAX]; /* by index; a node's have a total of one */
    struct tdm__custom_pool custom[TDM__CUSTOM_RESOURCES_MAX]; /* sorted as in a request */
};

struct tdm__node_resources {
    struct tdm__id id;
    char name[TDM__NODE_NAME_BYTES];
    struct tdm__pool pool;
    uint32_t actors_count; /* placed there outside groups */
    struct tdm__labels labels;
};

/* ---- requests --------------------------------------------------------------------------- */

/* Adds `amount` of "CPU", "GPU" or a resource of the user's; zero adds nothing.  TDM_E_INVAL,
 * with the remedy, for a name given twice, negative or infinite amounts, steps finer than
 * 0.0001, and GPUs that are more than one but not whole; TDM_E_LIMIT for too many names. */
tdm_status tdm__resources_add(struct tdm__resources *resources, const char *name, double amount);
/* TDM_E_INVAL also for a bundle that asks for nothing. */
tdm_status tdm__resources_of_bundle(const struct tdm_bundle *bundle,
                                    struct tdm__resources *resources_out);
bool tdm__resources_equal(const struct tdm__resources *a, const struct tdm__resources *b);

/* ---- pools ------------------------------------------------------------------------------ */

/* A pool of everything in `totals` (whose gpu is a whole number, at most TDM__NODE_GPUS_MAX),
 * all of it free. */
tdm_status tdm__pool_init(struct tdm__pool *pool, const struct tdm__resources *totals);
/* A pool of what a grant holds, under the same GPU indices, all of it free: a bundle. */
void tdm__pool_of_grant(struct tdm__pool *pool, const struct tdm__grant *grant);
/* The pool as it would be if everything was given back. */
void tdm__pool_release_all(struct tdm__pool *pool);

bool tdm__pool_fits(const struct tdm__pool *pool, const struct tdm__resources *wanted);
/* Takes what fits; false, and nothing changed, if it does not.  A fraction comes from the GPU
 * with the least free that still holds it, the lowest index on ties; whole GPUs are the lowest
 * that are entirely free. */
bool tdm__pool_allocate(struct tdm__pool *pool, const struct tdm__resources *wanted,
                        struct tdm__grant *grant_out);
/* The same with the GPU of a fraction chosen by the caller. */
bool tdm__pool_allocate_on_gpu(struct tdm__pool *pool, const struct tdm__resources *wanted,
                               uint32_t gpu_index, struct tdm__grant *grant_out);
/* Takes exactly this grant, to build a pool anew from what is known to be out.  TDM_E_CONFLICT,
 * and nothing changed, if it is not free. */
tdm_status tdm__pool_allocate_grant(struct tdm__pool *pool, const struct tdm__grant *grant);
/* TDM_E_STATE, and nothing changed, if the pool would hold more than its totals: the grant was
 * given back before, or is another pool's. */
tdm_status tdm__pool_release_grant(struct tdm__pool *pool, const struct tdm__grant *grant);

/* ---- words and bytes -------------------------------------------------------------------- */

/* "CPU 2, GPU 0.4, disk 1"; "nothing". */
void tdm__resources_describe(const struct tdm__resources *resources, struct tdm__text *text);
/* What is free of what there is: "CPU 3 of 8, GPU 0.6+1 of 2, disk 0 of 1". */
void tdm__pool_describe(const struct tdm__pool *pool, struct tdm__text *text);

/* One packed value each, for calls and records.  Reading checks everything that the structs
 * above promise: TDM_E_PROTOCOL. */
void tdm__resources_write(tdm_writer *writer, const struct tdm__resources *resources);
tdm_status tdm__resources_read(const tdm_value *value, struct tdm__resources *resources_out);
void tdm__grant_write(tdm_writer *writer, const struct tdm__grant *grant);
tdm_status tdm__grant_read(const tdm_value *value, struct tdm__grant *grant_out);
void tdm__node_resources_write(tdm_writer *writer, const struct tdm__node_resources *node);
tdm_status tdm__node_resources_read(const tdm_value *value, struct tdm__node_resources *node_out);
/* The same as messages inside other messages.  A message borrows from the structure. */
struct tdm__resources_message tdm__resources_to_message(const struct tdm__resources *resources);
tdm_status tdm__resources_of_message(const struct tdm__resources_message *message,
                                     struct tdm__resources *resources_out);
struct tdm__grant_message tdm__grant_to_message(const struct tdm__grant *grant);
tdm_status tdm__grant_of_message(const struct tdm__grant_message *message,
                                 struct tdm__grant *grant_out);
struct tdm__pool_message tdm__pool_to_message(const struct tdm__pool *pool);
tdm_status tdm__pool_of_message(const struct tdm__pool_message *message,
                                struct tdm__pool *pool_out);

#endif
