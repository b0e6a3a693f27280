/* memory_arbiter.h - the memory arbiter of one GPU: which tenant may allocate how much memory,
 * and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_ARBITER_H
#define TDM_COLOCATE_MEMORY_ARBITER_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/region.h>

/* The rules of the arbiter.
 *
 * A tenant (a process of this node) sends a request before it allocates memory on the GPU. The free
 * memory is the capacity minus the resident bytes, the bytes that are granted and not allocated
 * yet, and the bytes used by unmanaged processes. A request that fits into the free memory is
 * granted. Requests are served in the order of their arrival; none overtakes another.
 *
 * A request waits only if it allows that itself (may_wait), or if enough memory for it and for
 * the requests before it has been announced for release. Its deadline ends the wait. A request
 * that cannot fit is refused at once, and the text of the refusal names the holders of the
 * memory. A tenant that died holds nothing and has no requests.
 *
 * Memory that the processes of a tenant allocate themselves (PyTorch's allocator, an engine's
 * server) is called outside memory. A tenant requests it in the same way, says what it then uses,
 * and says again what is left when it has released it. What is in use is counted also if it was
 * not granted, so that nothing is granted twice.
 *
 * The arbiter is a value: a function of (state, event) gives (state, actions). It has no clock,
 * allocates nothing, does no I/O and is copied by assignment. memory_arbiter_test.c explores
 * every state that two tenants can reach. */

enum {
    TDM__ARBITER_TENANTS_MAX = 16, /* Largest number of tenants (processes) of one GPU. */
    TDM__ARBITER_TAGS_MAX = 8,     /* Largest number of region tags of one tenant on one GPU. */
    /* Largest number of open requests (waiting or granted) of one GPU. */
    TDM__ARBITER_REQUESTS_MAX = 32,
    /* Size in bytes of a tenant's name, including the terminating NUL. */
    TDM__ARBITER_NAME_BYTES = 64,
    /* Size in bytes of the text of a refusal, including the terminating NUL. */
    TDM__ARBITER_TEXT_BYTES = 512,
    /* Milliseconds after which a grant that was not used expires and its memory is free again. */
    TDM__ARBITER_GRANT_LIFETIME_MS = 10000
};

/* The memory that one tenant holds under one tag on this GPU. The entry stays, with 0 bytes,
 * while the tenant's memory is paused. */
struct tdm__arbiter_tag_usage {
    char tag[TDM_REGION_TAG_BYTES_MAX]; /* Tag of the regions, for example "weights". */
    /* Bytes that the tenant has allocated on the GPU under this tag. */
    uint64_t resident_bytes;
    /* Bytes of resident_bytes that are outside memory: no block of the broker has them. */
    uint64_t outside_bytes;
    /* Bytes of outside memory that the tenant has declared to use now. More are in use if
     * outside_bytes is larger. */
    uint64_t declared_bytes;
    /* Bytes of resident_bytes that the tenant has announced to release soon. */
    uint64_t announced_release_bytes;
};

/* One process that holds, held or requests memory of this GPU. */
struct tdm__arbiter_tenant {
    struct tdm__id id; /* ID under which the daemon knows the process. */
    /* Name of the tenant in messages, for example "engine 0". */
    char name[TDM__ARBITER_NAME_BYTES];
    uint32_t tag_usages_count; /* Number of valid entries in tag_usages. */
    /* Memory of the tenant by tag, in the order in which the tags appeared. */
    struct tdm__arbiter_tag_usage tag_usages[TDM__ARBITER_TAGS_MAX];
};

/* One open request for memory: it waits, or it is granted and its memory is not allocated yet. */
struct tdm__arbiter_request {
    /* Number that the caller chose; unique among the open requests of this GPU. */
    uint64_t request_id;
    struct tdm__id tenant; /* ID of the tenant that requests the memory. */
    /* Tag under which the tenant will hold the memory. */
    char tag[TDM_REGION_TAG_BYTES_MAX];
    /* Number of bytes requested; once granted, the bytes of the grant that are not allocated
     * yet. */
    uint64_t bytes;
    /* Time when the wait ends or, once granted, when the grant expires; milliseconds on
     * CLOCK_MONOTONIC. */
    int64_t deadline_ms;
    /* True if the request may wait for memory whose release is not announced. */
    bool may_wait;
    bool is_granted; /* True once the request was granted. */
};

