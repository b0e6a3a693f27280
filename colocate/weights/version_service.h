/* version_service.h - the daemon's service "version": the commit protocol for its processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_VERSION_SERVICE_H
#define TDM_COLOCATE_WEIGHTS_VERSION_SERVICE_H

#include "colocate/weights/commit.h"
#include "runtime/service.h"

#include <tandem/runtime.h>

/* Workers and drivers have no connection to the store, so their daemon carries out their
 * requests.
 *
 * The method is version.request. runtime/messages/weights.def declares its request and its
 * reply. */

/* Operations of the service; the daemon registers them. */
extern const struct tdm__service_ops tdm__version_service;

/* Creates the service's state, which serves requests on the loop's thread. Borrows the loop and the
 * store. tdm__version_service.destroy frees it. */
tdm_status tdm__version_service_create(struct tdm__loop *loop, struct tdm__store *store,
                                       void **self_out);

/* The reply to a request, as far as its callers need it. */
struct tdm__version_reply {
    uint64_t version; /* Committed version of the model; 0 if none exists. */
    /* Epoch of the update in the request if it is remembered, else of the latest update. */
    uint64_t epoch;
    uint64_t update_version; /* Version number of that update. */
    /* Outcome of the update in the request; 0 if it is not remembered. */
    enum tdm__update_outcome outcome;
    bool lost; /* True if no process holds the bytes of the committed version any more. */
    struct tdm__hash hash; /* Hash of the committed version. */
};

/* Sends the request to this process's daemon and blocks until the reply. Repeats it until the
 * deadline if the store or the daemon did not reply. Returns TDM_OK or the refusal as documented in
 * colocate/weights/commit_core.h. */
tdm_status tdm__version_service_call(tdm_runtime *runtime, const char *model,
                                     const struct tdm__version_request *request, int64_t timeout_ms,
                                     struct tdm__version_reply *reply_out);

#endif
