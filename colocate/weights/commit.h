/* commit.h - the commit protocol of weight versions, run on the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_H

#include "colocate/weights/commit_core.h"
#include "runtime/store.h"

enum { TDM__MODEL_NAME_BYTES_MAX = 128 };

/* The records of all models, as one process asks for them.  What is asked about a model while a
 * transaction of it is under way waits for the next one, which does all of it in order: the
 * votes of many members are one write.  Each request gets its own answer, and a refused one
 * changes nothing for the others.  One thread: the loop's. */
struct tdm__version_client;

/* Borrows both. */
tdm_status tdm__version_client_open(struct tdm__loop *loop, struct tdm__store *store,
                                    struct tdm__version_client **versions_out);
/* Requests that wait get TDM_E_STORE; those under way are answered when the store has answered
 * or is closed.  NULL is allowed. */
void tdm__version_client_close(struct tdm__version_client *versions);

/* The answer to one request.  `record`, as it is stored after the request, is borrowed until
 * the callback returns, and NULL on failure; `detail` then says what failed.  The answer to
 * each kind:
 *
 *     BEGIN      record->update: its epoch and version
 *     DECIDE     tdm__version_outcome(record, &id): what everyone else gets, too
 *     READ       version 0: never any; `lost`: never serve it
 *     FORGET     the record is gone, as if there had never been an update
 *     others     done, or done before */
typedef void tdm__version_done_fn(void *arg, tdm_status status, const char *detail,
                                  const struct tdm__version_record *record);

/* Asks for one step of docs/protocols/commit.md about `model` (1 to 127 printable bytes without
 * '*' and '/'), until `deadline_ms` on tdm__clock_ms().  Copies the request and its lists; `fn`
 * runs exactly once, later, on the loop's thread, unless this call fails.  TDM_E_TIMEOUT and
 * TDM_E_STORE leave open whether it was done: ask again, with the same update id.  Requests
 * that share a transaction share its fate, and the latest deadline of those that it began
 * with: an answer may come later than it was wanted.  Those that came to it with a later one
 * get another transaction. */
tdm_status tdm__version_client_submit(struct tdm__version_client *versions, const char *model,
                                      int64_t deadline_ms,
                                      const struct tdm__version_request *request,
                                      tdm__version_done_fn *fn, void *arg);

#endif
