/* store.c - the store in Redis: each operation is one call of a library function. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An operation waits (no connection, or the library is being loaded, or a session opened), is sent,
 * and ends with its reply or at its deadline. When a connection ends, its sent operations wait
 * again and are sent again unchanged. That is safe: a read changes nothing, and a commit carries
 * its session and number. If the server does not know the session, a commit that was sent once
 * waits for a new session; one that was sent more often ends without a known outcome. An operation
 * whose deadline passed while it was sent stays in the list without an outcome until hiredis has
 * called its callback.
 *
 * An error reply of the server is reported after REFUSED_MS, because the caller may otherwise retry
 * at once in a busy loop.
 *
 * Replies arrive in the order of the commands, so the head of `sent` is the oldest. If it has had
 * no reply for ATTEMPT_MS, the connection is dropped. Everything runs on the loop's thread; only
 * opening blocks. functions.c specifies the commands, runtime/store.h the interface. */
#include "runtime/redis/store.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/redis/functions.h"
#include "runtime/redis/probe.h"
#include "runtime/redis/reply.h"
#include "runtime/redis/store_state.h"
#include "runtime/signals.h"
#include "runtime/store/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time limits and sizes of the store in Redis. */
enum {
    /* Milliseconds to wait for the server's reply before the connection is dropped. */
    ATTEMPT_MS = 5000,
    REFUSED_MS = 50, /* Milliseconds by which an error reply of the server is delayed. */
};

/* Sends the store's waiting operations as long as the connection, the subscription, the library and
 * the session allow it. */
static void redis_send_waiting(struct redis_store *redis);

/* ---- operations ------------------------------------------------------------------------- */

/* Sets the store's timer to `at_ms` on CLOCK_MONOTONIC, unless it fires earlier already. */
static void redis_arm_timer(struct redis_store *redis, int64_t at_ms)
{
    if (at_ms < redis->timer_ms) {
        redis->timer_ms = at_ms;
        TDM_ASSERT(tdm__timer_set(redis->timer, at_ms) == TDM_OK);
    }
}

/* Frees an operation that is in no list. */
static void operation_free(struct operation *operation)
{
    tdm__redis_command_free(&operation->command);
    free(operation->refusal);
    free(operation);
}

/* Reports the outcome of an operation to the user of the store. The operation itself is not freed.
 */
static void operation_complete(struct operation *operation, tdm_status status,
                               struct tdm__store_records *records)
{
    tdm__redis_commit_session_settle(&operation->redis->session, &operation->numbered);
    tdm__store_completions_add(operation->redis->completions, operation->completion, status,
                               records);
    operation->completion = NULL;
}

/* Fails an operation whose deadline has passed, with the connection's trouble in the message. */
static void operation_fail_deadline(struct operation *operation)
{
    struct redis_store *redis = operation->redis;
    const char *trouble = tdm__redis_connection_trouble(redis->connection);

    operation_complete(operation,
                       tdm__fail(TDM_E_STORE, "Redis at %s: no answer by the deadline%s%s",
                                 redis->address.text, trouble[0] != '\0' ? ": " : "", trouble),
                       NULL);
}

/* Inserts an operation into the store's list `waiting` by its sequence. */
static void operation_enqueue(struct operation *operation)
{
    struct redis_store *redis = operation->redis;
    struct operation *other;

    TAILQ_FOREACH_REVERSE(other, &redis->waiting, operation_list, entry)
    {
        if (other->sequence < operation->sequence) {
            TAILQ_INSERT_AFTER(&redis->waiting, other, operation, entry);
            return;
        }
    }
    TAILQ_INSERT_HEAD(&redis->waiting, operation, entry);
}

/* Adds an operation to the store and tries to send it. `status` is the result of encoding its
 * command. While the store is closing the operation fails, because a callback may start one when
 * there is no connection any more. */
