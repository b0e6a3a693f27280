/* commit.h - the commit protocol of weight versions, run on the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_H

#include "colocate/weights/commit_core.h"
#include "runtime/store.h"

enum { TDM__MODEL_NAME_BYTES_MAX = 128 };

/* Where a model's record is, and how long to try. */
struct tdm__version_store {
    struct tdm__loop *loop;
    struct tdm__store *store;
    const char *model;   /* 1 to 127 printable bytes without '*' and '/' */
    int64_t deadline_ms; /* on tdm__clock_ms() */
};

/* The answer to one request.  `record`, as it is stored after the request, is borrowed until
 * the callback returns, and NULL on failure; `detail` then says what failed.  The answer to
 * each kind:
 *
 *     BEGIN      record->update: its epoch and version
 *     DECIDE     tdm__version_outcome(record, &id): what everyone else gets, too
 *     READ       version 0: never any; `lost`: never serve it
 *     others     done, or done before */
typedef void tdm__version_fn(void *arg, tdm_status status, const char *detail,
                             const struct tdm__version_record *record);

/* Asks for one step of docs/protocols/commit.md.  Copies the request and its lists; `fn` runs
 * exactly once, later, on the loop's thread, unless this call fails.  TDM_E_TIMEOUT and
 * TDM_E_STORE leave open whether it was done: ask again, with the same update id. */
tdm_status tdm__version_ask(const struct tdm__version_store *where,
                            const struct tdm__version_request *request, tdm__version_fn *fn,
                            void *arg);

#endif
