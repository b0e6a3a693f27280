/* receive_version.h - receives one version of the weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_RECEIVE_VERSION_H
#define TDM_COLOCATE_SCHEME_RECEIVE_VERSION_H

#include "colocate/scheme/receiver.h"

/* Waits for the next version that is offered to this receiver, or to its set, receives its buckets,
 * votes, learns the outcome and obeys it. Returns TDM_OK when the version is served. Failures are
 * those of tdm_weights_receive(), and TDM_E_CANCELED while the receiver is stopping. */
tdm_status tdm__receive_version(tdm_weights_receiver *receiver, int64_t deadline_ms);

/* Frees the received buckets of a version. */
void tdm__incoming_version_fini(struct tdm__incoming_version *incoming,
                                const struct tdm__model_buckets *model_buckets);

#endif
