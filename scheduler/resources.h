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
    /* The amount 1 of a resource, such as one CPU or one GPU, in units of 1/10,000. */
    TDM__RESOURCE_ONE = 10000,
    /* Largest number of named resources in a request or on a node. */
    TDM__CUSTOM_RESOURCES_MAX = TDM_BUNDLE_RESOURCES_MAX,
    /* Size in bytes of a resource's name, including the terminating NUL. */
    TDM__RESOURCE_NAME_BYTES = 32,
    TDM__NODE_NAME_BYTES = 64, /* Size in bytes of a node's name, including the terminating NUL. */
    TDM__NODE_GPUS_MAX = TDM_BUNDLE_GPUS_MAX /* Largest number of GPUs of a node. */
};
/* Largest amount of a resource, in units of 1/10,000; enough for bytes of memory. */
#define TDM__RESOURCE_AMOUNT_MAX (INT64_C(100000000000000) * TDM__RESOURCE_ONE)

/* An amount of a named resource, that is, neither CPU nor GPU. */
struct tdm__custom_resource {
    char name[TDM__RESOURCE_NAME_BYTES]; /* Name of the resource; "" in an unused entry. */
    int64_t amount;                      /* Amount of the resource, in units of 1/10,000. */
};

/* Requested resources. All zero is an empty request; tdm__resources_add() adds to it. */
struct tdm__resources {
    int64_t cpu; /* Amount of CPUs, in units of 1/10,000. */
    int64_t gpu; /* Amount of GPUs, in units of 1/10,000: less than one GPU, or whole GPUs. */
    /* Named resources, sorted by name, with amounts above zero. They end at the first entry without
     * a name. Unused entries are all zero, so equal requests have equal bytes. */
    struct tdm__custom_resource custom[TDM__CUSTOM_RESOURCES_MAX];
};

/* Resources allocated for a request. */
struct tdm__grant {
    int64_t cpu;         /* Amount of CPUs, in units of 1/10,000. */
    uint32_t gpus_count; /* Number of entries in `gpu_indices`. */
    /* Indices of the allocated GPUs on the node, in ascending order. */
    uint32_t gpu_indices[TDM__NODE_GPUS_MAX];
    /* Amount that is allocated of each of the GPUs, in units of 1/10,000; 0 without GPUs. */
    int64_t gpu_amount;
    /* Allocated amounts of named resources, as in struct tdm__resources. */
    struct tdm__custom_resource custom[TDM__CUSTOM_RESOURCES_MAX];
};

/* Total and free amount of one resource, in units of 1/10,000. */
struct tdm__amount {
    int64_t total; /* Total amount of the resource, in units of 1/10,000. */
    /* Free amount of the resource, from 0 to `total`. Of CPUs it is negative while actors that had
     * lent their CPUs have taken them back although others hold them now. */
    int64_t free;
};

/* A named resource of a pool. */
struct tdm__custom_pool {
    char name[TDM__RESOURCE_NAME_BYTES]; /* Name of the resource; "" in an unused entry. */
    struct tdm__amount amount;           /* Total and free amount of the named resource. */
};

/* Resources from which requests are allocated: those of a node, or those of a bundle for its
 * actors. */
struct tdm__pool {
    struct tdm__amount cpu; /* Total and free amount of CPUs. */
    uint32_t gpus_count;    /* Number of entries in `gpus`. */
    /* Total and free amount of each GPU, by its index on the node. In a node's pool each total is
     * one GPU. In a bundle's pool the total is what the bundle holds of the GPU, 0 for none. */
    struct tdm__amount gpus[TDM__NODE_GPUS_MAX];
    /* Total and free amounts of named resources, sorted by name. */
    struct tdm__custom_pool custom[TDM__CUSTOM_RESOURCES_MAX];
};

/* Ticket of a placement group that waits for resources (scheduler/ticket.h). A node that has the
 * ticket keeps its resources for the group. */
struct tdm__ticket {
    struct tdm__id group;      /* ID of the placement group; all zero for no ticket. */
    struct tdm__id owner_node; /* ID of the node that requests the group. */
    uint64_t number;           /* Order of the tickets: lower numbers come first. */
};

/* The resources of a node, as stored in free/ID. */
struct tdm__node_resources {
    struct tdm__id id;               /* ID of the node. */
    char name[TDM__NODE_NAME_BYTES]; /* Name of the node for messages. */
    struct tdm__pool pool;           /* Total and free resources of the node. */
    uint32_t actors_count;     /* Number of actors on the node that are not in placement groups. */
    struct tdm__labels labels; /* Labels of the node, which constraints of actors refer to. */
    /* Generation of the store in which the node has written all its records
     * (scheduler/reconcile.h); 0 if it knows of none. */
    uint64_t generation;
    /* The same for the names of its actors. */
    uint64_t names_generation;
    struct tdm__ticket ticket; /* Ticket for which the node keeps its resources. */
    /* Whether the ticket keeps the node's resources from the request that is being placed. Only
     * placement uses it; the record does not contain it. */
    bool is_kept;
};

/* ---- requests --------------------------------------------------------------------------- */

/* Adds `amount` of "CPU", "GPU" or a named resource to a request; zero adds nothing. Returns
 * TDM_E_INVAL with the remedy for a name given twice, negative or infinite amounts, steps finer
 * than 0.0001, and more than one GPU that is not a whole number. Returns TDM_E_LIMIT for too many
 * names. */
