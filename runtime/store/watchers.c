/* watchers.c - the functions to call when keys with a prefix change. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/watchers.h"

#include "runtime/error.h"
#include "runtime/store/check.h"

#include <stdlib.h>
#include <string.h>

/* One watched key prefix with the function to call. */
struct tdm__watcher {
    struct tdm__watcher *next; /* Next watcher of the store; NULL at the end. */
    /* Function to call when a key with the prefix changes. */
    tdm__store_changed_fn *fn;
    void *arg;     /* First argument of `fn`. */
    char prefix[]; /* Watched key prefix, ending with NUL; "" matches every key. */
};

tdm_status tdm__watchers_add(struct tdm__watchers *watchers, const char *prefix,
                             tdm__store_changed_fn *fn, void *arg)
{
    size_t prefix_bytes = strlen(prefix) + 1;
    struct tdm__watcher *watcher;

    TDM_TRY(tdm__store_check_prefix(prefix));
    for (watcher = watchers->first; watcher != NULL; watcher = watcher->next) {
        if (strcmp(watcher->prefix, prefix) == 0) {
            return tdm__fail(TDM_E_EXISTS, "prefix \"%s\" is watched already", prefix);
        }
    }
    watcher = malloc(sizeof(*watcher) + prefix_bytes);
    if (watcher == NULL) {
        return tdm__fail(TDM_E_NOMEM, "watcher of \"%s\"", prefix);
    }
    memcpy(watcher->prefix, prefix, prefix_bytes);
    watcher->fn = fn;
    watcher->arg = arg;
    watcher->next = watchers->first;
    watchers->first = watcher;
    return TDM_OK;
}

void tdm__watchers_notify_key(const struct tdm__watchers *watchers,
                              struct tdm__store_completions *completions, const char *key)
{
    const struct tdm__watcher *watcher;

    for (watcher = watchers->first; watcher != NULL; watcher = watcher->next) {
        if (strncmp(key, watcher->prefix, strlen(watcher->prefix)) == 0) {
            tdm__store_completions_add_change(completions, watcher->fn, watcher->arg, key);
        }
    }
}

void tdm__watchers_notify_all(const struct tdm__watchers *watchers,
                              struct tdm__store_completions *completions)
{
    const struct tdm__watcher *watcher;

    for (watcher = watchers->first; watcher != NULL; watcher = watcher->next) {
        tdm__store_completions_add_change(completions, watcher->fn, watcher->arg, watcher->prefix);
    }
}

void tdm__watchers_fini(struct tdm__watchers *watchers)
{
    while (watchers->first != NULL) {
        struct tdm__watcher *watcher = watchers->first;

        watchers->first = watcher->next;
        free(watcher);
    }
}
