/* version_offers.h - waits for the versions that a sender offers to a receiver. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_VERSION_OFFERS_H
#define TDM_COLOCATE_SCHEME_VERSION_OFFERS_H

#include "colocate/scheme/receiver.h"

#include <stdbool.h>

/* Only the receiving thread calls these functions. `head` is the first receiver of a set. */

/* Starts to wait for the next offer, unless that wait exists already, so that an offer that comes
 * meanwhile is found at once. Does not block. TDM_E_CANCELED if the receiver stops. */
tdm_status tdm__version_offers_request_next(tdm_weights_receiver *receiver);
/* Waits for the next version that is offered to the set and whose updates are still open, and
 * writes the offers to the receivers of the set. At least one of them is listed then. Passes over
 * versions that some models of the set were not offered. TDM_E_TIMEOUT after `deadline_ms` on the
 * monotonic clock, TDM_E_END if the sender is gone, TDM_E_CANCELED if the receiver stops. */
tdm_status tdm__version_offers_await(tdm_weights_receiver *head, int64_t deadline_ms);
/* Forgets the offers that were read. */
void tdm__version_offers_forget(const tdm_weights_receiver *head);
/* Returns true if the offer that was read lists this receiver. A receiver that joins while a
 * version is offered may be listed for some models of its set only; it then receives these. */
bool tdm__version_offers_is_listed(const tdm_weights_receiver *receiver);
/* Turns a failure that means that the sender's mailbox has ended into TDM_E_END; returns others
 * unchanged. */
tdm_status tdm__version_offers_sender_gone(const tdm_weights_receiver *receiver, tdm_status status);

#endif
