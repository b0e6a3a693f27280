/* send_version.h - one version on its way out of a sender. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_SEND_VERSION_H
#define TDM_COLOCATE_SCHEME_SEND_VERSION_H

#include "colocate/scheme/sender.h"

/* The five steps, from the source's side: as tdm_weights_send(). */
tdm_status tdm__send_version(tdm_weights_sender *sender, uint64_t *version_out);

/* Has the modules' actors receive, those that do not yet. */
void tdm__start_module_receives(tdm_weights_sender *sender);

#endif