static void operation_submit(struct redis_store *redis, struct operation *operation,
                             tdm_status status)
{
    if (status == TDM_OK && redis->store.closing) {
        status = tdm__fail(TDM_E_STORE, "the store was closed");
    }
    if (status != TDM_OK) {
        operation_complete(operation, status, NULL);
        operation_free(operation);
        return;
    }
    operation->sequence = operation->kind == OPERATION_RENEW ? 0 : ++redis->last_sequence;
    operation_enqueue(operation);
    redis_arm_timer(redis, operation->deadline_ms);
    redis_send_waiting(redis);
}

/* Allocates an operation of the store. Running out of memory ends the process. */
static struct operation *operation_create(struct redis_store *redis, enum operation_kind kind,
                                          struct tdm__store_completion *completion,
                                          int64_t deadline_ms)
{
    struct operation *operation = calloc(1, sizeof(*operation));

    TDM_ASSERT(operation != NULL);
    operation->redis = redis;
    operation->kind = kind;
    operation->completion = completion;
    operation->deadline_ms = deadline_ms;
    return operation;
}

/* ---- replies ---------------------------------------------------------------------------- */

/* Fails all waiting operations of the store. */
static void redis_fail_waiting(struct redis_store *redis, tdm_status status)
{
    while (!TAILQ_EMPTY(&redis->waiting)) {
        struct operation *operation = TAILQ_FIRST(&redis->waiting);

        TAILQ_REMOVE(&redis->waiting, operation, entry);
        operation_complete(operation, status, NULL);
        operation_free(operation);
    }
}

/* Handles the server's reply to FUNCTION LOAD: sends the waiting operations, or fails them. */
static void on_load_reply(struct redis_store *redis, const redisReply *reply)
{
    tdm_status status;

    redis->loading = false;
    if (reply == NULL) {
        /* The next operation that needs the library loads it again. */
        return;
    }
    status = tdm__redis_reply_loaded(reply);
    if (status == TDM_OK) {
        redis_send_waiting(redis);
    } else {
        redis_fail_waiting(redis, status);
    }
}

/* Handles the server's reply to an operation; declared here for operation_send(). */
static void on_reply(redisAsyncContext *context, void *reply, void *arg);

/* Sends an operation to the server and adds it to the store's list `sent`. Returns false if the
 * connection is not ready. */
static bool operation_send(struct operation *operation)
{
    struct redis_store *redis = operation->redis;

    if (!tdm__redis_connection_send(redis->connection, on_reply, operation, operation->command.text,
                                    operation->command.bytes)) {
        return false;
    }
    operation->sent_ms = tdm__clock_ms();
    operation->sends_count++;
    TAILQ_INSERT_TAIL(&redis->sent, operation, entry);
    redis_arm_timer(redis, operation->sent_ms + ATTEMPT_MS);
    return true;
}

/* Sends FUNCTION LOAD with the library of Lua functions, unless that is in progress. */
static void redis_load_library(struct redis_store *redis)
{
    struct operation *operation;

    if (redis->loading) {
        return;
    }
    operation = operation_create(redis, OPERATION_LOAD, NULL, TDM__NEVER);
    if (tdm__redis_command_load(&operation->command) != TDM_OK || !operation_send(operation)) {
        operation_free(operation);
        return;
    }
    redis->loading = true;
    tdm__log(TDM__INFO, "redis", "%s: loading function library %s", redis->address.text,
             tdm__redis_library()->name);
}

/* Opens a session for commits, unless that is in progress or there is no connection. */
static void redis_open_session(struct redis_store *redis)
{
    struct operation *operation = operation_create(redis, OPERATION_SESSION, NULL, TDM__NEVER);

    if (tdm__redis_command_session(redis->key_prefix, redis->session.writer,
                                   tdm__redis_commit_session_lowest(&redis->session),
                                   &operation->command) != TDM_OK ||
        !operation_send(operation)) {
        operation_free(operation);
        return;
    }
    redis->session.is_opening = true;
}

