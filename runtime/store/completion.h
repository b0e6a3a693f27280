/* completion.h - the queue of completed store operations whose callbacks have not run yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_COMPLETION_H
#define TDM_RUNTIME_STORE_COMPLETION_H

#include "runtime/store.h"
#include "runtime/store/records.h"

/* A queue of completed store operations whose callbacks have not run yet. A callback must not run
 * inside the call that started the operation, nor inside a callback of hiredis: it may run the loop
 * again, and hiredis would be entered twice. So every completion waits in the queue for the next
 * round of the loop, together with the text of its failure. */
struct tdm__store_completions;
/* One store operation with its callback, and its outcome once that is known. */
struct tdm__store_completion;

/* Creates an empty queue of completions on the event loop `loop`, which is borrowed. */
tdm_status tdm__store_completions_create(struct tdm__loop *loop,
                                         struct tdm__store_completions **completions_out);
/* Frees the queue: runs the callbacks of its operations with TDM_E_STORE and discards its
 * notifications of changes. A callback of the queue may call this function. */
void tdm__store_completions_destroy(struct tdm__store_completions *completions);

/* Creates the completion of a read when the read starts, so that completing it later cannot fail.
 * Running out of memory here ends the process, because starting an operation returns no status. */
struct tdm__store_completion *tdm__store_completion_of_read(tdm__store_read_fn *fn, void *arg);
/* Creates the completion of a commit when the commit starts. Running out of memory ends the
 * process. */
struct tdm__store_completion *tdm__store_completion_of_commit(tdm__store_commit_fn *fn, void *arg);
/* Creates the completion of a renewal when the renewal starts. Running out of memory ends the
 * process. */
struct tdm__store_completion *tdm__store_completion_of_renewal(tdm__store_renewed_fn *fn,
                                                               void *arg);

/* Sets the answer of a successful renewal, which is copied. Its list of members, if the answer has
 * one, is passed to tdm__store_completions_add(). */
void tdm__store_completion_set_renewed(struct tdm__store_completion *completion,
                                       const struct tdm__store_renewed *renewed);
/* Sets the version that a successful commit gave its records. The version is ignored if the commit
 * fails. */
void tdm__store_completion_set_version(struct tdm__store_completion *completion, uint64_t version);

/* Adds a completed operation to the queue, which owns `completion` and `records` from now on.
 * `records` may be NULL; those of a commit that failed with TDM_E_CONFLICT are its losers. The text
 * of a failure is taken from tdm_error_detail(). */
void tdm__store_completions_add(struct tdm__store_completions *completions,
                                struct tdm__store_completion *completion, tdm_status status,
                                struct tdm__store_records *records);
/* Adds the notification that the record `key` has changed to the queue; its callback is fn(arg,
 * key). */
void tdm__store_completions_add_change(struct tdm__store_completions *completions,
                                       tdm__store_changed_fn *fn, void *arg, const char *key);

#endif
