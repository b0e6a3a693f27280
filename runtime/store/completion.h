/* completion.h - answers of a store on their way to the callbacks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_COMPLETION_H
#define TDM_RUNTIME_STORE_COMPLETION_H

#include "runtime/store.h"
#include "runtime/store/records.h"

/* A callback must not run inside the call that asked for it, nor inside a library's own
 * callback (it may run the loop again, and hiredis would be entered twice).  So every answer
 * waits in this queue for the next round of the loop, with the words of its failure. */
struct tdm__store_completions;
struct tdm__store_completion;

tdm_status tdm__store_completions_create(struct tdm__loop *loop,
                                         struct tdm__store_completions **outcomes_out);
/* Answers what still waits with TDM_E_STORE and drops changes.  Allowed from a callback. */
void tdm__store_completions_destroy(struct tdm__store_completions *outcomes);

/* Made when the question is asked, so that giving the answer cannot fail.  Asking has no status
 * of its own: being out of memory for these few bytes ends the process. */
struct tdm__store_completion *tdm__store_completion_of_read(tdm__store_read_fn *fn, void *arg);
struct tdm__store_completion *tdm__store_completion_of_commit(tdm__store_commit_fn *fn, void *arg);

/* Of a commit that put something, once it is known; a failure forgets it. */
void tdm__store_completion_set_version(struct tdm__store_completion *outcome, uint64_t version);

/* Takes both; `records` may be NULL.  A failure's detail is taken from tdm_error_detail(). */
void tdm__store_completions_add(struct tdm__store_completions *outcomes,
                                struct tdm__store_completion *outcome, tdm_status status,
                                struct tdm__store_records *records);
void tdm__store_completions_add_change(struct tdm__store_completions *outcomes,
                                       tdm__store_changed_fn *fn, void *arg, const char *key);

#endif