/* The state of the arbiter of one GPU. The caller owns it and serialises all access. Unused
 * entries of the arrays are all zeros, so that equal states are equal bytes. */
struct tdm__memory_arbiter {
    uint64_t capacity_bytes; /* Number of bytes of memory that the GPU has. */
    /* Number of bytes of the GPU that processes unknown to the arbiter use. */
    uint64_t unmanaged_bytes;
    /* Index of the GPU on its node, for messages only. */
    uint32_t gpu;
    uint32_t tenants_count;  /* Number of valid entries in tenants. */
    uint32_t requests_count; /* Number of valid entries in requests. */
    /* Tenants of this GPU, in the order in which they appeared. */
    struct tdm__arbiter_tenant tenants[TDM__ARBITER_TENANTS_MAX];
    /* Open requests (waiting or granted) in order of arrival. */
    struct tdm__arbiter_request requests[TDM__ARBITER_REQUESTS_MAX];
};

/* What happened to the memory of a GPU. */
enum tdm__arbiter_event_kind {
    /* A tenant asks for memory before it creates or resumes a region. */
    TDM__ARBITER_REQUESTED,
    /* The broker is about to allocate blocks for a tenant. This uses up the tenant's grants for the
     * event's tag first, then free memory. */
    TDM__ARBITER_CHARGED,
    TDM__ARBITER_RELEASED, /* The broker has released blocks of a tenant. */
    /* A tenant announces that it will soon release `bytes` of a tag. The number replaces the
     * earlier announcement; 0 withdraws it. */
    TDM__ARBITER_RELEASE_ANNOUNCED,
    /* A request ends: it leaves the queue, and the rest of its grant is free again. An unknown
     * request_id is no error. */
    TDM__ARBITER_REQUEST_CANCELED,
    /* A tenant died or left, and its blocks are released. */
    TDM__ARBITER_TENANT_GONE,
    /* Processes unknown to the arbiter use `bytes` of the GPU's memory in total. */
    TDM__ARBITER_UNMANAGED_USAGE,
    /* The processes of a tenant use `bytes` of outside memory under the tag, and declared
     * `declared_bytes`. Both replace the numbers before. What is added uses up the tenant's grants
     * for the tag first; the rest is counted also if it is not free. An announcement of the tag
     * keeps no outside memory. */
    TDM__ARBITER_OUTSIDE_USAGE,
    /* Time passed: requests and unused grants past their deadlines expire. */
    TDM__ARBITER_TICK
};

/* One event for tdm__arbiter_handle_event(). The fields that a kind does not need are not read;
 * each field lists the kinds that read it. The texts are copied. */
struct tdm__arbiter_event {
    /* Kind of the event; it decides which other fields are read. */
    enum tdm__arbiter_event_kind kind;
    /* REQUESTED, REQUEST_CANCELED: number chosen by the caller, unique while the request is open.
     */
    uint64_t request_id;
    /* ID of the tenant that the event is about, for all kinds but UNMANAGED_USAGE and TICK. */
    struct tdm__id tenant;
    /* REQUESTED, CHARGED, OUTSIDE_USAGE: name of the tenant for messages. */
    const char *name;
    /* REQUESTED, CHARGED, RELEASED, RELEASE_ANNOUNCED, OUTSIDE_USAGE: tag of the memory. */
    const char *tag;
    /* Number of bytes of the request, the blocks, the announcement, the outside memory or the
     * unmanaged usage. */
    uint64_t bytes;
    /* OUTSIDE_USAGE: number of bytes that the tenant has declared. */
    uint64_t declared_bytes;
    /* Current time in milliseconds on CLOCK_MONOTONIC. */
    int64_t now_ms;
    /* REQUESTED: time when the wait ends, in milliseconds on CLOCK_MONOTONIC. */
    int64_t deadline_ms;
    /* REQUESTED: true if the request may wait for memory that is not announced for release. */
    bool may_wait;
};