/* Decodes the server's reply to an operation of the store's user and reports the outcome. */
static void operation_complete_reply(struct operation *operation, const redisReply *reply)
{
    struct tdm__store_records *records = NULL;
    uint64_t version = TDM__VERSION_NONE;
    tdm_status status;

    if (operation->kind == OPERATION_READ) {
        status = tdm__redis_reply_records(reply, &records);
    } else if (operation->kind == OPERATION_RENEW) {
        struct tdm__store_renewed renewed;

        status = tdm__redis_reply_renewed(reply, &renewed, &records);
        if (status == TDM_OK) {
            tdm__store_completion_set_renewed(operation->completion, &renewed);
        }
    } else {
        status = tdm__redis_reply_commit(reply, &version, &records);
        tdm__store_completion_set_version(operation->completion, version);
    }
    operation_complete(operation, status, records);
}

/* Reports the server's error reply to a refused operation and frees the operation. */
static void operation_fail_refused(struct operation *operation)
{
    TAILQ_REMOVE(&operation->redis->refused, operation, entry);
    operation_complete(operation,
                       tdm__fail(TDM_E_STORE, "redis answered with %s", operation->refusal), NULL);
    operation_free(operation);
}

/* Returns whether an error reply says that the user of Redis lacks a right: for a command, or (the
 * third text, of Redis 7.0) for a command inside of a function. */
static bool is_missing_right(const char *refusal)
{
    return strstr(refusal, "NOPERM") != NULL || strstr(refusal, "ACL failure in script") != NULL ||
           strstr(refusal, "user executing the script can't run") != NULL;
}

/* Returns whether this reply of the server was logged already, and remembers it otherwise. When
 * many different ones were logged, every further one counts as logged. */
static bool refusal_was_logged(struct redis_store *redis, const char *refusal)
{
    for (uint32_t i = 0; i < redis->logged_refusals_count; i++) {
        if (strncmp(redis->logged_refusals[i], refusal, sizeof(redis->logged_refusals[i]) - 1) ==
            0) {
            return true;
        }
    }
    if (redis->logged_refusals_count == TDM__REDIS_LOGGED_REFUSALS_MAX) {
        return true;
    }
    (void)snprintf(redis->logged_refusals[redis->logged_refusals_count],
                   sizeof(redis->logged_refusals[0]), "%s", refusal);
    redis->logged_refusals_count++;
    return false;
}

/* Logs each right that the user of Redis lacks once, since only an administrator of the server can
 * help. Redis 7.0 does not name a command inside of a function in its reply. */
static void redis_log_missing_right(struct redis_store *redis, const char *refusal)
{
    if (is_missing_right(refusal) && !refusal_was_logged(redis, refusal)) {
        tdm__log(TDM__ERROR, "redis",
                 "%s: the user of Redis lacks a right that a node needs: %s. An administrator sees "
                 "the command by ACL LOG and gives the right by ACL SETUSER; docs/cluster.md lists "
                 "all that are needed",
                 redis->address.text, refusal);
    }
}

/* Delays the server's error reply to an operation by REFUSED_MS, even beyond the deadline. A server
 * that refuses writes or loads its data replies immediately, and the caller would retry in a busy
 * loop. */
static void operation_hold_refused(struct operation *operation, const redisReply *reply)
{
    struct redis_store *redis = operation->redis;
    char text[TDM__ERROR_DETAIL_BYTES];
    int64_t report_ms = tdm__clock_ms() + REFUSED_MS;

    operation->refusal = strdup(tdm__redis_reply_text(reply, text, sizeof(text)));
    TDM_ASSERT(operation->refusal != NULL);
    redis_log_missing_right(redis, operation->refusal);
    operation->deadline_ms = report_ms;
    TAILQ_INSERT_TAIL(&redis->refused, operation, entry);
    redis_arm_timer(redis, report_ms);
}

/* Handles the server's reply to the opening of a session. If the server refuses it, the commits
 * that wait get its error. */
static void on_session_reply(struct redis_store *redis, const redisReply *reply)
{
    struct operation *operation;
    struct operation *next;

    redis->session.is_opening = false;
    if (reply == NULL) {
        return; /* The next commit opens a session. */
    }
    if (tdm__redis_reply_no_function(reply)) {
        redis_load_library(redis);
        return;
    }
    if (tdm__redis_reply_session(reply, &redis->session.number) != TDM_OK) {
        for (operation = TAILQ_FIRST(&redis->waiting); operation != NULL; operation = next) {
            next = TAILQ_NEXT(operation, entry);
            if (operation->kind == OPERATION_COMMIT && operation->numbered.stamp.number == 0) {
                TAILQ_REMOVE(&redis->waiting, operation, entry);
                operation_hold_refused(operation, reply);
            }
        }
    }
    redis_send_waiting(redis);
}

