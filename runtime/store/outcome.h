/* outcome.h - answers of a store on their way to the callbacks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_STORE_OUTCOME_H
#define TDM_STORE_OUTCOME_H

#include "runtime/store.h"
#include "runtime/store/records.h"

/* A callback must not run inside the call that asked for it, nor inside a library's own
 * callback (it may run the loop again, and hiredis would be entered twice).  So every answer
 * waits in this queue for the next round of the loop, with the words of its failure. */
struct tdm__outcomes;
struct tdm__outcome;

tdm_status tdm__outcomes_create(struct tdm__loop *loop, struct tdm__outcomes **outcomes_out);
/* Answers what still waits with TDM_E_STORE and drops changes.  Allowed from a callback. */
void tdm__outcomes_destroy(struct tdm__outcomes *outcomes);

/* Made when the question is asked, so that giving the answer cannot fail.  Asking has no status
 * of its own: being out of memory for these few bytes ends the process. */
struct tdm__outcome *tdm__outcome_of_read(tdm__store_read_fn *fn, void *arg);
struct tdm__outcome *tdm__outcome_of_commit(tdm__store_commit_fn *fn, void *arg);

/* Of a commit that put something, once it is known; a failure forgets it. */
void tdm__outcome_set_version(struct tdm__outcome *outcome, uint64_t version);

/* Takes both; `records` may be NULL.  A failure's detail is taken from tdm_error_detail(). */
void tdm__outcomes_add(struct tdm__outcomes *outcomes, struct tdm__outcome *outcome,
                       tdm_status status, struct tdm__records *records);
void tdm__outcomes_add_change(struct tdm__outcomes *outcomes, tdm__store_changed_fn *fn,
                              void *arg, const char *key);

#endif
