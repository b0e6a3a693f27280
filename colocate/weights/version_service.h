/* version_service.h - the daemon's service "version": the commit protocol for its processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_VERSION_SERVICE_H
#define TDM_COLOCATE_WEIGHTS_VERSION_SERVICE_H

#include "colocate/weights/commit_set.h"
#include "runtime/service.h"

#include <tandem/runtime.h>

/* Workers and drivers have no connection to the store, so their daemon carries out their
 * requests.
 *
 * The methods are version.request, and version.request_set for models that are committed together.
 * runtime/messages/weights.def declares their requests and replies. */

/* Table of functions of the daemon's service "version". */
extern const struct tdm__service_ops tdm__version_service;

/* Creates the state of the service "version", which handles requests on the thread of `loop`.
 * Borrows the loop and the store. tdm__version_service.destroy frees it. */
tdm_status tdm__version_service_create(struct tdm__loop *loop, struct tdm__store *store,
                                       void **self_out);

/* The reply to a request, as far as its callers need it. */
struct tdm__version_reply {
    /* Version number of the model's committed weights; 0 if none were committed. */
    uint64_t version;
    /* Epoch of the update that the request named, or of the latest update if the named one is not
     * remembered. */
    uint64_t epoch;
    uint64_t update_version; /* Version number of the update to which `epoch` belongs. */
    /* Outcome of the update that the request named; 0 if that update is not remembered. */
    enum tdm__update_outcome outcome;
    enum tdm__version_bytes bytes; /* Whether a process holds the bytes of the committed version. */
    struct tdm__hash hash;         /* Hash of the committed weights. */
};

/* Sends a request of the commit protocol about `model` to this node's daemon and blocks until the
 * reply. Sends it again if the store or the daemon did not reply, for `timeout_ms` milliseconds in
 * all. Returns TDM_OK or the refusal as documented in colocate/weights/commit_core.h. */
tdm_status tdm__version_service_call(tdm_runtime *runtime, const char *model,
                                     const struct tdm__version_request *request, int64_t timeout_ms,
                                     struct tdm__version_reply *reply_out);

/* Sends a set of requests about `count` models (colocate/weights/version_set.h), which take effect
 * for all models or for none, and fills `replies_out` in their order. Otherwise like
 * tdm__version_service_call(). */
tdm_status tdm__version_service_call_set(tdm_runtime *runtime,
                                         const struct tdm__version_set_item *items, uint32_t count,
                                         int64_t timeout_ms,
                                         struct tdm__version_reply *replies_out);

/* What a new source of updates needs to know of the record that earlier updates have left. */
struct tdm__version_summary {
    uint64_t version;         /* Committed version; 0 if there is none. */
    uint64_t version_highest; /* Highest version number that any update of the model got. */
    struct tdm__id latest;    /* ID of the latest update; all zero if there never was one. */
    /* Outcome of the latest update; 0 if there never was one. */
    enum tdm__update_outcome outcome;
    /* Members of the latest update that nobody has named dead; owned by the caller, who frees the
     * array with free(). */
    struct tdm__member *living;
    uint32_t living_count; /* Number of elements of `living`. */
};

/* Reads the record of `model` and blocks until the reply, at most `timeout_ms` milliseconds. The
 * caller frees `living`. */
tdm_status tdm__version_service_read(tdm_runtime *runtime, const char *model, int64_t timeout_ms,
                                     struct tdm__version_summary *summary_out);

#endif
