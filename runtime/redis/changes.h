/* changes.h - the subscription: tells the watchers which keys changed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_CHANGES_H
#define TDM_REDIS_CHANGES_H

#include "runtime/redis/address.h"
#include "runtime/store/watchers.h"

#include <stdbool.h>

/* A connection of its own: on a subscribed one no other command is possible. */
struct tdm__redis_changes;

/* What a subscription tells, and to whom; all is borrowed. */
struct tdm__redis_changes_options {
    const char *base; /* prefix of all keys */
    const struct tdm__watchers *watchers;
    struct tdm__outcomes *outcomes;
    void (*subscribed)(void *arg); /* for the first time */
    void *arg;
};
tdm_status tdm__redis_changes_create(struct tdm__loop *loop,
                                     const struct tdm__redis_address *address,
                                     const struct tdm__redis_changes_options *options,
                                     struct tdm__redis_changes **changes_out);
void tdm__redis_changes_destroy(struct tdm__redis_changes *changes); /* NULL is allowed */
/* Has it ever been?  From that moment on no change is missed without its prefix being told. */
bool tdm__redis_changes_was_subscribed(const struct tdm__redis_changes *changes);

#endif
