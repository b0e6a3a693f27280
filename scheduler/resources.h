/* resources.h - resources of nodes, requests of actors and bundles, and grants. */
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

/* Amounts are integers in units of 1/10,000. So an amount that is allocated and released a million
 * times is exact, and 0.4 + 0.4 + 0.2 fill a GPU. */
enum {
    TDM__RESOURCE_ONE = 10000, /* The amount 1, such as one CPU or one GPU. */
    /* Most named resources in a request or on a node. */
    TDM__CUSTOM_RESOURCES_MAX = TDM_BUNDLE_RESOURCES_MAX,
    TDM__RESOURCE_NAME_BYTES = 32, /* Capacity of a resource's name, with the NUL. */
    TDM__NODE_NAME_BYTES = 64,     /* Capacity of a node's name, with the NUL. */
    /* Most GPUs of a node. */
    TDM__NODE_GPUS_MAX = TDM_BUNDLE_GPUS_MAX
};
/* Largest amount of a resource, enough for bytes of memory. */
#define TDM__RESOURCE_AMOUNT_MAX (INT64_C(100000000000000) * TDM__RESOURCE_ONE)

/* An amount of a named resource, that is, neither CPU nor GPU. */
struct tdm__custom_resource {
    char name[TDM__RESOURCE_NAME_BYTES]; /* Name of the resource; "" in an unused entry. */
    int64_t amount;                      /* Amount in units of 1/10,000. */
};

/* Requested resources. All zero is an empty request; tdm__resources_add() adds to it. */
struct tdm__resources {
    int64_t cpu; /* CPUs in units of 1/10,000. */
    /* GPUs in units of 1/10,000: less than one, or a whole number. */
    int64_t gpu;
    /* Named resources, sorted by name, with amounts above zero. They end at the first entry without
     * a name. Unused entries are all zero, so equal requests have equal bytes. */
    struct tdm__custom_resource custom[TDM__CUSTOM_RESOURCES_MAX];
};

/* Resources allocated for a request. */
struct tdm__grant {
    int64_t cpu;         /* CPUs in units of 1/10,000. */
    uint32_t gpus_count; /* Number of entries in `gpu_indices`. */
    /* Indices of the allocated GPUs of the node, in ascending order. */
    uint32_t gpu_indices[TDM__NODE_GPUS_MAX];
    /* Amount of each of these GPUs in units of 1/10,000; 0 without GPUs. */
    int64_t gpu_amount;
    /* Named resources, as in the request. */
    struct tdm__custom_resource custom[TDM__CUSTOM_RESOURCES_MAX];
};

/* Total and free amount of one resource, in units of 1/10,000. */
struct tdm__amount {
    int64_t total; /* Total amount. */
    int64_t free;  /* Free amount, from 0 to `total`. */
};

/* A named resource of a pool. */
struct tdm__custom_pool {
    char name[TDM__RESOURCE_NAME_BYTES]; /* Name of the resource; "" in an unused entry. */
    struct tdm__amount amount;           /* Total and free amount. */
};

/* Resources from which requests are allocated: those of a node, or those of a bundle for its
 * actors. */
struct tdm__pool {
    struct tdm__amount cpu; /* CPUs. */
    uint32_t gpus_count;    /* Number of entries in `gpus`. */
    /* GPUs by index. Those of a node have a total of one; a bundle may hold a fraction, or nothing
     * of a GPU before its last. */
    struct tdm__amount gpus[TDM__NODE_GPUS_MAX];
    /* Named resources, sorted as in a request. */
    struct tdm__custom_pool custom[TDM__CUSTOM_RESOURCES_MAX];
};

/* The resources of a node, as stored in free/ID. */
struct tdm__node_resources {
    struct tdm__id id;               /* The node's ID. */
    char name[TDM__NODE_NAME_BYTES]; /* Name for messages. */
    struct tdm__pool pool;           /* Total and free resources. */
    uint32_t actors_count;           /* Number of actors on the node outside of groups. */
    struct tdm__labels labels;       /* Labels of the node. */
};

/* ---- requests --------------------------------------------------------------------------- */

/* Adds `amount` of "CPU", "GPU" or a named resource; zero adds nothing. Returns TDM_E_INVAL with
 * the remedy for a name given twice, negative or infinite amounts, steps finer than 0.0001, and
 * more than one GPU that is not a whole number. Returns TDM_E_LIMIT for too many names. */
tdm_status tdm__resources_add(struct tdm__resources *resources, const char *name, double amount);
/* Converts a bundle of the public interface. Returns TDM_E_INVAL also for an empty bundle. */
tdm_status tdm__resources_of_bundle(const struct tdm_bundle *bundle,
                                    struct tdm__resources *resources_out);