tdm_status tdm__resources_add(struct tdm__resources *resources, const char *name, double amount);
/* Converts a bundle of the public interface to a request. Returns TDM_E_INVAL if the bundle is
 * empty or tdm__resources_add() refuses it. */
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

/* Returns whether the pool has the requested resources free. */
bool tdm__pool_fits(const struct tdm__pool *pool, const struct tdm__resources *wanted);
/* Allocates the requested resources from the pool. Returns false and changes nothing if they are
 * not free. A fraction of a GPU comes from the fitting GPU with the least free amount, the lowest
 * index first. Whole GPUs are the lowest that are entirely free. */
bool tdm__pool_allocate(struct tdm__pool *pool, const struct tdm__resources *wanted,
                        struct tdm__grant *grant_out);
/* Like tdm__pool_allocate(), but a fraction of a GPU comes from the GPU `gpu_index`. */
bool tdm__pool_allocate_on_gpu(struct tdm__pool *pool, const struct tdm__resources *wanted,
                               uint32_t gpu_index, struct tdm__grant *grant_out);
/* Allocates exactly this grant from the pool, to rebuild a pool from grants that exist. Returns
 * TDM_E_CONFLICT and changes nothing if these resources are not free. */
tdm_status tdm__pool_allocate_grant(struct tdm__pool *pool, const struct tdm__grant *grant);
/* Like tdm__pool_allocate_grant() for a grant that a living actor holds. Its CPUs are allocated
 * also if they are not free. */
tdm_status tdm__pool_allocate_held_grant(struct tdm__pool *pool, const struct tdm__grant *grant);
/* Allocates an amount of CPUs that an actor takes back, also if they are not free; a negative
 * amount is lent. Returns TDM_E_STATE and changes nothing if more would be free than there is. */
tdm_status tdm__pool_take_cpus(struct tdm__pool *pool, int64_t cpu);
/* Releases a grant in the pool. Returns TDM_E_STATE and changes nothing if the pool would exceed
 * its totals: the grant was released before or belongs to another pool. */
tdm_status tdm__pool_release_grant(struct tdm__pool *pool, const struct tdm__grant *grant);

/* ---- words and bytes -------------------------------------------------------------------- */

/* Appends a request in words to `text`, such as "CPU 2, GPU 0.4, disk 1", or "nothing". */
void tdm__resources_describe(const struct tdm__resources *resources, struct tdm__text *text);
/* Appends the pool's free and total amounts in words to `text`: "CPU 3 of 8, GPU 0.6+1 of 2, disk 0
 * of 1". */
void tdm__pool_describe(const struct tdm__pool *pool, struct tdm__text *text);

/* Encodes a request for resources as one value. */
void tdm__resources_write(tdm_writer *writer, const struct tdm__resources *resources);
/* Decodes a request for resources. Returns TDM_E_PROTOCOL if the value breaks a rule of struct
 * tdm__resources. */
tdm_status tdm__resources_read(const tdm_value *value, struct tdm__resources *resources_out);
/* Encodes a grant as one value. */
void tdm__grant_write(tdm_writer *writer, const struct tdm__grant *grant);
/* Decodes a grant. Returns TDM_E_PROTOCOL if the value breaks a rule of struct tdm__grant. */
tdm_status tdm__grant_read(const tdm_value *value, struct tdm__grant *grant_out);
/* Encodes the resources of a node as one value. */
void tdm__node_resources_write(tdm_writer *writer, const struct tdm__node_resources *node);
/* Decodes the resources of a node. Returns TDM_E_PROTOCOL if the value breaks a rule of struct
 * tdm__node_resources. */
tdm_status tdm__node_resources_read(const tdm_value *value, struct tdm__node_resources *node_out);
/* Returns a request as a message, to be put inside another message. The message borrows from
 * `resources`. */
struct tdm__resources_message tdm__resources_to_message(const struct tdm__resources *resources);
/* Reads a request from a decoded message. Returns TDM_E_PROTOCOL as tdm__resources_read() does. */
tdm_status tdm__resources_of_message(const struct tdm__resources_message *message,
                                     struct tdm__resources *resources_out);
/* Returns a grant as a message, which borrows from `grant`. */
struct tdm__grant_message tdm__grant_to_message(const struct tdm__grant *grant);
/* Reads a grant from a decoded message. Returns TDM_E_PROTOCOL as tdm__grant_read() does. */
tdm_status tdm__grant_of_message(const struct tdm__grant_message *message,
                                 struct tdm__grant *grant_out);
/* Returns a pool as a message, which borrows from `pool`. */
struct tdm__pool_message tdm__pool_to_message(const struct tdm__pool *pool);
/* Reads a pool from a decoded message. Returns TDM_E_PROTOCOL if the pool breaks a rule of struct
 * tdm__pool. */
tdm_status tdm__pool_of_message(const struct tdm__pool_message *message,
                                struct tdm__pool *pool_out);

/* Returns whether both grants are of the same resources. */
bool tdm__grants_equal(const struct tdm__grant *a, const struct tdm__grant *b);
/* Returns whether both pools have the same total and free amounts. */
bool tdm__pools_equal(const struct tdm__pool *a, const struct tdm__pool *b);

#endif