/* Handles the reply to a commit whose session the server does not know. If that was the only copy
 * of the command, the commit waits for a new session. */
static void on_session_unknown(struct operation *operation)
{
    struct redis_store *redis = operation->redis;

    tdm__redis_commit_session_forget(&redis->session, operation->numbered.stamp.session);
    if (operation->sends_count == 1) {
        tdm__redis_commit_session_settle(&redis->session, &operation->numbered);
        operation->sends_count = 0;
        operation_enqueue(operation);
        redis_send_waiting(redis);
        return;
    }
    operation_complete(operation,
                       tdm__fail(TDM_E_STORE,
                                 "%s: the server has lost the outcome of a repeated commit",
                                 redis->address.text),
                       NULL);
    operation_free(operation);
}

/* Handles the server's reply to WAIT. Without a reply it fails, because the next connection would
 * count replicas for other changes. If replicas are missing, the server may not be the master any
 * more. */
static void on_wait_reply(struct operation *operation, const redisReply *reply)
{
    uint64_t count = 0;
    tdm_status status = reply == NULL ? tdm__fail(TDM_E_STORE, "%s: the connection was lost",
                                                  operation->redis->address.text)
                                      : tdm__redis_reply_count(reply, &count);

    if (status == TDM_OK && count < operation->replicas_count) {
        tdm__redis_connection_doubt_master(operation->redis->connection);
    }
    if (operation->completion != NULL) {
        tdm__store_completion_set_version(operation->completion, count);
        operation_complete(operation, status, NULL);
    }
}

/* Handles the server's reply to any operation. `reply` is NULL if the connection ended without one.
 * The operation then waits to be sent again. */
static void on_reply(redisAsyncContext *context, void *reply, void *arg)
{
    struct operation *operation = arg;
    struct redis_store *redis = operation->redis;
    bool no_function;

    (void)context;
    if (reply != NULL && !tdm__redis_connection_check_master(redis->connection, reply)) {
        reply = NULL;             /* The connection is ending. */
        operation->sends_count--; /* The server has not carried out this copy. */
    }
    no_function = reply != NULL && tdm__redis_reply_no_function(reply);
    TAILQ_REMOVE(&redis->sent, operation, entry);
    if (operation->kind == OPERATION_LOAD) {
        on_load_reply(redis, reply);
    } else if (operation->kind == OPERATION_SESSION) {
        on_session_reply(redis, reply);
    } else if (operation->kind == OPERATION_WAIT) {
        on_wait_reply(operation, reply);
    } else if (operation->completion != NULL && reply != NULL &&
               operation->kind == OPERATION_COMMIT && tdm__redis_reply_no_session(reply)) {
        on_session_unknown(operation);
        return;
    } else if (operation->completion != NULL && (reply == NULL || no_function)) {
        operation_enqueue(operation);
        if (no_function) {
            redis_load_library(redis);
        }
        return;
    } else if (operation->completion != NULL &&
               ((const redisReply *)reply)->type == REDIS_REPLY_ERROR) {
        operation_hold_refused(operation, reply);
        return;
    } else if (operation->completion != NULL) {
        operation_complete_reply(operation, reply);
    }
    operation_free(operation);
}

/* ---- sending and deadlines -------------------------------------------------------------- */

/* Returns whether operations must wait for the subscription: a watcher must learn of all changes
 * after its first read. */
static bool is_subscribing(const struct redis_store *redis)
{
    return redis->subscription != NULL &&
           !tdm__redis_subscription_was_subscribed(redis->subscription);
}

/* Gives a commit that is to be sent its number, unless it has one from an earlier sending. Returns
 * false if a session has to be opened first. */
