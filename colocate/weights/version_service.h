/* version_service.h - the daemon's service "version": the commit protocol for its processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_VERSION_SERVICE_H
#define TDM_COLOCATE_WEIGHTS_VERSION_SERVICE_H

#include "colocate/weights/commit.h"
#include "runtime/service.h"

#include <tandem/runtime.h>

/* Workers and drivers have no connection to the store: their daemon asks for them.
 *
 * The method is version.request; runtime/messages/weights.def declares its request and reply. */
extern const struct tdm__service_ops tdm__version_service;

tdm_status tdm__version_service_create(struct tdm__loop *loop, struct tdm__store *store,
                                       void **self_out);

/* The answer to a request, as far as those who ask need it. */
struct tdm__version_reply {
    uint64_t version; /* committed; 0: none */
    uint64_t epoch;   /* of the update asked about, or the latest */
    uint64_t update_version;
    enum tdm__update_outcome outcome; /* of the update asked about; 0: not remembered */
    bool lost;
    struct tdm__hash hash; /* of the committed version */
};

/* Asks this process's daemon, and again after an answer that leaves the outcome open, until the
 * deadline.  TDM_OK, or the refusal in the words of colocate/weights/commit_core.h. */
tdm_status tdm__version_service_call(tdm_runtime *runtime, const char *model,
                                     const struct tdm__version_request *request, int64_t timeout_ms,
                                     struct tdm__version_reply *answer_out);

#endif
