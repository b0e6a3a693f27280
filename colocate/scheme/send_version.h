/* send_version.h - sends one version of the weights to all receivers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_SEND_VERSION_H
#define TDM_COLOCATE_SCHEME_SEND_VERSION_H

#include "colocate/scheme/sender.h"

/* Sends the current weights of the sender, or of all models of its set, as a new version: begin,
 * offer, buckets, decision, flips. Blocks until all receivers serve it or the sender's timeout is
 * over. Failures are those of tdm_weights_send(). */
tdm_status tdm__send_version(tdm_weights_sender *sender, uint64_t *version_out);

/* Calls the receive method of each module actor that is not receiving. Does not block. */
void tdm__start_module_receives(tdm_weights_sender *sender);

#endif
