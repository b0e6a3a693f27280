/* commit_set.h - applies one step of the commit protocol to the records of several models at once.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COMMIT_SET_H
#define TDM_COLOCATE_WEIGHTS_COMMIT_SET_H

#include "colocate/weights/commit.h"
#include "colocate/weights/version_set.h"

/* The request about one model of a set. */
struct tdm__version_set_item {
    const char *model;                   /* Name of the model; borrowed. */
    struct tdm__version_request request; /* BEGIN or DECIDE; all items of a set have one kind. */
};

/* Called once with the result of a set of requests, on the loop's thread. `records` are the records
 * as stored afterwards, in the order of the items; they are borrowed until the callback returns,
 * and NULL on failure. `detail` then describes the failure and names the record. */
typedef void tdm__version_set_done_fn(void *arg, tdm_status status, const char *detail,
                                      const struct tdm__version_record *records, uint32_t count);

/* Submits a set of requests about different models, which one transaction applies to all records or
 * to none (version_set.h). The requests and their lists are copied. Otherwise like
 * tdm__version_client_submit(): unless this function fails, `fn` runs exactly once, later; and
 * after TDM_E_TIMEOUT and TDM_E_STORE the caller repeats the whole set. Requests about single
 * models may run at the same time; the store decides which commit is first. */
tdm_status tdm__version_client_submit_set(struct tdm__version_client *versions,
                                          const struct tdm__version_set_item *items, uint32_t count,
                                          int64_t deadline_ms, tdm__version_set_done_fn *fn,
                                          void *arg);

#endif
