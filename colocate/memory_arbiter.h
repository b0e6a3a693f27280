/* memory_arbiter.h - one GPU's memory_arbiter: who may take how much of its memory, and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_ARBITER_H
#define TDM_COLOCATE_MEMORY_ARBITER_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/region.h>

/* The law.  Before memory is made on the card, its tenant requests for it here.  Free is what the
 * card has, less what is resident, less what is granted and not made yet, less what strangers
 * hold.  A request that fits is granted.  Wishes are served in the order they came; none
 * overtakes. A request waits only while memory that would make room for it, and for those before
 * it, has been announced to be on its way out, or where it says that it may wait; its deadline
 * ends the wait. What cannot fit is refused at once, with the line of the budget that fails.  A
 * dead tenant holds nothing and requests for nothing.
 *
 * The memory_arbiter is a value: (state, event) -> (state, actions), without clock, memory or I/O,
 * copied by assignment.  The test walks every state that two tenants can reach. */

enum {
    TDM__ARBITER_TENANTS_MAX = 16,
    TDM__ARBITER_TAGS_MAX = 8, /* per tenant */
    TDM__ARBITER_REQUESTS_MAX = 32,
    TDM__ARBITER_NAME_BYTES = 64, /* with the NUL */
    TDM__ARBITER_TEXT_BYTES = 512,
    TDM__ARBITER_GRANT_LIFETIME_MS = 10000 /* a grant not used by then is free again */
};

/* What one tenant holds under one tag.  Stays, at zero, when the memory is paused. */
struct tdm__arbiter_tag_usage {
    char tag[TDM_REGION_TAG_BYTES_MAX];
    uint64_t resident_bytes;
    uint64_t announced_release_bytes; /* of them, announced to be on their way out */
};

struct tdm__arbiter_tenant {
    struct tdm__id id;
    char name[TDM__ARBITER_NAME_BYTES]; /* as texts shall call it: "engine 0" */
    uint32_t tag_usages_count;
    struct tdm__arbiter_tag_usage tag_usages[TDM__ARBITER_TAGS_MAX];
};

struct tdm__arbiter_request {
    uint64_t request_id;
    struct tdm__id tenant;
    char tag[TDM_REGION_TAG_BYTES_MAX];
    uint64_t bytes;      /* granted: what is left to be made */
    int64_t deadline_ms; /* of the wait; once granted, of the grant */
    bool may_wait;       /* even for memory that nobody has announced */
    bool is_granted;
};

struct tdm__memory_arbiter {
    uint64_t capacity_bytes;
    uint64_t unmanaged_bytes; /* seen in use, but not by anybody here */
    uint32_t gpu;             /* for texts */
    uint32_t tenants_count;
    uint32_t requests_count;
    struct tdm__arbiter_tenant tenants[TDM__ARBITER_TENANTS_MAX];
    struct tdm__arbiter_request requests[TDM__ARBITER_REQUESTS_MAX]; /* in order of arrival */
};

enum tdm__arbiter_event_kind {
    TDM__ARBITER_REQUESTED, /* a create or resume asks, before any block is made */
    TDM__ARBITER_CHARGED,   /* blocks are about to be made: uses up the tenant's grants, then
                                 free memory */
    TDM__ARBITER_RELEASED,  /* blocks are gone */
    TDM__ARBITER_RELEASE_ANNOUNCED, /* so many bytes of this line are on their way out; replaces
                               what was announced before, 0 takes it back */
    TDM__ARBITER_REQUEST_CANCELED, /* the request is over: leaves the queue, and what is left of its
                                 grant is free again; unknown ones are no error */
    TDM__ARBITER_TENANT_GONE,      /* the tenant died or left; so are its blocks */
    TDM__ARBITER_UNMANAGED_USAGE,  /* so many bytes are in use by strangers */
    TDM__ARBITER_TICK              /* time passed: requests, and grants not used, expire */
};

/* Fields that a kind does not need are not read.  Texts are copied. */
struct tdm__arbiter_event {
    enum tdm__arbiter_event_kind kind;
    uint64_t request_id; /* request, withdrawn: chosen by the caller, unique while it is open */
    struct tdm__id tenant;
    const char *name; /* request, charged: of the tenant */
    const char *tag;  /* request, charged, released, leaving */
    uint64_t bytes;
    int64_t now_ms;
    int64_t deadline_ms; /* request */
    bool may_wait;       /* request */
};

enum tdm__arbiter_verdict { TDM__ARBITER_GRANT, TDM__ARBITER_REFUSE, TDM__ARBITER_WAIT };

struct tdm__arbiter_action {
    enum tdm__arbiter_verdict verdict;
    uint64_t request_id;
    tdm_status status;                  /* of a refusal: TDM_E_DEVICE_FULL */
    char text[TDM__ARBITER_TEXT_BYTES]; /* of a refusal: the numbers, and who holds what */
};

/* Each open request has at most one verdict per event. */
struct tdm__arbiter_actions {
    uint32_t count;
    struct tdm__arbiter_action entries[TDM__ARBITER_REQUESTS_MAX];
};

void tdm__arbiter_init(struct tdm__memory_arbiter *state, uint32_t gpu, uint64_t capacity_bytes);
uint64_t tdm__arbiter_free_bytes(const struct tdm__memory_arbiter *state);

/* One step.  Every request is answered: granted or refused now, or WAIT now and one of the two
 * later, unless it is withdrawn or its tenant gone.  An event that cannot be true changes
 * nothing: TDM_E_INVAL for bad texts or no bytes, TDM_E_EXISTS for a request id in use,
 * TDM_E_STATE for releasing what is not there, TDM_E_DEVICE_FULL for charging what is neither
 * granted nor free, TDM_E_LIMIT for too many tenants, tags or requests. */
tdm_status tdm__arbiter_handle_event(struct tdm__memory_arbiter *state,
                                     const struct tdm__arbiter_event *event,
                                     struct tdm__arbiter_actions *actions_out);

#endif
