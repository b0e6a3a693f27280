/* watchers.h - the functions to call when keys with a prefix change. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_STORE_WATCHERS_H
#define TDM_STORE_WATCHERS_H

#include "runtime/store.h"
#include "runtime/store/completion.h"

/* One watched key prefix with the function to call. */
struct tdm__watcher;

/* The watchers of one store. All zeros is an empty list. */
struct tdm__watchers {
    /* Singly linked list of watchers (owned); NULL if empty. */
    struct tdm__watcher *first;
};

/* Adds a watcher, which calls `fn` with `arg` when a key that begins with `prefix` changes. Returns
 * TDM_E_EXISTS if the prefix is watched already. */
tdm_status tdm__watchers_add(struct tdm__watchers *watchers, const char *prefix,
                             tdm__store_changed_fn *fn, void *arg);
/* Queues a notification for each watcher whose prefix `key` begins with. */
void tdm__watchers_notify_key(const struct tdm__watchers *watchers,
                              struct tdm__store_completions *completions, const char *key);
/* Queues a notification for every watcher with its own prefix as the key, because changes may have
 * been missed. */
void tdm__watchers_notify_all(const struct tdm__watchers *watchers,
                              struct tdm__store_completions *completions);
/* Frees all watchers of the list. */
void tdm__watchers_fini(struct tdm__watchers *watchers);

#endif