static bool operation_stamp(struct operation *operation)
{
    struct redis_store *redis = operation->redis;

    if (operation->numbered.stamp.number != 0) {
        return true;
    }
    if (redis->session.number == 0) {
        redis_open_session(redis);
        return false;
    }
    tdm__redis_commit_session_stamp(&redis->session, &operation->numbered);
    tdm__redis_command_stamp(&operation->command, &operation->numbered.stamp);
    return true;
}

/* Sends the store's waiting operations as long as the connection, the subscription and the library
 * allow it. */
static void redis_send_waiting(struct redis_store *redis)
{
    struct operation *operation;

    while (!redis->loading && !redis->session.is_opening && !is_subscribing(redis) &&
           (operation = TAILQ_FIRST(&redis->waiting)) != NULL) {
        if (operation->kind == OPERATION_COMMIT && !operation_stamp(operation)) {
            return;
        }
        TAILQ_REMOVE(&redis->waiting, operation, entry);
        if (!operation_send(operation)) {
            TAILQ_INSERT_HEAD(&redis->waiting, operation, entry);
            return;
        }
    }
}

/* Fails all operations whose deadlines are before `now_ms` and sets the timer for the others. */
static void operations_fail_overdue(struct redis_store *redis, int64_t now_ms)
{
    struct operation *operation = TAILQ_FIRST(&redis->waiting);
    struct operation *next;

    for (; operation != NULL; operation = next) {
        next = TAILQ_NEXT(operation, entry);
        if (operation->deadline_ms <= now_ms) {
            TAILQ_REMOVE(&redis->waiting, operation, entry);
            operation_fail_deadline(operation);
            operation_free(operation);
        } else {
            redis_arm_timer(redis, operation->deadline_ms);
        }
    }
    while ((operation = TAILQ_FIRST(&redis->refused)) != NULL && operation->deadline_ms <= now_ms) {
        operation_fail_refused(operation);
    }
    if (operation != NULL) {
        redis_arm_timer(redis, operation->deadline_ms);
    }
    TAILQ_FOREACH(operation, &redis->sent, entry)
    {
        if (operation->completion != NULL && operation->deadline_ms <= now_ms) {
            operation_fail_deadline(operation);
        } else if (operation->completion != NULL) {
            redis_arm_timer(redis, operation->deadline_ms);
        }
        redis_arm_timer(redis, operation->sent_ms + ATTEMPT_MS);
    }
}

/* Runs when the store's timer fires: handles deadlines, and drops a connection on which the oldest
 * command has had no reply for ATTEMPT_MS. */
static void on_timer(void *arg)
{
    struct redis_store *redis = arg;
    int64_t now_ms = tdm__clock_ms();
    const struct operation *oldest;

    redis->timer_ms = TDM__NEVER;
    operations_fail_overdue(redis, now_ms);
    oldest = TAILQ_FIRST(&redis->sent);
    if (oldest != NULL && oldest->sent_ms + ATTEMPT_MS <= now_ms) {
        tdm__redis_connection_drop(redis->connection, "the server does not answer");
    }
}

/* Notes the master that the sentinels have named for the new connection, if there are sentinels:
 * logs that it is another one, and leads the subscription to it. */
static void redis_follow_master(struct redis_store *redis)
{
    const struct tdm__redis_host *master = tdm__redis_connection_master(redis->connection);

    if (redis->master.name[0] != '\0' && !tdm__redis_host_equal(&redis->master, master)) {
        tdm__log(TDM__WARN, "redis", "%s: the master is now %s:%u, before it was %s:%u",
                 redis->address.text, master->name, master->port, redis->master.name,
                 redis->master.port);
    }
    redis->master = *master;
    tdm__redis_subscription_follow(redis->subscription, master);
}

/* Runs when the connection is ready: sends the operations that waited for it. */
static void on_connection_ready(void *arg)
{
    struct redis_store *redis = arg;

    redis_follow_master(redis);
    if (redis->connected != NULL && !redis->store.closing) {
        redis->connected(redis->connected_arg);
    }
    redis_send_waiting(redis);
}

/* Runs when the connection was lost, after on_reply() has moved all sent operations back to
 * `waiting`. */
