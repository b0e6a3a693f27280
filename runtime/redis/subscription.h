/* subscription.h - a subscription to the channel of changed keys, which notifies the watchers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_SUBSCRIPTION_H
#define TDM_RUNTIME_REDIS_SUBSCRIPTION_H

#include "runtime/redis/address.h"
#include "runtime/store/watchers.h"

#include <stdbool.h>

/* A subscription to the keys of changed records in Redis. It has its own connection, because a
 * subscribed connection accepts no other commands. */
struct tdm__redis_subscription;

/* Options of a subscription. All pointers are borrowed for the subscription's lifetime. */
struct tdm__redis_subscription_options {
    const char *key_prefix;               /* Prefix of all keys of the cluster. */
    const struct tdm__watchers *watchers; /* Watchers to notify of changed records. */
    /* Queue in which the notifications of watchers wait for the loop. */
    struct tdm__store_completions *completions;
    /* Callback that runs when the subscription is active for the first time. */
    void (*subscribed)(void *arg);
    void *arg; /* Argument of `subscribed`. */
};
/* Creates a subscription and starts to connect to the Redis server. The caller owns the
 * subscription. */
tdm_status tdm__redis_subscription_create(struct tdm__loop *loop,
                                          const struct tdm__redis_address *address,
                                          const struct tdm__redis_subscription_options *options,
                                          struct tdm__redis_subscription **subscription_out);
/* Ends and frees the subscription. NULL is allowed. */
void tdm__redis_subscription_destroy(struct tdm__redis_subscription *subscription);
/* Tells a subscription which master the commands go to, if sentinels name it. A subscription at
 * another server reconnects, because it would not hear of all changes. NULL is allowed. */
void tdm__redis_subscription_follow(struct tdm__redis_subscription *subscription,
                                    const struct tdm__redis_host *master);
/* Returns whether the subscription has ever been active. From that moment on each changed key is
 * reported, or all watched prefixes after a reconnect. */
bool tdm__redis_subscription_was_subscribed(const struct tdm__redis_subscription *subscription);

#endif