/* The decision of the arbiter about one request: grant it, refuse it, or let it wait. */
enum tdm__arbiter_verdict {
    TDM__ARBITER_GRANT,  /* The tenant may allocate the memory now. */
    TDM__ARBITER_REFUSE, /* The tenant does not get the memory. */
    TDM__ARBITER_WAIT    /* The request waits for memory; another decision follows. */
};

/* One decision that the caller must carry out: it replies to the request named by request_id. */
struct tdm__arbiter_action {
    enum tdm__arbiter_verdict verdict; /* Decision about the request: grant, refuse or wait. */
    /* Number of the request that the decision is about. */
    uint64_t request_id;
    /* TDM_E_DEVICE_FULL for TDM__ARBITER_REFUSE; TDM_OK otherwise. */
    tdm_status status;
    /* Reason of a refusal with the numbers and the holders of the memory; else "". */
    char text[TDM__ARBITER_TEXT_BYTES];
};

/* The decisions that follow from one event. An open request has at most one decision per event. */
struct tdm__arbiter_actions {
    uint32_t count; /* Number of valid entries in `entries`. */
    /* Decisions in the order in which they were made. */
    struct tdm__arbiter_action entries[TDM__ARBITER_REQUESTS_MAX];
};

/* Initializes the arbiter of a GPU with `capacity_bytes` bytes, without tenants and requests. `gpu`
 * is the GPU's index for messages. */
void tdm__arbiter_init(struct tdm__memory_arbiter *state, uint32_t gpu, uint64_t capacity_bytes);
/* Returns the number of bytes of the GPU that are neither allocated, nor granted, nor used by
 * unmanaged processes. */
uint64_t tdm__arbiter_free_bytes(const struct tdm__memory_arbiter *state);

/* What a real GPU says about its memory, and what Tandem knows of it. Several of the node's GPUs
 * may share a real one; the sums are over them. */
struct tdm__arbiter_report {
    uint64_t total_bytes;   /* Memory of the real GPU. */
    uint64_t free_bytes;    /* Bytes of it that no process uses. */
    uint64_t offered_bytes; /* Sum of the capacities of the node's GPUs on it. */
    uint64_t charged_bytes; /* Sum of the bytes that the broker has charged on them. */
    /* Sum of the outside memory of their tenants, which the arbiters count already. */
    uint64_t counted_bytes;
    uint32_t sharing_count; /* Number of the node's GPUs on it, at least 1. */
};

/* Returns the number of bytes of the real GPU that processes use without Tandem: CUDA contexts,
 * libraries, PyTorch's allocator, and processes that are not Tandem's. */
uint64_t tdm__arbiter_outside_bytes(const struct tdm__arbiter_report *report);
/* Returns the part of the outside bytes that no arbiter counts already and that does not fit into
 * what the node leaves unoffered of the real GPU, for one of the GPUs that share it: the bytes of
 * TDM__ARBITER_UNMANAGED_USAGE. */
uint64_t tdm__arbiter_unmanaged_bytes(const struct tdm__arbiter_report *report);
/* Returns the outside memory of the tenant in bytes; 0 if it is unknown. NULL: of all tenants. */
uint64_t tdm__arbiter_tenant_outside_bytes(const struct tdm__memory_arbiter *state,
                                           const struct tdm__id *tenant);
/* Returns true if a request is granted and its memory is not allocated yet. A report of that time
 * does not tell whether the device has the memory already, so that it must not be used. */
bool tdm__arbiter_has_open_grant(const struct tdm__memory_arbiter *state);

/* Applies one event and writes the decisions that follow to `actions_out`. Every request is
 * decided: granted or refused now, or WAIT now and one of the two later, unless it is canceled or
 * its tenant is gone.
 *
 * An impossible event changes nothing. The call then returns
 * - TDM_E_INVAL for a bad text or 0 bytes;
 * - TDM_E_EXISTS for a request_id in use;
 * - TDM_E_STATE for a release of more than is held;
 * - TDM_E_DEVICE_FULL for a charge that is neither granted nor free;
 * - TDM_E_LIMIT for too many tenants, tags or requests. */
tdm_status tdm__arbiter_handle_event(struct tdm__memory_arbiter *state,
                                     const struct tdm__arbiter_event *event,
                                     struct tdm__arbiter_actions *actions_out);

#endif
