/* subscription.h - the subscription: tells the watchers which keys changed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_SUBSCRIPTION_H
#define TDM_RUNTIME_REDIS_SUBSCRIPTION_H

#include "runtime/redis/address.h"
#include "runtime/store/watchers.h"

#include <stdbool.h>

/* A connection of its own: on a subscribed one no other command is possible. */
struct tdm__redis_subscription;

/* What a subscription tells, and to whom; all is borrowed. */
struct tdm__redis_subscription_options {
    const char *base; /* prefix of all keys */
    const struct tdm__watchers *watchers;
    struct tdm__store_completions *outcomes;
    void (*subscribed)(void *arg); /* for the first time */
    void *arg;
};
tdm_status tdm__redis_subscription_create(struct tdm__loop *loop,
                                          const struct tdm__redis_address *address,
                                          const struct tdm__redis_subscription_options *options,
                                          struct tdm__redis_subscription **changes_out);
void tdm__redis_subscription_destroy(struct tdm__redis_subscription *changes); /* NULL is allowed */
/* Has it ever been?  From that moment on no change is missed without its prefix being told. */
bool tdm__redis_subscription_was_subscribed(const struct tdm__redis_subscription *changes);

#endif
