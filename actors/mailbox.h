/* mailbox.h - the calls that wait for an actor, in the order they came. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_MAILBOX_H
#define TDM_ACTORS_MAILBOX_H

#include "runtime/rpc/rpc.h"

struct tdm__mailbox {
    struct tdm__incoming **slots; /* ring, owned; grows up to the capacity */
    uint32_t slots_count;
    uint32_t head;
    uint32_t count;
    uint32_t capacity;
};

void tdm__mailbox_init(struct tdm__mailbox *mailbox, uint32_t capacity);
/* Empty by then. */
void tdm__mailbox_fini(struct tdm__mailbox *mailbox);
/* Takes `incoming` on TDM_OK only; TDM_E_AGAIN when full, TDM_E_NOMEM. */
tdm_status tdm__mailbox_push(struct tdm__mailbox *mailbox, struct tdm__incoming *incoming);
/* The oldest, now the caller's; NULL when empty. */
struct tdm__incoming *tdm__mailbox_pop(struct tdm__mailbox *mailbox);

#endif