/* Returns whether both requests have the same amounts. */
bool tdm__resources_equal(const struct tdm__resources *a, const struct tdm__resources *b);

/* ---- pools ------------------------------------------------------------------------------ */

/* Initialises a pool with the resources of a node, all free. The number of GPUs must be whole and
 * at most TDM__NODE_GPUS_MAX. */
tdm_status tdm__pool_init(struct tdm__pool *pool, const struct tdm__resources *totals);
/* Initialises a bundle's pool with the resources of a grant under the same GPU indices, all free.
 */
void tdm__pool_of_grant(struct tdm__pool *pool, const struct tdm__grant *grant);
/* Marks all resources of the pool as free. */
void tdm__pool_release_all(struct tdm__pool *pool);

/* Returns whether the request fits in the free resources. */
bool tdm__pool_fits(const struct tdm__pool *pool, const struct tdm__resources *wanted);
/* Allocates a request. Returns false and changes nothing if it does not fit. A fraction of a GPU
 * comes from the fitting GPU with the least free amount, the lowest index first. Whole GPUs are the
 * lowest that are entirely free. */
bool tdm__pool_allocate(struct tdm__pool *pool, const struct tdm__resources *wanted,
                        struct tdm__grant *grant_out);
/* Allocates a request; a fraction of a GPU comes from the GPU `gpu_index`. */
bool tdm__pool_allocate_on_gpu(struct tdm__pool *pool, const struct tdm__resources *wanted,
                               uint32_t gpu_index, struct tdm__grant *grant_out);
/* Allocates exactly this grant, to rebuild a pool from the grants that are known to exist. Returns
 * TDM_E_CONFLICT and changes nothing if it is not free. */
tdm_status tdm__pool_allocate_grant(struct tdm__pool *pool, const struct tdm__grant *grant);
/* Releases a grant. Returns TDM_E_STATE and changes nothing if the pool would exceed its totals:
 * the grant was released before or belongs to another pool. */
tdm_status tdm__pool_release_grant(struct tdm__pool *pool, const struct tdm__grant *grant);

/* ---- words and bytes -------------------------------------------------------------------- */

/* Appends a request in words, such as "CPU 2, GPU 0.4, disk 1", or "nothing". */
void tdm__resources_describe(const struct tdm__resources *resources, struct tdm__text *text);
/* Appends free and total amounts in words: "CPU 3 of 8, GPU 0.6+1 of 2, disk 0 of 1". */
void tdm__pool_describe(const struct tdm__pool *pool, struct tdm__text *text);

/* Packs a request as one value. */
void tdm__resources_write(tdm_writer *writer, const struct tdm__resources *resources);
/* Reads a packed request. Returns TDM_E_PROTOCOL if it violates what the structure promises. */
tdm_status tdm__resources_read(const tdm_value *value, struct tdm__resources *resources_out);
/* Packs a grant as one value. */
void tdm__grant_write(tdm_writer *writer, const struct tdm__grant *grant);
/* Reads a packed grant. Returns TDM_E_PROTOCOL if it violates what the structure promises. */
tdm_status tdm__grant_read(const tdm_value *value, struct tdm__grant *grant_out);
/* Packs the resources of a node as one value. */
void tdm__node_resources_write(tdm_writer *writer, const struct tdm__node_resources *node);
/* Reads the packed resources of a node. Returns TDM_E_PROTOCOL if they violate what the structure
 * promises. */
tdm_status tdm__node_resources_read(const tdm_value *value, struct tdm__node_resources *node_out);
/* Returns a request as a message inside another message; it borrows from the structure. */
struct tdm__resources_message tdm__resources_to_message(const struct tdm__resources *resources);
/* Reads a request from a decoded message, with all checks. */
tdm_status tdm__resources_of_message(const struct tdm__resources_message *message,
                                     struct tdm__resources *resources_out);
/* Returns a grant as a message, which borrows from the structure. */
struct tdm__grant_message tdm__grant_to_message(const struct tdm__grant *grant);
/* Reads a grant from a decoded message, with all checks. */
tdm_status tdm__grant_of_message(const struct tdm__grant_message *message,
                                 struct tdm__grant *grant_out);
/* Returns a pool as a message, which borrows from the structure. */
struct tdm__pool_message tdm__pool_to_message(const struct tdm__pool *pool);
/* Reads a pool from a decoded message, with all checks. */
tdm_status tdm__pool_of_message(const struct tdm__pool_message *message,
                                struct tdm__pool *pool_out);

#endif
