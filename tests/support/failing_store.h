/* failing_store.h - a store around another one that fails when a test wants it to. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_FAILING_STORE_H
#define TDM_TESTS_SUPPORT_FAILING_STORE_H

#include "runtime/store.h"

/* All failures are TDM_E_TIMEOUT: whoever asks is not asked to try again. */
struct failing_store {
    struct tdm__store store; /* first */
    struct tdm__store *inner;
    const char *fail_pattern; /* the first pattern of a read; so many of those to come fail: */
    uint32_t fail_reads_count;
    uint32_t lost_replies; /* so many commits to come succeed, and nobody hears of it */
};

/* `inner` is borrowed; there is nothing to close. */
void failing_store_open(struct failing_store *deaf, struct tdm__store *inner);

#endif
