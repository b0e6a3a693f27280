/* version_offers.c - waits for the versions that a sender offers to a receiver. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A sender offers a version by a message in its mailbox, "offer/" and a number, which lists the
 * members of the update. A receiver waits for the next one after the last that it has read; the
 * wait is a reference that is kept between calls. The receivers of a set of models wait for offers
 * of the same version. */

#include "colocate/scheme/version_offers.h"

#include "colocate/scheme/mailbox.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>

tdm_status tdm__version_offers_sender_gone(const tdm_weights_receiver *receiver, tdm_status status)
{
    if (status == TDM_E_ACTOR_DIED || status == TDM_E_NODE_LOST || status == TDM_E_OWNER_DIED) {
        return tdm__fail(TDM_E_END, "the sender of %s is gone: %s", receiver->session.model,
                         tdm_error_detail());
    }
    return status;
}

tdm_status tdm__version_offers_request_next(tdm_weights_receiver *receiver)
{
    tdm_status status = TDM_OK;

    (void)pthread_mutex_lock(&receiver->mutex);
    if (receiver->stopping) {
        status = tdm__fail(TDM_E_CANCELED, "the receiver of %s stops", receiver->session.model);
    } else if (receiver->next == NULL) {
        status = tdm__mailbox_wait_messages(receiver->mailbox, "offer/", receiver->last_offer_key,
                                            1, &receiver->next);
    }
    (void)pthread_mutex_unlock(&receiver->mutex);
    return status;
}

/* Releases the wait for the next offer. */
static void drop_next_offer(tdm_weights_receiver *receiver)
{
    (void)pthread_mutex_lock(&receiver->mutex);
    tdm_ref_release(receiver->next);
    receiver->next = NULL;
    (void)pthread_mutex_unlock(&receiver->mutex);
}

/* Returns this receiver's index in the offer's members, or their number if it is not one. */
static uint32_t find_own_index(const tdm_weights_receiver *receiver,
                               const struct tdm__message_list *members)
{
    const struct tdm__member *self = &receiver->self;
    uint32_t i;

    for (i = 0; i < members->count; i++) {
        struct tdm__update_member_message member;

        tdm__message_list_read(members, i, &member, sizeof(member));
        if (tdm__id_equal(&member.actor, &self->actor) && member.incarnation == self->incarnation) {
            break;
        }
    }
    return i;
}

/* Reads the newest offer of the message list into receiver->offer and remembers its key. A copy of
 * the attached bytes is kept until the next offer is read. */
static tdm_status read_offer(tdm_weights_receiver *receiver,
                             const struct tdm__message_list *messages)
{
    struct tdm__version_offer *offer = &receiver->offer;
    struct tdm__scheme_offer_message message;
    const tdm_value *value;
    const char *key;

    if (messages->count == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "the wait for an offer of %s ended without one",
                         receiver->session.model);
    }
    value = tdm__mailbox_message_at(messages, messages->count - 1, &key);
    (void)snprintf(receiver->last_offer_key, sizeof(receiver->last_offer_key), "%s", key);
    TDM_TRY(tdm__scheme_offer_decode(value, &message));
    offer->epoch = message.epoch;
    offer->version = message.version;
    offer->group_epoch = message.group_epoch;
    offer->sender_node = message.sender_node;
    offer->deadline_ms = tdm__deadline_after(message.timeout_ms);
    offer->members_count = message.members.count;
    offer->self = find_own_index(receiver, &message.members);
    return tdm__attachment_receive(&receiver->incoming.attached, message.attached,
                                   message.attached_sum);
}

/* Checks whether an offer is still open. An offer that came while this receiver was not receiving
 * may be over; the sender has then closed its messages. */
static tdm_status check_offer_open(const tdm_weights_receiver *receiver, bool *open_out)
{
    const struct tdm__version_offer *offer = &receiver->offer;
    struct tdm__message_list messages;
    char key[TDM__UPDATE_KEY_BYTES];
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(tdm__mailbox_wait_messages(
        receiver->mailbox, tdm__update_message_key(offer->epoch, "outcome", key), "", 0, &ref));
    status =
        tdm__mailbox_get_messages(ref, tdm__deadline_remaining_ms(offer->deadline_ms), &messages);
    tdm_ref_release(ref);
    *open_out = status != TDM_E_ABORTED;
    return status == TDM_E_ABORTED ? TDM_OK : status;
}

/* Waits for the next offer, whether or not it lists this receiver. */
static tdm_status await_next_offer(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    struct tdm__message_list messages;
    tdm_status status = tdm__version_offers_request_next(receiver);

    if (status == TDM_OK) {
        status = tdm__mailbox_get_messages(receiver->next, tdm__deadline_remaining_ms(deadline_ms),
                                           &messages);
    }
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(TDM_E_TIMEOUT, "no version of %s after %llu has come in time",
                         receiver->session.model, (unsigned long long)receiver->version);
    }
    if (status == TDM_OK) {
        status = read_offer(receiver, &messages);
    }
    drop_next_offer(receiver);
    return tdm__version_offers_sender_gone(receiver, status);
}

/* Waits until all models of the set have an offer of the same version. Offers that are missing at
 * some models, because their update was aborted while it was offered, are passed over. Once one
 * offer has come, the others are awaited as long as its update lasts. */
static tdm_status await_same_offers(tdm_weights_receiver *head, int64_t deadline_ms)
{
    uint64_t version = 0; /* Highest version that is offered. */
    bool same;

    do {
        same = true;
        for (uint32_t i = 0; i < head->set_count; i++) {
            tdm_weights_receiver *receiver = head->set[i];

            while (receiver->offer.version == 0 || receiver->offer.version < version) {
                TDM_TRY(await_next_offer(receiver, deadline_ms));
            }
            same = same && (i == 0 || receiver->offer.version == version);
            version = receiver->offer.version;
            deadline_ms = receiver->offer.deadline_ms;
        }
    } while (!same);
    return TDM_OK;
}

bool tdm__version_offers_is_listed(const tdm_weights_receiver *receiver)
{
    return receiver->offer.version != 0 && receiver->offer.self < receiver->offer.members_count;
}

/* Checks whether the set takes part in the offered version: it is listed, and all updates that list
 * it are open. */
static tdm_status check_offers_open(const tdm_weights_receiver *head, bool *open_out)
{
    uint32_t listed_count = 0;
    bool all_open = true;

    for (uint32_t i = 0; i < head->set_count; i++) {
        const tdm_weights_receiver *receiver = head->set[i];
        bool open = true;

        if (tdm__version_offers_is_listed(receiver)) {
            TDM_TRY(tdm__version_offers_sender_gone(receiver, check_offer_open(receiver, &open)));
            listed_count++;
        }
        all_open = all_open && open;
    }
    *open_out = all_open && listed_count > 0;
    return TDM_OK;
}

void tdm__version_offers_forget(const tdm_weights_receiver *head)
{
    for (uint32_t i = 0; i < head->set_count; i++) {
        head->set[i]->offer.version = 0;
    }
}

tdm_status tdm__version_offers_await(tdm_weights_receiver *head, int64_t deadline_ms)
{
    bool open = false;

    while (!open) {
        TDM_TRY(await_same_offers(head, deadline_ms));
        TDM_TRY(check_offers_open(head, &open));
        if (!open) {
            tdm__version_offers_forget(head);
        }
    }
    return TDM_OK;
}
