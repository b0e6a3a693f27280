/* mailbox.c - the calls that wait for an actor, in the order they came. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/mailbox.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>

enum { SLOTS_FIRST = 64 };

void tdm__mailbox_init(struct tdm__mailbox *mailbox, uint32_t capacity)
{
    TDM_ASSERT(capacity > 0);
    *mailbox = (struct tdm__mailbox){.capacity = capacity};
}

void tdm__mailbox_fini(struct tdm__mailbox *mailbox)
{
    TDM_ASSERT(mailbox->count == 0);
    free(mailbox->slots);
    mailbox->slots = NULL;
}

/* Twice the room; the ring is laid out anew from its head. */
static tdm_status mailbox_grow(struct tdm__mailbox *mailbox)
{
    uint32_t slots_count = mailbox->slots_count == 0 ? SLOTS_FIRST : mailbox->slots_count * 2;
    struct tdm__incoming **slots = calloc(slots_count, sizeof(struct tdm__incoming *));

    if (slots == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a mailbox of %u calls", slots_count);
    }
    for (uint32_t i = 0; i < mailbox->count; i++) {
        slots[i] = mailbox->slots[(mailbox->head + i) % mailbox->slots_count];
    }
    free(mailbox->slots);
    mailbox->slots = slots;
    mailbox->slots_count = slots_count;
    mailbox->head = 0;
    return TDM_OK;
}

tdm_status tdm__mailbox_push(struct tdm__mailbox *mailbox, struct tdm__incoming *incoming)
{
    if (mailbox->count == mailbox->capacity) {
        return tdm__fail(TDM_E_AGAIN, "the mailbox is full: %u calls wait", mailbox->count);
    }
    if (mailbox->count == mailbox->slots_count) {
        TDM_TRY(mailbox_grow(mailbox));
    }
    mailbox->slots[(mailbox->head + mailbox->count) % mailbox->slots_count] = incoming;
    mailbox->count++;
    return TDM_OK;
}

struct tdm__incoming *tdm__mailbox_pop(struct tdm__mailbox *mailbox)
{
    struct tdm__incoming *incoming;

    if (mailbox->count == 0) {
        return NULL;
    }
    incoming = mailbox->slots[mailbox->head];
    mailbox->head = (mailbox->head + 1) % mailbox->slots_count;
    mailbox->count--;
    return incoming;
}
