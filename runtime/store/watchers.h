/* watchers.h - who wants to hear of which keys. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_STORE_WATCHERS_H
#define TDM_STORE_WATCHERS_H

#include "runtime/store.h"
#include "runtime/store/completion.h"

struct tdm__watcher;

/* All zero is empty. */
struct tdm__watchers {
    struct tdm__watcher *first; /* owned */
};

/* TDM_E_EXISTS for a prefix that is watched already. */
tdm_status tdm__watchers_add(struct tdm__watchers *watchers, const char *prefix,
                             tdm__store_changed_fn *fn, void *arg);
void tdm__watchers_notify_key(const struct tdm__watchers *watchers,
                              struct tdm__store_completions *outcomes, const char *key);
/* Changes may have been missed: tells each its prefix. */
void tdm__watchers_notify_all(const struct tdm__watchers *watchers,
                              struct tdm__store_completions *outcomes);
void tdm__watchers_fini(struct tdm__watchers *watchers);

#endif
