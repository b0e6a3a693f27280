/* attempt.c - a transaction that may be made twice, made until its outcome is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/attempt.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "scheduler/records.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATTERNS_MAX = 4 };

struct attempt {
    struct tdm__loop *loop;
    struct tdm__store *store;
    char patterns[PATTERNS_MAX][TDM__STORE_KEY_BYTES];
    uint32_t patterns_count;
    int64_t deadline_ms;
    tdm__txn_body *body;
    tdm__txn_done *done;
    void *arg;
};

static tdm_status attempt_again(struct attempt *attempt);

static tdm_status run_body(void *arg, struct tdm__txn *txn)
{
    const struct attempt *attempt = arg;

    return attempt->body(attempt->arg, txn);
}

static void attempt_done(void *arg, tdm_status status, const char *detail)
{
    struct attempt *attempt = arg;

    if (status == TDM_E_STORE && !attempt->store->closing &&
        tdm__deadline_left(attempt->deadline_ms) > 0 && attempt_again(attempt) == TDM_OK) {
        return;
    }
    attempt->done(attempt->arg, status, detail);
    free(attempt);
}

static tdm_status attempt_again(struct attempt *attempt)
{
    const char *patterns[PATTERNS_MAX];

    for (uint32_t i = 0; i < attempt->patterns_count; i++) {
        patterns[i] = attempt->patterns[i];
    }
    return tdm__txn_run(attempt->loop, attempt->store, patterns, attempt->patterns_count,
                        attempt->deadline_ms, run_body, attempt_done, attempt);
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are tdm__txn_run()'s */
tdm_status tdm__attempt_run(struct tdm__loop *loop, struct tdm__store *store,
                            const char *const *patterns, uint32_t patterns_count,
                            int64_t deadline_ms, tdm__txn_body *body, tdm__txn_done *done,
                            void *arg)
{
    struct attempt *attempt = calloc(1, sizeof(*attempt));
    tdm_status status;

    TDM_ASSERT(patterns_count <= PATTERNS_MAX);
    if (attempt == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a transaction");
    }
    *attempt = (struct attempt){.loop = loop,
                                .store = store,
                                .patterns_count = patterns_count,
                                .deadline_ms = deadline_ms,
                                .body = body,
                                .done = done,
                                .arg = arg};
    for (uint32_t i = 0; i < patterns_count; i++) {
        (void)snprintf(attempt->patterns[i], sizeof(attempt->patterns[i]), "%s", patterns[i]);
    }
    status = attempt_again(attempt);
    if (status != TDM_OK) {
        free(attempt);
    }
    return status;
}