static void on_connection_lost(void *arg)
{
    struct redis_store *redis = arg;

    TDM_ASSERT(TAILQ_EMPTY(&redis->sent));
    redis->loading = false;
    redis->session.is_opening = false;
}

/* What the connection tells the store. */
static const struct tdm__redis_connection_ops connection_ops = {.ready = on_connection_ready,
                                                                .lost = on_connection_lost};

/* ---- the table -------------------------------------------------------------------------- */

/* Starts a read of the records that match `patterns`, for the user of the store. */
static void redis_read(struct tdm__store *store, const char *const *patterns,
                       uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                       void *arg)
{
    struct redis_store *redis = (struct redis_store *)store;
    struct operation *operation = operation_create(
        redis, OPERATION_READ, tdm__store_completion_of_read(fn, arg), deadline_ms);
    tdm_status status = tdm__store_check_patterns(patterns, patterns_count);

    if (status == TDM_OK) {
        status = tdm__redis_command_read(redis->key_prefix, patterns, patterns_count,
                                         &operation->command);
    }
    operation_submit(redis, operation, status);
}

/* Starts a commit of `writes`, for the user of the store. */
static void redis_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                         uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                         void *arg)
{
    struct redis_store *redis = (struct redis_store *)store;
    struct operation *operation = operation_create(
        redis, OPERATION_COMMIT, tdm__store_completion_of_commit(fn, arg), deadline_ms);
    tdm_status status = tdm__store_check_writes(writes, writes_count);

    if (status == TDM_OK) {
        status = tdm__redis_command_commit(redis->key_prefix, redis->session.writer, writes,
                                           writes_count, &operation->command);
    }
    operation_submit(redis, operation, status);
}

/* Starts a renewal, for the user of the store. A renewal that is carried out twice does no harm. */
static void redis_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                        int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    struct redis_store *redis = (struct redis_store *)store;
    struct operation *operation = operation_create(
        redis, OPERATION_RENEW, tdm__store_completion_of_renewal(fn, arg), deadline_ms);

    operation_submit(redis, operation,
                     tdm__redis_command_renew(redis->key_prefix, renewal, &operation->command));
}

/* Runs when the subscription is active: sends the operations that waited for it. */
static void on_subscribed(void *arg)
{
    redis_send_waiting(arg);
}

/* Adds a watcher of the keys that begin with `prefix`. The subscription starts with the first
 * watcher, because each commit of the cluster wakes a subscribed process. */
static tdm_status redis_watch(struct tdm__store *store, const char *prefix,
                              tdm__store_changed_fn *fn, void *arg)
{
    struct redis_store *redis = (struct redis_store *)store;
    struct tdm__redis_subscription_options options = {.key_prefix = redis->key_prefix,
                                                      .watchers = &redis->watchers,
                                                      .completions = redis->completions,
                                                      .subscribed = on_subscribed,
                                                      .arg = redis};

    TDM_TRY(tdm__watchers_add(&redis->watchers, prefix, fn, arg));
    if (redis->subscription != NULL) {
        return TDM_OK;
    }
    return tdm__redis_subscription_create(redis->loop, &redis->address, &options,
                                          &redis->subscription);
}

/* Closes and frees the store. Fails all operations and runs their callbacks. */
static void redis_close(struct tdm__store *store)
{
    struct redis_store *redis = (struct redis_store *)store;

    store->closing = true;
    tdm__redis_subscription_destroy(redis->subscription);
    if (redis->connection != NULL) {
        /* This moves the operations that were sent back to `waiting`. */
        tdm__redis_connection_destroy(redis->connection);
    }
    if (redis->completions != NULL) {
        while (!TAILQ_EMPTY(&redis->refused)) {
            operation_fail_refused(TAILQ_FIRST(&redis->refused));
        }
        redis_fail_waiting(redis, TDM_E_STORE);
        tdm__store_completions_destroy(redis->completions);
    }
    tdm__watchers_fini(&redis->watchers);
    tdm__timer_destroy(redis->timer);
    free(redis);
}

