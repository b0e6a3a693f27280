/* failing_store.h - a store around another one that fails when a test wants it to. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_FAILING_STORE_H
#define TDM_TESTS_SUPPORT_FAILING_STORE_H

#include "runtime/store.h"

/* A store that fails with TDM_E_TIMEOUT, for which callers do not retry. */
struct failing_store {
    struct tdm__store store;  /* The store's interface; must be the first field. */
    struct tdm__store *inner; /* The store that does the work (borrowed). */
    /* Reads whose first pattern is this one fail; the next field says how many. */
    const char *fail_pattern;
    uint32_t fail_reads_count;
    uint32_t lost_replies; /* Number of next commits that succeed but whose replies are lost. */
};

/* Fills `deaf`. `inner` is borrowed, and nothing has to be closed. */
void failing_store_open(struct failing_store *deaf, struct tdm__store *inner);

#endif
