/* commit.h - applies the requests of the commit protocol to the records in the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_H

#include "colocate/weights/commit_core.h"
#include "runtime/store.h"

/* Size in bytes of a model's name, including the terminating NUL. */
enum { TDM__MODEL_NAME_BYTES_MAX = 128 };
/* Size in bytes of the key of a version record in the store, including the terminating NUL. */
enum { TDM__VERSION_KEY_BYTES = TDM__MODEL_NAME_BYTES_MAX + 8 };

/* Applies the requests of the commit protocol to the version records of all models. Requests that
 * arrive during a transaction on a model's record wait for the next transaction, which applies all
 * of them in order. The votes of many members thus become one write. Each request gets its own
 * reply, and a refused request does not affect the others. Only the loop's thread may use it. */
struct tdm__version_client;

/* Opens a client that applies requests to the version records in `store`, on the thread of `loop`.
 * Borrows the loop and the store. */
tdm_status tdm__version_client_open(struct tdm__loop *loop, struct tdm__store *store,
                                    struct tdm__version_client **versions_out);
/* Closes and frees a version client. Waiting requests are answered with TDM_E_STORE. Requests in a
 * transaction are answered when the store has replied or is closed. NULL is allowed. */
void tdm__version_client_close(struct tdm__version_client *versions);

/* Called once with the result of a request, on the loop's thread. `record` is the record as
 * stored after the request; it is borrowed until the callback returns, and NULL on failure.
 * `detail` then describes the failure. The results of each kind:
 *
 *     BEGIN      record->update has the epoch and the version of the update.
 *     DECIDE     tdm__version_outcome(record, &id) is the outcome, the same for everyone.
 *     READ       Version 0 means none was committed; its `bytes` say whether it is held.
 *     FORGET     The record is deleted, as if there had never been an update.
 *     others     The request was applied now or before. */
typedef void tdm__version_done_fn(void *arg, tdm_status status, const char *detail,
                                  const struct tdm__version_record *record);

/* Submits one request of docs/protocols/commit.md about `model`, whose name has 1 to 127
 * printable bytes without '*' and '/'. The deadline is in milliseconds of tdm__clock_ms(). The
 * request and its lists are copied. Unless this function fails, `fn` runs exactly once, later,
 * on the loop's thread.
 *
 * TDM_E_TIMEOUT and TDM_E_STORE leave open whether the request was applied; the caller repeats
 * it with the same update ID. Requests that share a transaction share its result and the latest
 * deadline of those with which it began, so a reply may come after a request's own deadline.
 * Requests that joined it with a later deadline get another transaction. */
tdm_status tdm__version_client_submit(struct tdm__version_client *versions, const char *model,
                                      int64_t deadline_ms,
                                      const struct tdm__version_request *request,
                                      tdm__version_done_fn *fn, void *arg);

/* For commit_set.h: the store of a version client. */
struct tdm__store *tdm__version_client_store(const struct tdm__version_client *versions);

/* Checks the name of a model, see tdm__version_client_submit(), and writes the key of its version
 * record, "weight/MODEL". */
tdm_status tdm__version_record_key(const char *model, char key_out[TDM__VERSION_KEY_BYTES]);

/* Lets a request refer to copies of its lists of members, because the caller's lists may be gone
 * when a transaction runs. The caller frees `lists_out` with free(). */
tdm_status tdm__version_request_copy_lists(struct tdm__version_request *request,
                                           struct tdm__member **lists_out);

#endif