/* The functions of a store in Redis. */
static const struct tdm__store_ops redis_ops = {
    .name = "redis",
    .close = redis_close,
    .read = redis_read,
    .commit = redis_commit,
    .watch = redis_watch,
    .renew = redis_renew,
};

/* ---- opening ---------------------------------------------------------------------------- */

/* Creates the store's queue of results, timer and connection. */
static tdm_status redis_store_start(struct redis_store *redis)
{
    /* The library hiredis writes to its socket with write(2), which raises SIGPIPE. */
    tdm__ignore_sigpipe();
    TDM_TRY(tdm__store_completions_create(redis->loop, &redis->completions));
    TDM_TRY(tdm__timer_create(redis->loop, on_timer, redis, &redis->timer));
    return tdm__redis_connection_create(redis->loop, &redis->address, &connection_ops, redis,
                                        &redis->connection);
}

tdm_status tdm__store_redis_open(struct tdm__loop *loop, const char *url, const char *cluster,
                                 int64_t timeout_ms, struct tdm__store **store_out)
{
    struct tdm__redis_address address;

    TDM_TRY(tdm__redis_address_parse(url, &address));
    return tdm__store_redis_open_at(loop, &address, cluster, timeout_ms, store_out);
}

tdm_status tdm__store_redis_open_at(struct tdm__loop *loop,
                                    const struct tdm__redis_address *address, const char *cluster,
                                    int64_t timeout_ms, struct tdm__store **store_out)
{
    struct redis_store *redis;
    tdm_status status;

    if (address->is_encrypted) {
        return tdm__fail(TDM_E_UNSUPPORTED, "%s: only a daemon connects to Redis by TLS",
                         address->text);
    }
    redis = calloc(1, sizeof(*redis));
    if (redis == NULL) {
        return tdm__fail(TDM_E_NOMEM, "redis store");
    }
    redis->store.ops = &redis_ops;
    redis->loop = loop;
    redis->address = *address;
    redis->timer_ms = TDM__NEVER;
    TAILQ_INIT(&redis->waiting);
    TAILQ_INIT(&redis->sent);
    TAILQ_INIT(&redis->refused);
    status = tdm__redis_commit_session_init(&redis->session);
    if (status == TDM_OK) {
        status = tdm__redis_key_prefix(cluster, redis->key_prefix);
    }
    if (status == TDM_OK) {
        status = redis_store_start(redis);
    }
    if (status == TDM_OK) {
        status = tdm__redis_probe(loop, &redis->store, timeout_ms);
    }
    if (status != TDM_OK) {
        redis_close(&redis->store);
        return status;
    }
    *store_out = &redis->store;
    return TDM_OK;
}

void tdm__store_redis_set_writer(struct tdm__store *store, const struct tdm__id *node)
{
    struct redis_store *redis = (struct redis_store *)store;

    TDM_ASSERT(store->ops == &redis_ops && redis->session.last_commit == 0);
    (void)tdm__id_text(node, redis->session.writer);
}

void tdm__store_redis_on_connected(struct tdm__store *store, void (*fn)(void *arg), void *arg)
{
    struct redis_store *redis = (struct redis_store *)store;

    TDM_ASSERT(store->ops == &redis_ops);
    redis->connected = fn;
    redis->connected_arg = arg;
}

void tdm__store_redis_wait(struct tdm__store *store, uint32_t replicas_count, int64_t timeout_ms,
                           tdm__store_commit_fn *fn, void *arg)
{
    struct redis_store *redis = (struct redis_store *)store;
    struct operation *operation = operation_create(
        redis, OPERATION_WAIT, tdm__store_completion_of_commit(fn, arg), TDM__NEVER);
    tdm_status status;

    TDM_ASSERT(store->ops == &redis_ops);
    operation->replicas_count = replicas_count;
    status = tdm__redis_command_wait(replicas_count, timeout_ms, &operation->command);
    if (status == TDM_OK && !operation_send(operation)) {
        status = tdm__fail(TDM_E_STORE, "%s: the connection was lost", redis->address.text);
    }
    if (status != TDM_OK) {
        operation_complete(operation, status, NULL);
        operation_free(operation);
    }
}
