/* failing_store.c - a store around another one that fails when a test wants it to. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/failing_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- reads ------------------------------------------------------------------------------ */

struct unheard {
    tdm__store_read_fn *fn;
    void *arg;
};

static void on_unheard(void *arg, tdm_status status, const struct tdm__store_record *records,
                       uint32_t records_count)
{
    struct unheard unheard = *(struct unheard *)arg;

    (void)status;
    (void)records;
    (void)records_count;
    free(arg);
    unheard.fn(unheard.arg, TDM_E_TIMEOUT, NULL, 0);
}

static void deaf_read(struct tdm__store *store, const char *const *patterns,
                      uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                      void *arg)
{
    struct failing_store *deaf = (struct failing_store *)store;
    struct unheard *unheard;

    if (deaf->fail_reads_count == 0 || strcmp(patterns[0], deaf->fail_pattern) != 0) {
        deaf->inner->ops->read(deaf->inner, patterns, patterns_count, deadline_ms, fn, arg);
        return;
    }
    deaf->fail_reads_count--;
    unheard = malloc(sizeof(*unheard));
    assert_non_null(unheard);
    *unheard = (struct unheard){fn, arg};
    deaf->inner->ops->read(deaf->inner, NULL, 0, deadline_ms, on_unheard, unheard);
}

/* ---- commits ---------------------------------------------------------------------------- */

struct lost {
    tdm__store_commit_fn *fn;
    void *arg;
};

static void on_lost(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    struct lost lost = *(struct lost *)arg;

    static const struct tdm__store_committed nothing;

    (void)committed;
    free(arg);
    assert_int_equal(status, TDM_OK);
    lost.fn(lost.arg, TDM_E_TIMEOUT, &nothing);
}

static void deaf_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                        uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                        void *arg)
{
    struct failing_store *deaf = (struct failing_store *)store;
    struct lost *lost;

    if (deaf->lost_replies == 0) {
        deaf->inner->ops->commit(deaf->inner, writes, writes_count, deadline_ms, fn, arg);
        return;
    }
    deaf->lost_replies--;
    lost = malloc(sizeof(*lost));
    assert_non_null(lost);
    *lost = (struct lost){fn, arg};
    deaf->inner->ops->commit(deaf->inner, writes, writes_count, deadline_ms, on_lost, lost);
}

static void deaf_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                       int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    struct tdm__store *inner = ((struct failing_store *)store)->inner;

    inner->ops->renew(inner, renewal, deadline_ms, fn, arg);
}

static const struct tdm__store_ops deaf_ops = {
    .name = "deaf", .read = deaf_read, .commit = deaf_commit, .renew = deaf_renew};

void failing_store_open(struct failing_store *deaf, struct tdm__store *inner)
{
    *deaf = (struct failing_store){.store = {.ops = &deaf_ops}, .inner = inner};
}
