/* subscription.c - a subscription to the channel of changed keys, which notifies the watchers. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The subscription is active from the confirmation of SUBSCRIBE until its connection is lost. After
 * a reconnect all watchers are notified with their prefix, because changes may have been missed.
 *
 * A silent subscription may be idle or dead. So SUBSCRIBE is sent again every few seconds: the
 * server ignores the repetition, and its confirmation shows that the server works. (PING would do,
 * but hiredis 0.14 does not match its reply on a subscribed connection.) Everything runs on the
 * loop's thread. */
#include "runtime/redis/subscription.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/redis/command.h"
#include "runtime/redis/connection.h"
#include "runtime/redis/reply.h"
#include "runtime/store/check.h"

#include <stdlib.h>
#include <string.h>

/* Milliseconds between two SUBSCRIBE commands of a subscription. */
enum { HEARTBEAT_MS = 5000 };

/* A subscription to the channel of changed keys, which may be reconnecting. */
struct tdm__redis_subscription {
    struct tdm__redis_connection *connection; /* Connection to the Redis server (owned). */
    /* Timer at which SUBSCRIBE is sent again (owned). */
    struct tdm__timer *timer;
    /* The encoded SUBSCRIBE command that is sent (owned). */
    struct tdm__redis_command subscribe_command;
    struct tdm__redis_subscription_options options; /* Options that the owner has passed. */
    bool subscribed;                                /* Whether the subscription is active now. */
    /* Whether the subscription has been active at least once. */
    bool was_subscribed;
    /* Whether the server has replied since SUBSCRIBE was last sent. */
    bool confirmed;
    struct tdm__redis_host master; /* The master to follow; its name is "" if there is none. */
};

/* Notifies the watchers of each changed key in `lines`, a message with one key per line. Text that
 * is not a key is ignored. */
static void notify_changed_keys(struct tdm__redis_subscription *subscription, const char *lines)
{
    char key[TDM__STORE_KEY_BYTES_MAX + 1];

    while (*lines != '\0') {
        size_t bytes = strcspn(lines, "\n");

        if (tdm__store_is_key(lines, bytes)) {
            memcpy(key, lines, bytes);
            key[bytes] = '\0';
            tdm__watchers_notify_key(subscription->options.watchers,
                                     subscription->options.completions, key);
        }
        lines += bytes + (lines[bytes] == '\n');
    }
}

/* Handles a message of the channel, the confirmation of SUBSCRIBE, or an error. */
static void on_message(redisAsyncContext *context, void *reply_object, void *arg)
{
    struct tdm__redis_subscription *subscription = arg;
    const redisReply *reply = reply_object;
    const char *lines;

    (void)context;
    if (reply == NULL) {
        return; /* The connection is ending; on_lost() runs next. */
    }
    lines = tdm__redis_reply_message(reply);
    if (lines != NULL) {
        notify_changed_keys(subscription, lines);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        tdm__redis_connection_drop(subscription->connection, reply->str);
        return;
    }
    subscription->confirmed = true;
    if (subscription->subscribed) {
        return;
    }
    subscription->subscribed = true;
    if (subscription->was_subscribed) {
        tdm__watchers_notify_all(subscription->options.watchers, subscription->options.completions);
    } else {
        subscription->was_subscribed = true;
        subscription->options.subscribed(subscription->options.arg);
    }
}

/* Sends SUBSCRIBE and sets the timer for its repetition. */
static void send_subscribe(struct tdm__redis_subscription *subscription)
{
    subscription->confirmed = false;
    TDM_ASSERT(tdm__timer_set(subscription->timer, tdm__clock_ms() + HEARTBEAT_MS) == TDM_OK);
    if (!tdm__redis_connection_send(subscription->connection, on_message, subscription,
                                    subscription->subscribe_command.text,
                                    subscription->subscribe_command.bytes)) {
        tdm__redis_connection_drop(subscription->connection, "cannot send SUBSCRIBE");
    }
}

/* Leads the connection to the master to follow, if sentinels have named another one for it. Returns
 * whether the connection ends. Sentinels that are cut off from each other name different ones. */
static bool subscription_change_master(struct tdm__redis_subscription *subscription)
{
    const struct tdm__redis_host *own = tdm__redis_connection_master(subscription->connection);

    if (subscription->master.name[0] == '\0' || own->name[0] == '\0' ||
        tdm__redis_host_equal(own, &subscription->master)) {
        return false;
    }
    tdm__redis_connection_use_master(subscription->connection, &subscription->master,
                                     "another server is the master now");
    return true;
}

/* Runs every HEARTBEAT_MS: repeats SUBSCRIBE, or drops a connection on which the server has not
 * replied since the last one, or that is at another master than the commands. */
static void on_heartbeat(void *arg)
{
    struct tdm__redis_subscription *subscription = arg;

    if (subscription_change_master(subscription)) {
        return;
    }
    if (subscription->confirmed) {
        send_subscribe(subscription);
    } else {
        tdm__redis_connection_drop(subscription->connection, "no answer to SUBSCRIBE");
    }
}

/* Sends SUBSCRIBE on the new connection. */
static void on_ready(void *arg)
{
    send_subscribe(arg);
}

/* Notes that the subscription is not active, and stops its timer until the connection is ready
 * again. */
static void on_lost(void *arg)
{
    struct tdm__redis_subscription *subscription = arg;

    subscription->subscribed = false;
    tdm__timer_clear(subscription->timer);
}

/* What the connection tells the subscription. */
static const struct tdm__redis_connection_ops connection_ops = {.ready = on_ready, .lost = on_lost};

tdm_status tdm__redis_subscription_create(struct tdm__loop *loop,
                                          const struct tdm__redis_address *address,
                                          const struct tdm__redis_subscription_options *options,
                                          struct tdm__redis_subscription **subscription_out)
{
    struct tdm__redis_subscription *subscription = calloc(1, sizeof(*subscription));
    tdm_status status;

    if (subscription == NULL) {
        return tdm__fail(TDM_E_NOMEM, "redis subscription");
    }
    subscription->options = *options;
    status = tdm__redis_command_subscribe(options->key_prefix, &subscription->subscribe_command);
    if (status == TDM_OK) {
        status = tdm__timer_create(loop, on_heartbeat, subscription, &subscription->timer);
    }
    if (status == TDM_OK) {
        status = tdm__redis_connection_create(loop, address, &connection_ops, subscription,
                                              &subscription->connection);
    }
    if (status != TDM_OK) {
        tdm__redis_subscription_destroy(subscription);
        return status;
    }
    *subscription_out = subscription;
    return TDM_OK;
}

void tdm__redis_subscription_destroy(struct tdm__redis_subscription *subscription)
{
    if (subscription == NULL) {
        return;
    }
    if (subscription->connection != NULL) {
        tdm__redis_connection_destroy(subscription->connection);
    }
    tdm__timer_destroy(subscription->timer);
    tdm__redis_command_free(&subscription->subscribe_command);
    free(subscription);
}

void tdm__redis_subscription_follow(struct tdm__redis_subscription *subscription,
                                    const struct tdm__redis_host *master)
{
    if (subscription == NULL) {
        return;
    }
    subscription->master = *master;
    (void)subscription_change_master(subscription);
}

bool tdm__redis_subscription_was_subscribed(const struct tdm__redis_subscription *subscription)
{
    return subscription->was_subscribed;
}
