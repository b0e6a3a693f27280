/* turnstile.h - one GPU's turnstile: who may take how much of its memory, and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TURNSTILE_H
#define TDM_COLOCATE_TURNSTILE_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/region.h>

/* The law.  Before memory is made on the card, its tenant wishes for it here.  Free is what the
 * card has, less what is resident, less what is granted and not made yet, less what strangers
 * hold.  A wish that fits is granted.  Wishes are served in the order they came; none
 * overtakes. A wish waits only while memory that would make room for it, and for those before
 * it, has been announced to be on its way out, or where it says that it may wait; its deadline
 * ends the wait. What cannot fit is refused at once, with the line of the budget that fails.  A
 * dead tenant holds nothing and wishes for nothing.
 *
 * The turnstile is a value: (state, event) -> (state, actions), without clock, memory or I/O,
 * copied by assignment.  The test walks every state that two tenants can reach. */

enum {
    TDM__TURNSTILE_TENANTS_MAX = 16,
    TDM__TURNSTILE_TAGS_MAX = 8, /* per tenant */
    TDM__TURNSTILE_WISHES_MAX = 32,
    TDM__TURNSTILE_NAME_BYTES = 64, /* with the NUL */
    TDM__TURNSTILE_TEXT_BYTES = 512,
    TDM__TURNSTILE_GRANT_MS = 10000 /* a grant not used by then is free again */
};

/* What one tenant holds under one tag.  Stays, at zero, when the memory is paused. */
struct tdm__turnstile_line {
    char tag[TDM_REGION_TAG_BYTES_MAX];
    uint64_t resident_bytes;
    uint64_t leaving_bytes; /* of them, announced to be on their way out */
};

struct tdm__turnstile_tenant {
    struct tdm__id id;
    char name[TDM__TURNSTILE_NAME_BYTES]; /* as texts shall call it: "engine 0" */
    uint32_t lines_count;
    struct tdm__turnstile_line lines[TDM__TURNSTILE_TAGS_MAX];
};

struct tdm__turnstile_wish {
    uint64_t request_id;
    struct tdm__id tenant;
    char tag[TDM_REGION_TAG_BYTES_MAX];
    uint64_t bytes;      /* granted: what is left to be made */
    int64_t deadline_ms; /* of the wait; once granted, of the grant */
    bool may_wait;       /* even for memory that nobody has announced */
    bool is_granted;
};

struct tdm__turnstile {
    uint64_t capacity_bytes;
    uint64_t foreign_bytes; /* seen in use, but not by anybody here */
    uint32_t gpu;           /* for texts */
    uint32_t tenants_count;
    uint32_t wishes_count;
    struct tdm__turnstile_tenant tenants[TDM__TURNSTILE_TENANTS_MAX];
    struct tdm__turnstile_wish wishes[TDM__TURNSTILE_WISHES_MAX]; /* in order of arrival */
};

enum tdm__turnstile_event_kind {
    TDM__TURNSTILE_WISH,      /* a create or resume asks, before any block is made */
    TDM__TURNSTILE_CHARGED,   /* blocks are about to be made: uses up the tenant's grants, then
                                 free memory */
    TDM__TURNSTILE_RELEASED,  /* blocks are gone */
    TDM__TURNSTILE_LEAVING,   /* so many bytes of this line are on their way out; replaces what
                                 was announced before, 0 takes it back */
    TDM__TURNSTILE_WITHDRAWN, /* the request is over: leaves the queue, and what is left of its
                                 grant is free again; unknown ones are no error */
    TDM__TURNSTILE_GONE,      /* the tenant died or left; so are its blocks */
    TDM__TURNSTILE_FOREIGN,   /* so many bytes are in use by strangers */
    TDM__TURNSTILE_TICK       /* time passed: wishes, and grants not used, expire */
};

/* Fields that a kind does not need are not read.  Texts are copied. */
struct tdm__turnstile_event {
    enum tdm__turnstile_event_kind kind;
    uint64_t request_id; /* wish, withdrawn: chosen by the caller, unique while it is open */
    struct tdm__id tenant;
    const char *name; /* wish, charged: of the tenant */
    const char *tag;  /* wish, charged, released, leaving */
    uint64_t bytes;
    int64_t now_ms;
    int64_t deadline_ms; /* wish */
    bool may_wait;       /* wish */
};

enum tdm__turnstile_verdict {
    TDM__TURNSTILE_GRANT,
    TDM__TURNSTILE_REFUSE,
    TDM__TURNSTILE_WAIT
};

struct tdm__turnstile_action {
    enum tdm__turnstile_verdict verdict;
    uint64_t request_id;
    tdm_status status;                    /* of a refusal: TDM_E_DEVICE_FULL */
    char text[TDM__TURNSTILE_TEXT_BYTES]; /* of a refusal: the numbers, and who holds what */
};

/* Each open request has at most one verdict per event. */
struct tdm__turnstile_actions {
    uint32_t count;
    struct tdm__turnstile_action entries[TDM__TURNSTILE_WISHES_MAX];
};

void tdm__turnstile_init(struct tdm__turnstile *state, uint32_t gpu, uint64_t capacity_bytes);
uint64_t tdm__turnstile_free_bytes(const struct tdm__turnstile *state);

/* One step.  Every wish is answered: granted or refused now, or WAIT now and one of the two
 * later, unless it is withdrawn or its tenant gone.  An event that cannot be true changes
 * nothing: TDM_E_INVAL for bad texts or no bytes, TDM_E_EXISTS for a request id in use,
 * TDM_E_STATE for releasing what is not there, TDM_E_DEVICE_FULL for charging what is neither
 * granted nor free, TDM_E_LIMIT for too many tenants, tags or wishes. */
tdm_status tdm__turnstile_step(struct tdm__turnstile *state,
                               const struct tdm__turnstile_event *event,
                               struct tdm__turnstile_actions *actions_out);

#endif
